//! A run: the servers, the connections to them, the processes that ask, and what must be true.

mod bans;
mod caller;
mod calm;
mod check;
mod client;
mod connection;
mod conservation;
mod cut;
mod end;
mod fault;
mod net;
mod outage;
pub mod plan;
mod record;
mod refused;
mod remaining;
mod reported;
mod run;
mod server;
mod shown;
mod slots;
mod state;
mod trace;
mod trouble;
mod wishes;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use run::{Report, run};
pub use trace::Trace;

use state::State;

/// What all of a run share.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

impl World {
    /// The state, for as long as nothing is awaited.
    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever asks the operating system for the time next, it is this.
        crate::host::set_clock(u64::try_from(state.trace.elapsed().as_nanos()).unwrap_or(u64::MAX));
        state
    }
}

/// Faults that some thousands of seeds meet all of.
pub const FAULTS: [&str; 48] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MOVED",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
    "a caller that goes away",
    "a connection to what became a replica",
    "a changed password",
    "a clock that steps back",
    "a clock that steps forward",
    "a handler that blocks",
    "a late answer",
    "a pause within an answer",
    "a runtime that stops",
    "a server that hangs",
    "an answer to nothing asked",
    "an evicted key",
    "answer swallowed",
    "connection refused",
    "connections cut",
    "cut after a decision ran",
    "cut before a decision ran",
    "failover",
    "half an answer",
    "policies replaced",
    "restart",
    "restart without memory",
    "a slow server",
    "bytes that nothing asked for",
    "a caller that polls once",
    "a client who is refused while the store is away",
    "a refusal from memory",
    "a reset",
    "slots that are renewed",
    "slots that a server has lost",
    "a ban",
    "a clock in none of the windows named",
    "a ban that is lifted",
    "a longer ban",
    "a refusal from memory by a ban",
    "a report that came too late",
    "a request dropped by a ratio",
    "ratios that are not known any more",
];
