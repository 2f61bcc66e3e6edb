//! What is kept for one key.

/// The state of one counter: a time in ticks and an amount.
///
/// What they mean is the algorithm's: a window's start and its count, or the last time seen and the
/// deficit of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) time: u64,
    pub(crate) amount: u64,
}

/// What was under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// State to go on from.
    Kept,
    /// Nothing.
    Fresh,
    /// State more than a window ahead of the clock: it was set aside.
    Ahead,
    /// A value that is not ours: it was set aside. Only Redis can hold one.
    #[cfg(feature = "redis")]
    Foreign,
}

impl State {
    /// Reads the state as of `now`: none, or one that lies more than a window ahead, is a new one.
    pub(super) fn read(state: Option<&State>, now: u64, window: u64) -> (State, Found) {
        let new = State { time: now, amount: 0 };
        match state {
            None => (new, Found::Fresh),
            Some(state) if state.time > now + window => (new, Found::Ahead),
            Some(state) => (*state, Found::Kept),
        }
    }
}
