#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod back_pressure;
#[cfg(feature = "config")]
mod config;
mod events;
mod fleet;
mod ramp;
mod service;
mod shedder;
mod worker;

pub use self::back_pressure::{BackPressure, BackPressureFuture, BackPressureLayer};
#[cfg(feature = "config")]
pub use self::config::FleetConfig;
pub use self::fleet::{FleetShed, FleetShedLayer};
pub use self::ramp::Ramp;
pub use self::service::{ShedBody, WorkerShed, WorkerShedFuture};
pub use self::shedder::{Class, Shed};
pub use self::worker::WorkerShedLayer;

#[track_caller]
fn built<T>(result: Result<T, tollgate::Error>) -> T {
    match result {
        Ok(built) => built,
        Err(error) => panic!("{error:#}"),
    }
}

/// Why and where to shed load, which requests are critical, and what shedding costs.
// Its code uses the feature.
#[cfg(any(not(doctest), feature = "config"))]
pub mod guide {
    #![doc = include_str!("../docs/shedding.md")]
}
