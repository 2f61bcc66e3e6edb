//! The status service: shows clients what is left of their limits, and takes nothing.
//!
//! A request comes in, the policies of its client are checked at cost 0, and a JSON document goes out, with the
//! numbers that headers would have now. It never shows more than those headers would: policies
//! in shadow mode, unadvertised ones, and, for anonymous clients, those whose key any client can make up are left out.

mod look;
mod service;

pub use self::service::StatusService;
