//! Statements, which are prepared once for each connection.

use deadpool_postgres::ClientWrapper;
use futures::try_join;
use tokio_postgres::{Error, Statement};

/// Locks ids until the transaction ends, in ascending order of their numbers. The seed is the table's oid, so other
/// advisory locks are unlikely to have the same numbers. A collision only causes a wait.
const LOCK: &str = "
SELECT pg_advisory_xact_lock(number) FROM (
  SELECT DISTINCT hashtextextended(id, 'tollgate_states'::regclass::oid::bigint) AS number
  FROM unnest($1::text[]) AS id ORDER BY number
) AS locks";

/// Microseconds since the Unix epoch and state of each id, in the given order.
const LOAD: &str = "
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, row.state
FROM unnest($1::text[]) WITH ORDINALITY AS wanted (id, place)
LEFT JOIN tollgate_states AS row ON row.id = wanted.id COLLATE \"C\" AND row.expires_at > clock_timestamp()
ORDER BY wanted.place";

/// Parameters: ids, states, and microseconds for which each state may matter.
const WRITE: &str = "
INSERT INTO tollgate_states AS row (id, state, expires_at)
SELECT id, state, clock_timestamp() + ttl * interval '1 microsecond'
FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS new (id, state, ttl)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at";

const FORGET: &str = "DELETE FROM tollgate_states WHERE id = ANY ($1::text[])";

#[derive(Clone, Debug)]
pub(crate) struct Statements {
    pub(crate) lock: Statement,
    pub(crate) load: Statement,
    pub(crate) write: Statement,
    pub(crate) forget: Statement,
}

impl Statements {
    pub(crate) async fn prepare(client: &ClientWrapper) -> Result<Self, Error> {
        let (lock, load, write, forget) = try_join!(
            client.prepare_cached(LOCK),
            client.prepare_cached(LOAD),
            client.prepare_cached(WRITE),
            client.prepare_cached(FORGET),
        )?;
        Ok(Self { lock, load, write, forget })
    }
}
