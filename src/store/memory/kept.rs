//! The state of a counter in 16 bytes.
//!
//! A [`State`] comes in and the same one goes out: packing loses nothing, which the tests compare. Levels and windows,
//! whose numbers are below 2^52, are packed without an allocation, unless a window's counts have more than 32 bits;
//! those, logs and slots are boxed. A time leaves its two lowest bits to the kind, and one kind is always set, so the word is
//! never zero and the enum needs no tag of its own.

use std::borrow::Cow;
use std::num::NonZeroU64;

use crate::core::algorithm::State;

/// The state of a counter, in 16 bytes; what needs more has an allocation of its own.
#[derive(Debug)]
pub(super) enum Kept {
    /// A level, or a window whose counts have 32 bits at most.
    Small {
        /// A time, below 2^62, and in the lowest bits one of [`LEVEL`] and [`WINDOW`].
        time: NonZeroU64,
        /// The amount of a level; of a window the count, and above it the previous one.
        amounts: u64,
    },
    /// Any state.
    Large(Box<State>),
}

/// The kind of a [`State::Level`], in the two lowest bits of a time.
const LEVEL: u64 = 1;
/// The kind of a [`State::Window`], in the two lowest bits of a time.
const WINDOW: u64 = 2;

/// The largest count that is kept in half of [`Kept::Small`]'s amounts.
const COUNT: u64 = (1 << 32) - 1;

impl Kept {
    /// Packs a state, or boxes one that cannot be packed.
    pub(super) fn new(state: State) -> Self {
        small(&state).unwrap_or_else(|| Kept::Large(Box::new(state)))
    }

    /// Replaces the state; an allocation that is there is used again where the new state needs one, too.
    #[inline]
    pub(super) fn set(&mut self, state: State) {
        match (small(&state), &mut *self) {
            (Some(small), kept) => *kept = small,
            (None, Kept::Large(kept)) => **kept = state,
            (None, kept) => *kept = Kept::Large(Box::new(state)),
        }
    }

    /// Returns the state as it was given.
    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        match self {
            Kept::Small { time, amounts } => Cow::Owned(read(time.get(), *amounts)),
            Kept::Large(state) => Cow::Borrowed(state),
        }
    }
}

/// Packs a state; `None` for one that needs an allocation.
#[inline]
fn small(state: &State) -> Option<Kept> {
    let (time, kind, amounts) = match *state {
        State::Level { time, amount } => (time, LEVEL, amount),
        State::Window { time, count, previous } if count.max(previous) <= COUNT => {
            (time, WINDOW, previous << 32 | count)
        }
        _ => return None,
    };
    Some(Kept::Small { time: NonZeroU64::new(time << 2 | kind)?, amounts })
}

/// Unpacks the words of a [`Kept::Small`]: the inverse of [`small`].
#[inline]
fn read(time: u64, amounts: u64) -> State {
    if time & WINDOW == 0 {
        return State::Level { time: time >> 2, amount: amounts };
    }
    State::Window { time: time >> 2, count: amounts & COUNT, previous: amounts >> 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 7] = [
        State::Level { time: 0, amount: 0 },
        State::Level { time: (1 << 52) - 1, amount: (1 << 52) - 1 },
        State::Wide { time: (1 << 52) - 1, units: (1 << 42) - 1, parts: (1 << 41) - 1 },
        State::Window { time: 0, count: 0, previous: 0 },
        State::Window { time: (1 << 52) - 1, count: (1 << 32) - 1, previous: (1 << 32) - 1 },
        State::Window { time: 1, count: 1 << 32, previous: 0 },
        State::Window { time: 1, count: 0, previous: (1 << 48) - 1 },
    ];

    #[test]
    fn what_is_kept_is_what_was_given() {
        let log = State::Log { time: 7, units: [1, 2, 3].into() };
        let slots = State::Slots { cohorts: [(7, 1), (9, 2)].into() };
        for state in STATES.into_iter().chain([log, slots]) {
            assert_eq!(*Kept::new(state.clone()).state(), state);
            for before in STATES {
                let mut kept = Kept::new(before);
                kept.set(state.clone());
                assert_eq!(*kept.state(), state);
            }
        }
    }
}
