//! A store on the primary that real sentinels name.

mod credentials;
mod failover;
mod rig;
