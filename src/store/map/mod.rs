//! The bounded map of this process: what all stores keep that find something by its counter.
//!
//! # What it bounds
//!
//! How many entries there are. A map has a capacity, and [`Shards`] divide it evenly among at most 64 parts, each
//! behind a lock of its own. Bits of an entry's hash pick its part, so a part may be full a little before the map
//! is. The room of a part is kept by its [`Table`]: it is never larger than that room needs, whatever comes and
//! goes.
//!
//! # What it evicts
//!
//! Nothing by itself, and nothing by a timer. A table is due when it is full, or when it has twice as many entries as the
//! last sweep left: before one more is added, its store [sweeps](Table::sweep) out idle entries.
//! The store decides what happens to a table that is still full, by the value of its entries: the
//! memory store evicts by rank, and the deny cache and the lease store keep what they have and do without the new one.
//!
//! # What it costs
//!
//! To find an entry takes one lock and one probe of the table of one part, and allocates nothing. A sweep looks at
//! all entries of one part. As long as it frees half of them, it is amortised over as many inserts. Where sweeps of a
//! full part free nothing, the memory store evicts a share of it and the deny cache waits before it sweeps again; the
//! lease store sweeps for each new key then, which is 156 entries of a part with their default capacity.
//! Memory for entries is allocated as they come, and kept.
//!
//! # What finds an entry
//!
//! Hashes with random keys of their own for each map, so that no client can make entries collide or choose
//! their part: a [`Fingerprint`] identifies counters without their text; a [`CounterHasher`] is for
//! entries that keep the text and compare it.

mod hash;
mod shards;
mod table;

pub(super) use hash::{CounterHasher, Fingerprint, Fingerprints, TAIL};
pub(super) use shards::{Locked, Shards};
pub(super) use table::{MapEntry, Table};
