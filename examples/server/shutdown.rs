//! Serves until a signal stops the server.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

use crate::BoxError;

/// How long requests in flight may take after the signal.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until `stop` completes, then waits up to `GRACE` for requests in flight.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), BoxError> {
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        stop.await;
        tracing::info!("stopping");
        tokio::spawn(async {
            tokio::time::sleep(GRACE).await;
            tracing::warn!("stopped with requests under way");
            std::process::exit(0);
        });
    });
    Ok(server.await?)
}

/// Listens for the signals from now on; the future completes with the first of them.
pub(crate) fn signal() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
