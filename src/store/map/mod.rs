//! The bounded map in which stores find entries by counter.
//!
//! # Bound
//!
//! [`Shards`] divide the capacity of a map evenly among at most 64 shards, each behind a lock. Bits of an entry's hash
//! select its shard, so a shard may be full slightly before the map is. A [`Table`] is never larger than its capacity
//! needs, however often entries are added and removed.
//!
//! # Eviction
//!
//! Nothing is evicted by itself or by a timer. A table is due when it is full, or when it has twice as many entries as
//! the last sweep left: before one more is added, its store [sweeps](Table::sweep) out idle entries. If the table is
//! still full, the store decides by the value of its entries: the memory store evicts by rank, and the deny cache and
//! the lease store keep what they have and do without the new entry.
//!
//! # Cost
//!
//! Finding an entry takes one lock and one probe of the table of one shard, and allocates nothing. A sweep visits all
//! entries of one shard. As long as it frees half of them, it is amortised over as many inserts. If sweeps of a full
//! shard free nothing, the memory store evicts a share of it, and the deny cache waits before it sweeps again. The
//! lease store sweeps for each new key then: 156 entries of a shard at the default capacity. Memory for entries is
//! allocated as they are added, and kept.
//!
//! # Hashes
//!
//! Each map has hashes with random keys, so that no client can make entries collide or choose their shard. A
//! [`Fingerprint`] identifies counters without their text. A [`CounterHasher`] is for entries that keep the text and
//! compare it.

mod hash;
mod shards;
mod table;

pub(super) use hash::{CounterHasher, Fingerprint, Fingerprints, TAIL};
pub(super) use shards::Shards;
pub(super) use table::{MapEntry, Table};
