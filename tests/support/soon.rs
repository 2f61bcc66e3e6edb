//! Waits that end.

use std::future::Future;
use std::time::Duration;

/// Waits for what takes milliseconds, but not forever.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it takes far too long")
}
