//! A store on the real module redis-cell, in a real server.

mod asking;
mod building;
mod conformance;
mod connecting;
mod module;
mod requests;
mod rig;
