//! A simulated Redis.

/// A script call that a server ran.
#[derive(Clone, Debug)]
pub struct Call {
    /// The server's time, in µs since the epoch.
    pub at_us: u64,
    /// `KEYS`.
    pub keys: Vec<Vec<u8>>,
    /// `ARGV`.
    pub args: Vec<Vec<u8>>,
    /// What the script returned.
    pub reply: Vec<u8>,
}
