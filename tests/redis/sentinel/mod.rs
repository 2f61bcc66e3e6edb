//! A store on the primary that real sentinels name.

mod failover;
pub(crate) mod rig;
