//! Plans of API keys from PostgreSQL: each account has a quota of its own, and a key that is not in the database is denied.
//! Requests at once share their queries, and results are cached for a minute. While the database is away, keys that were seen
//! go on, for two minutes at most. With some headers and the log left out:
//!
//! ```text
//! $ cargo run -p tollgate-postgres --example plans -- postgres://postgres@127.0.0.1:15432/postgres &
//! $ seq 50 | xargs -P 50 -I{} curl -so /dev/null -w '%{http_code}\n' -H 'x-api-key: key-of-ada' localhost:3000 | uniq -c
//! query: SELECT account FROM api_keys WHERE hash = sha256(convert_to($1, 'UTF8'))
//! query: SELECT per_minute FROM accounts WHERE name = $1
//!      50 200
//! $ curl -si -H 'x-api-key: key-of-bob' localhost:3000
//! query: SELECT account FROM api_keys WHERE hash = sha256(convert_to($1, 'UTF8'))
//! query: SELECT per_minute FROM accounts WHERE name = $1
//! HTTP/1.1 200 OK
//! ratelimit-policy: "ip";q=10000;w=60, "plan";q=60;w=60
//! $ curl -si -H 'x-api-key: made-up' localhost:3000
//! query: SELECT account FROM api_keys WHERE hash = sha256(convert_to($1, 'UTF8'))
//! HTTP/1.1 403 Forbidden
//! $ pg_ctl -D data -m immediate stop
//! $ curl -si -H 'x-api-key: key-of-ada' localhost:3000
//! HTTP/1.1 200 OK
//! ratelimit-policy: "ip";q=10000;w=60, "plan";q=5000;w=60
//! $ curl -si -H 'x-api-key: another' localhost:3000
//! query: SELECT account FROM api_keys WHERE hash = sha256(convert_to($1, 'UTF8'))
//! HTTP/1.1 503 Service Unavailable
//! retry-after: 1
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use deadpool_postgres::{Manager, Pool, Runtime};
use tokio::net::TcpListener;
use tokio_postgres::{NoTls, Row};
use tollgate::key::Lookup;
use tollgate::policy::{MissingKey, TierLookup};
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer, key};

type Error = Box<dyn std::error::Error + Send + Sync>;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, per_minute int NOT NULL CHECK (per_minute > 0));
    CREATE TABLE IF NOT EXISTS api_keys (hash bytea PRIMARY KEY, account text NOT NULL REFERENCES accounts);
    INSERT INTO accounts VALUES ('ada', 5000), ('bob', 60) ON CONFLICT DO NOTHING;
    INSERT INTO api_keys VALUES (sha256('key-of-ada'), 'ada'), (sha256('key-of-bob'), 'bob') ON CONFLICT DO NOTHING";

const ACCOUNT: &str = "SELECT account FROM api_keys WHERE hash = sha256(convert_to($1, 'UTF8'))";
const PLAN: &str = "SELECT per_minute FROM accounts WHERE name = $1";

async fn query(pool: &Pool, sql: &str, value: Lookup) -> Result<Option<Row>, Error> {
    println!("query: {sql}");
    Ok(pool.get().await?.query_opt(sql, &[&value.text()]).await?)
}

/// The account of an API key, of which the database has only a hash. Without one the request is denied.
async fn account(pool: Pool, api_key: Lookup) -> Result<Option<Key>, Error> {
    let Some(row) = query(&pool, ACCOUNT, api_key).await? else { return Ok(None) };
    Ok(Some(Key::new("account", row.try_get::<_, &str>(0)?)))
}

/// The quota of an account. Without one the quota of the policy applies.
async fn plan(pool: Pool, account: Lookup) -> Result<Option<Quota>, Error> {
    let Some(row) = query(&pool, PLAN, account).await? else { return Ok(None) };
    Ok(Some(Quota::try_per_minute(u64::try_from(row.try_get::<_, i32>(0)?)?)?))
}

fn layer(pool: Pool) -> RateLimitLayer {
    let accounts = pool.clone();
    let by_account = key::lookup(key::header("x-api-key"), move |api_key| account(accounts.clone(), api_key));
    let plans = TierLookup::new(move |account| plan(pool.clone(), account));
    let plan = Policy::new("plan", Quota::per_minute(60)).key(by_account).tier_lookup(plans);
    RateLimitLayer::composite(MemoryStore::new())
        // Bounds the queries of a client that makes up keys: while this denies, nothing is looked up.
        .ip(Quota::per_minute(10_000))
        .policy(plan.missing_key(MissingKey::Deny))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).init();
    let url = std::env::args().nth(1).ok_or("pass the URL of a database")?;
    let pool = Pool::builder(Manager::new(url.parse()?, NoTls)).runtime(Runtime::Tokio1).build()?;
    pool.get().await?.batch_execute(TABLES).await?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(layer(pool));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
