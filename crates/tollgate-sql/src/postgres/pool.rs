use deadpool_postgres::{Object, Pool};
use tokio::runtime::Handle;
use tollgate::Error;

use super::error::{call_error, pool_error};
use super::session::Session;
use super::sql::Statements;

/// Takes a connection from the pool, or makes one.
///
/// Connecting may take longer than a decision, so it is a separate task: if its caller times out, the pool has the
/// connection for the next caller.
pub(crate) async fn session(pool: &Pool) -> Result<Session, Error> {
    let runtime = Handle::try_current();
    let runtime = runtime.map_err(|_| Error::invalid("calls to postgres need a tokio runtime: make them in one"))?;
    if pool.status().available > 0 {
        return prepared(pool).await;
    }
    let pool = pool.clone();
    let connecting = runtime.spawn(async move { prepared(&pool).await });
    connecting.await.map_err(|error| Error::connection("connecting to postgres was cut off", error))?
}

pub(crate) async fn client(pool: &Pool) -> Result<Object, Error> {
    pool.get().await.map_err(pool_error)
}

async fn prepared(pool: &Pool) -> Result<Session, Error> {
    let client = client(pool).await?;
    let statements = Statements::prepare(&client).await.map_err(call_error)?;
    Ok(Session::new(client, statements))
}
