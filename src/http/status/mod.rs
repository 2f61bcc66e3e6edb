//! Telling clients their limits without taking anything.

mod document;
mod look;
mod service;

pub use self::service::StatusService;
