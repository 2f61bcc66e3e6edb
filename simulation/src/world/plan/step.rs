//! What happens, one after the other.

use super::Fault;

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// How long after the one before, in milliseconds.
    pub after_ms: u64,
    /// What happens.
    pub what: What,
}

/// What happens in a step.
#[derive(Clone, Debug)]
pub enum What {
    /// A request.
    Ask(Ask),
    /// Something goes wrong.
    Fault(Fault),
    /// All is well again.
    Heal,
    /// Policies are replaced by the same with so many percent of their limits.
    Replace {
        /// Whose.
        process: usize,
        /// Of the limits at the beginning.
        percent: u64,
    },
    /// Somebody has a client's counters forgotten.
    Reset {
        /// By which process.
        process: usize,
        /// Whose.
        user: u8,
    },
    /// Somebody lifts the bans of a client.
    Lift {
        /// By which process.
        process: usize,
        /// Whose.
        user: u8,
    },
    /// Another runtime asks, for so many milliseconds, and stops. The first one does nothing meanwhile.
    Runtime {
        /// Of each request.
        asks: Vec<Ask>,
        /// For so long, in milliseconds.
        lasts_ms: u64,
    },
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which process it comes to.
    pub process: usize,
    /// Whose it is.
    pub user: u8,
    /// Its cost, which no other request of the run has, but in a [crowd](super::Setting::is_crowd).
    pub cost: u64,
    /// What its handler does.
    pub handler: Handler,
    /// When its caller goes away.
    pub patience: Patience,
    /// What comes of looking its account up.
    pub lookup: Lookup,
}

/// What a handler does, in order.
#[derive(Clone, Debug, Default)]
pub struct Handler {
    /// Units it charges.
    pub charges: Vec<u64>,
    /// Whether it settles them at once.
    pub flushes: bool,
    /// For so long it sleeps then, in milliseconds.
    pub pause_ms: u64,
    /// Units it refunds.
    pub refunds: Vec<u64>,
    /// For so long it sleeps, in milliseconds.
    pub sleeps_ms: u64,
    /// For so long it blocks its thread, in milliseconds.
    pub blocks_ms: u64,
    /// Whether it answers with an error.
    pub fails: bool,
    /// It goes on charging a unit after the response.
    pub goes_on: bool,
}

/// When a caller goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It waits for the response.
    Waits,
    /// After so many milliseconds.
    Leaves(u64),
    /// It polls once, does nothing for so many milliseconds, and goes away.
    PollsOnce(u64),
    /// It polls once, does nothing for so many milliseconds, and then waits.
    Idles(u64),
}

/// What comes of looking an account up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is found, after so many milliseconds.
    Found(u64),
    /// An error.
    Fails,
    /// It takes for ever.
    Hangs,
}
