//! Requests whose handlers do what they are told.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::response::ActualCost;
use tollgate::{Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

type Text = Full<Bytes>;

/// What the handler of a request is told to do.
pub(super) enum Command {
    Charge(u64),
    Refund(u64),
    /// Settles what was charged and refunded, and waits for that or does not.
    Flush(bool),
    /// Says that it has done all before.
    Tell(oneshot::Sender<()>),
    Answer(StatusCode, Option<u64>),
}

/// A request on its way.
pub(super) struct Open {
    pub(super) commands: UnboundedSender<Command>,
    pub(super) served: JoinHandle<StatusCode>,
    /// What is left of it after its response.
    pub(super) handle: Arc<Mutex<Option<RateLimitHandle>>>,
}

/// What a handler is told, and where it leaves its handle.
#[derive(Clone)]
struct Told(Arc<tokio::sync::Mutex<UnboundedReceiver<Command>>>, Arc<Mutex<Option<RateLimitHandle>>>);

/// A policy of which requests say themselves what they cost.
pub(super) fn policy(quota: Quota) -> Policy {
    let cost = |parts: &http::request::Parts| parts.extensions.get::<u64>().copied().unwrap_or(1);
    Policy::new("policy", quota).key(key::header("x-key").plain()).cost_by(cost).metered()
}

/// Sends a request.
pub(super) fn request(layer: &RateLimitLayer, key: &str, cost: u64) -> Open {
    let ((commands, receiver), handle) = (unbounded_channel(), Arc::default());
    let told = Told(Arc::new(tokio::sync::Mutex::new(receiver)), Arc::clone(&handle));
    let request = Request::get("/").header("x-key", key).extension(cost).extension(told);
    let serving = layer.layer(service_fn(serve)).oneshot(request.body(Text::default()).expect("a request"));
    let served = tokio::spawn(async move {
        let Ok(response) = serving.await;
        response.status()
    });
    Open { commands, served, handle }
}

/// Does what it is told to.
async fn serve(request: Request<Text>) -> Result<Response<Text>, Infallible> {
    let handle = request.extensions().get::<RateLimitHandle>().cloned().expect("the layer is outside");
    let Told(commands, kept) = request.extensions().get().cloned().expect("each request has its own");
    *kept.lock().expect("it is not poisoned") = Some(handle.clone());
    let mut commands = commands.lock().await;
    while let Some(command) = commands.recv().await {
        match command {
            Command::Charge(units) => handle.charge(units),
            Command::Refund(units) => handle.refund(units),
            Command::Flush(waits) => {
                // The answer to a charge may be lost.
                let flushed = handle.flush();
                let _ = if waits { Some(flushed.await) } else { flushed.now_or_never() };
            }
            Command::Tell(told) => drop(told.send(())),
            Command::Answer(status, real) => {
                let mut response = Response::new(Text::default());
                *response.status_mut() = status;
                if let Some(units) = real {
                    response.extensions_mut().insert(ActualCost(units));
                }
                return Ok(response);
            }
        }
    }
    std::future::pending().await
}
