//! What goes wrong.

use fastrand::Rng;

use super::Setting;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next decision on a node meets this.
    Next(usize, Mishap),
    /// A node's answers take up to so many milliseconds.
    Slow(usize, u64),
    /// A node does nothing for so many milliseconds.
    Freezes(usize, u64),
    /// All connections to a node end.
    Cut(usize),
    /// A node is away for so many milliseconds; it keeps its memory, or does not.
    Restarts(usize, u64, bool),
    /// Nothing passes on the connections there are, and nobody is told.
    Swallows(usize),
    /// A node says that it is a replica; as before Redis 7 does.
    ReadOnly(usize, bool),
    /// A node says that it loads its data.
    Loading(usize),
    /// A node has no memory left.
    OutOfMemory(usize),
    /// A node runs somebody's long script.
    Busy(usize),
    /// A node forgets its scripts.
    FlushScripts(usize),
    /// A node of a Cluster that has lost others.
    ClusterDown(usize),
    /// The clocks of all nodes step by so many milliseconds.
    Clock(i64),
    /// A node loses the key that comes first after this.
    Evicts(usize, u8),
    /// The slot of a key that is there moves to another node, with all its keys.
    Moves(u8),
    /// The slot of a key that is there begins to move: this many keys of it have.
    Migrates(u8, usize),
    /// The password changes.
    Password,
    /// A primary is lost for good, and a replica takes over; it has what that had in memory, or nothing.
    FailsOver(usize, bool),
    /// What the connections there are lead to becomes a replica, as before Redis 7 or not; new ones lead to the
    /// primary.
    Demoted(usize, bool),
}

/// What a single decision meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The connection ends before it runs.
    CutBefore,
    /// The connection ends after it ran.
    CutAfter,
    /// The connection ends after a part of the answer.
    Half,
    /// Part of the answer comes much later.
    Pause(u64),
    /// An answer comes that nothing was asked for.
    Stray,
    /// Bytes come that nothing was asked for.
    StrayBytes,
    /// The answer comes only after so many milliseconds.
    Late(u64),
}

impl Setting {
    /// Something that goes wrong.
    pub(super) fn fault(&self, rng: &mut Rng) -> Fault {
        let node = rng.usize(..self.nodes);
        let is_cluster = self.nodes > 1;
        if self.loses_nothing {
            return self.delay(rng, node);
        }
        if self.only_moves {
            return match rng.u8(..8) {
                0 => Fault::FlushScripts(node),
                1..=3 => Fault::Moves(rng.u8(..)),
                _ => Fault::Migrates(rng.u8(..), rng.usize(..3)),
            };
        }
        match rng.u8(..if is_cluster { 31 } else { 23 }) {
            0..=5 => Fault::Next(node, Mishap::draw(rng)),
            6 => Fault::Slow(node, rng.u64(1..300)),
            7 => Fault::Freezes(node, rng.u64(1..2_000)),
            8 => Fault::Cut(node),
            9 | 10 => Fault::Restarts(node, rng.u64(..1_500), rng.bool()),
            11 => Fault::Swallows(node),
            12 | 13 => Fault::ReadOnly(node, rng.bool()),
            14 => Fault::Loading(node),
            15 => Fault::OutOfMemory(node),
            16 => Fault::Busy(node),
            17 => Fault::FlushScripts(node),
            18 => Fault::Clock(rng.i64(-5_000..5_000)),
            19 => Fault::Evicts(node, rng.u8(..)),
            20 => Fault::Password,
            21 => Fault::Clock(rng.i64(-200..200)),
            22 => Fault::Demoted(node, rng.bool()),
            23..=25 => Fault::Moves(rng.u8(..)),
            26..=28 => Fault::Migrates(rng.u8(..), rng.usize(..3)),
            29 => Fault::ClusterDown(node),
            _ => Fault::FailsOver(node, rng.bool()),
        }
    }

    /// Something that takes time, and loses nothing.
    fn delay(&self, rng: &mut Rng, node: usize) -> Fault {
        match rng.u8(..if self.nodes > 1 { 9 } else { 7 }) {
            0 | 1 => Fault::Next(node, Mishap::Late(rng.u64(1..2_000))),
            2 => Fault::Next(node, Mishap::Pause(rng.u64(1..400))),
            3 => Fault::Slow(node, rng.u64(1..300)),
            4 | 5 => Fault::Freezes(node, rng.u64(1..2_000)),
            6 => Fault::FlushScripts(node),
            _ => Fault::Moves(rng.u8(..)),
        }
    }
}

impl Mishap {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..7) {
            0 => Self::CutBefore,
            1 => Self::CutAfter,
            2 => Self::Half,
            3 => Self::Pause(rng.u64(1..400)),
            4 => Self::Stray,
            5 => Self::StrayBytes,
            _ => Self::Late(rng.u64(1..2_000)),
        }
    }
}
