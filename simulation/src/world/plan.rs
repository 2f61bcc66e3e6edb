//! What is to happen in a run, as its seed says: the setting, and the steps one after the other.

use std::time::Duration;

use tollgate::policy::Algorithm;

/// All that a run is made from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides all that the steps leave open, such as delays.
    pub seed: u64,
    /// What there is at the beginning.
    pub setting: Setting,
    /// What happens then.
    pub steps: Vec<Step>,
}

/// What there is at the beginning of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Servers; more than one are a Cluster.
    pub nodes: usize,
    /// Processes, each with a layer and a store of its own.
    pub processes: Vec<Process>,
    /// The policies of all processes.
    pub policies: Vec<PolicyPlan>,
    /// How many clients there are.
    pub users: u8,
    /// Of a hundred steps, so many are faults.
    pub faults: u8,
    /// Which faults there are.
    pub kinds: Kinds,
}

/// Which faults a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All.
    Any,
    /// Those that take time, and lose nothing.
    Delays,
    /// Slots that move, and scripts that are forgotten: no request may fail for these.
    Moves,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// What there is around its Redis store.
    pub around: Around,
    /// How long a decision may take, in milliseconds.
    pub budget_ms: u64,
    /// The timeout of its layer, in milliseconds, if it is not that of the store.
    pub layer_budget_ms: Option<u64>,
    /// What its layer does without the store.
    pub rule: Rule,
    /// Of how many instances its share is.
    pub instances: u32,
    /// Whether refusals are cached.
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

/// What there is around a Redis store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Nothing.
    Plain,
    /// Units leased in advance.
    Lease,
    /// Leases, and some units admitted before they are leased.
    Overdraft,
    /// Ratios, with the length of a tick in milliseconds.
    Ratio(u64),
}

/// What a layer does without its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Decides by its share.
    Fallback,
    /// Admits all, for a second.
    Allow,
    /// Refuses all.
    Deny,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct PolicyPlan {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Units in a window.
    pub limit: u64,
    /// In milliseconds; no two policies of a run have the same.
    pub window_ms: u64,
    /// Units at once, of buckets.
    pub burst: u64,
    /// Whether each client has a counter, or all have one.
    pub by_user: bool,
    /// Whether handlers charge and refund.
    pub metered: bool,
    /// Whether only successful responses count.
    pub successes: bool,
    /// Whether it refuses nobody.
    pub shadow: bool,
    /// Whether units of requests that were dropped are refunded.
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
    /// A fault.
    Fault(Fault),
    /// All faults end.
    Heal,
    /// The policies of a process are replaced by the same with so many percent of their limits.
    Replace(usize, u64),
    /// A process resets the counters of a user.
    Reset(usize, u8),
    /// A process lifts the bans of a user.
    Lift(usize, u8),
    /// Another runtime asks, for so many milliseconds, and stops. The first one stands still meanwhile.
    Runtime(Vec<Ask>, u64),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The process that it comes to.
    pub process: usize,
    /// Whose it is.
    pub user: u8,
    /// What it costs.
    pub cost: u64,
    /// What its handler does.
    pub handler: Handler,
    /// What its caller does.
    pub patience: Patience,
}

/// What a handler does, in order.
#[derive(Clone, Debug, Default)]
pub struct Handler {
    /// Units that it charges.
    pub charges: u64,
    /// Whether it settles them at once.
    pub flushes: bool,
    /// For so long it sleeps, in milliseconds.
    pub sleeps_ms: u64,
    /// For so long it blocks its thread, in milliseconds.
    pub blocks_ms: u64,
    /// Units that it refunds.
    pub refunds: u64,
    /// Whether it replies with an error.
    pub fails: bool,
}

/// What a caller does; times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Waits for the response.
    Waits,
    /// Leaves after that time.
    Leaves(u64),
    /// Polls once, does nothing for that time, and leaves.
    PollsOnce(u64),
    /// Polls once, does nothing for that time, and then waits.
    Idles(u64),
}

/// A fault: of the node of that number, where there is one. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next call of a node meets it.
    Next(usize, Mishap),
    /// Its replies take up to so long.
    Slow(usize, u64),
    /// It does nothing for so long.
    Freezes(usize, u64),
    /// All connections to it end.
    Cut(usize),
    /// It is away for so long, and keeps its data or not.
    Restarts(usize, u64, bool),
    /// Nothing passes on the connections there are, which do not end.
    Swallows(usize),
    /// It says that it is a replica; as before Redis 7 or not.
    ReadOnly(usize, bool),
    /// It loads its data.
    Loading(usize),
    /// It has no memory left.
    OutOfMemory(usize),
    /// It runs somebody's long script.
    Busy(usize),
    /// It forgets its scripts.
    FlushScripts(usize),
    /// It has lost the others of its Cluster.
    ClusterDown(usize),
    /// The clocks of all nodes step.
    Clock(i64),
    /// It loses one of its keys.
    Evicts(usize, u8),
    /// The slot of a key moves, with all its keys.
    Moves(u8),
    /// The slot of a key begins to move: so many keys of it have.
    Migrates(u8, usize),
    /// The password changes.
    Password,
    /// It is lost for good, and a replica takes over that has its data or not.
    FailsOver(usize, bool),
    /// The connections there are lead to a replica from now on; new ones lead to the primary.
    Demoted(usize, bool),
}

/// What a single call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The connection ends before it runs.
    CutBefore,
    /// The connection ends after it ran.
    CutAfter,
    /// The connection ends after a part of the reply.
    Half,
    /// A part of the reply comes so many milliseconds later.
    Pause(u64),
    /// A reply comes before it that is to nothing.
    Stray,
    /// Bytes come before it that are a reply to nothing.
    StrayBytes,
    /// The reply comes so many milliseconds later.
    Late(u64),
}
