//! The worker shedder: sheds by how much one process has to do.
//!
//! The layer makes services that share a [state](state): requests in progress or a closure that measures, the ramp, and
//! the level of shedding. About once a second a request samples the utilization; no task and no timer does.

mod body;
mod future;
mod layer;
mod service;
mod state;

pub use self::body::ShedBody;
pub use self::future::WorkerShedFuture;
pub use self::layer::WorkerShedLayer;
pub use self::service::WorkerShed;
