//! What is to happen in a run, as a seed decides it.

mod ban;
mod calendar;
mod draw;
mod fault;
mod focus;
mod ratio;
mod step;

use std::time::Duration;

pub use fault::{Fault, Mishap};
pub use step::{Ask, Handler, Lookup, Patience, Step, What};

/// All that a run is made from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What decides all that the steps leave open, such as delays.
    pub seed: u64,
    /// What stands at the beginning.
    pub setting: Setting,
    /// What happens then, one after the other.
    pub steps: Vec<Step>,
}

/// What stands at the beginning of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Servers; more than one are a Cluster.
    pub nodes: usize,
    /// Processes, each with a layer and a store of its own.
    pub processes: Vec<Process>,
    /// Policies by index: the first process's, and all others'.
    pub policies: Vec<PolicyPlan>,
    /// How many clients there are.
    pub users: u8,
    /// Whether Redis Functions are called instead of scripts.
    pub functions: bool,
    /// Whether requests are many and cost 1 each, as leases want it; else each has a cost of its own.
    pub is_crowd: bool,
    /// How many of a hundred steps go wrong.
    pub faults: u8,
    /// Whether nothing is lost by what goes wrong.
    pub loses_nothing: bool,
    /// Whether all that goes wrong are slots that move, and scripts that are forgotten, which is no reason to fail.
    pub only_moves: bool,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// What stands around its Redis store.
    pub around: Around,
    /// How long a decision may take, in milliseconds.
    pub budget_ms: u64,
    /// How long its layer waits for one, in milliseconds, if it does not leave that to the store.
    pub layer_budget_ms: Option<u64>,
    /// What its layer does without the store.
    pub rule: Rule,
    /// Whether refusals are remembered.
    pub deny_cache: bool,
    /// Connections to a server at most.
    pub pool_size: usize,
    /// Checks of a call at most.
    pub batch_size: usize,
}

impl Process {
    /// How long a decision may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.layer_budget_ms.unwrap_or(self.budget_ms))
    }
}

/// What stands around a Redis store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Nothing.
    Plain,
    /// Units taken in advance.
    Lease,
    /// Units taken in advance, and some admitted before they are.
    Overdraft,
    /// Shares that follow from what all processes report.
    Ratio(RatioPlan),
}

/// Ratios; times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatioPlan {
    /// How long a tick is.
    pub tick_ms: u64,
    /// For how long the last ratios hold.
    pub life_ms: u64,
    /// Into how many shards counters are divided.
    pub shards: u8,
}

/// What a layer does without its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A local store decides.
    Fallback,
    /// All is admitted, for a second.
    Allow,
    /// All is refused.
    Deny,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct PolicyPlan {
    /// The algorithm, by its number in `lua/wire.lua`.
    pub algorithm: u8,
    /// Units in a window.
    pub limit: u64,
    /// In milliseconds; no two policies of a run have the same.
    pub window_ms: u64,
    /// Units at once, of buckets.
    pub burst: u64,
    /// What a request's key is.
    pub by: By,
    /// Whether handlers charge and refund.
    pub metered: bool,
    /// Whether only successful responses count.
    pub successes: bool,
    /// Whether it refuses nobody.
    pub shadow: bool,
    /// Whether units of requests that were dropped are given back.
    pub refund_dropped: bool,
    /// Whether its windows are hours of a time zone.
    pub is_hourly: bool,
    /// When clients are banned for refusals.
    pub ban: Option<BanPlan>,
}

/// A ban; times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanPlan {
    /// Refusals that begin it.
    pub after: u32,
    /// The window of these.
    pub within_ms: u64,
    /// How long the first one is.
    pub time_ms: u64,
    /// By how many percent of the last one each is longer.
    pub growth: u32,
    /// How long one is at most.
    pub most_ms: u64,
    /// Whether a refusal begins its time anew.
    pub extends: bool,
}

/// What a request's key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The client.
    User,
    /// One for all.
    Everybody,
    /// The client's account, which is looked up.
    Account,
}

/// What the first request of a run costs, but in a crowd; each costs one more than the one before.
pub const FIRST_COST: u64 = 64;
