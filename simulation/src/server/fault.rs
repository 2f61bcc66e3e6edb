//! What is the matter with a node.

/// Faults of a node, which last until they are taken back. By default it has none.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Faults {
    /// It is a replica, and writes nothing.
    pub read_only: Option<ReadOnly>,
    /// It reads its data from disk, and does next to nothing else.
    pub loading: bool,
    /// It has no memory for what may grow.
    pub out_of_memory: bool,
    /// The password of its only user, `default`. Connections that are logged in stay so.
    pub password: Option<String>,
    /// It runs a script for too long, and does next to nothing else.
    pub busy: bool,
    /// None of its Cluster has the slot of any key.
    pub cluster_down: bool,
}

/// How a replica says so when a script writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnly {
    /// As an error of the script, as up to Redis 6.
    Old,
    /// As an error of its own, as from Redis 7 on.
    New,
}

/// The errors of a node as a whole.
pub(super) mod texts {
    pub(crate) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
    pub(crate) const LOADING: &str = "LOADING Redis is loading the dataset in memory";
    pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    pub(crate) const BUSY: &str =
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    pub(crate) const NO_AUTH: &str = "NOAUTH Authentication required.";
    pub(crate) const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";
    pub(crate) const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
    pub(crate) const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
    pub(crate) const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
    pub(crate) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";
    pub(crate) const NO_INTEGER: &str = "ERR value is not an integer or out of range";
    pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    pub(crate) const SYNTAX: &str = "ERR syntax error";
}
