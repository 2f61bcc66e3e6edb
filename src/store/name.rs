//! The names under which databases keep the states of counters.
//!
//! A name holds all that makes one counter's state differ from another's: the key that identifies the client, the policy,
//! the format of states, the algorithm, the window and its tick. The limit is not part of it, so a changed limit keeps the
//! units used; a changed window or algorithm starts with fresh state, and no state is ever read as another's.

use super::Counter;
use crate::core::FORMAT;

/// Returns the parts of the name of a counter's state: `{<key>}:<policy>:<shape>`.
#[inline]
pub(in crate::store) fn name(counter: &Counter) -> [&[u8]; 4] {
    [b"{", counter.key().as_bytes(), b"}:", counter.limit().state.as_bytes()]
}

/// Returns the parts of the name of the ban of a counter's key: `{<key>}:<policy>:1b`. No algorithm has this letter, and
/// neither quota nor ban is part of the name.
pub(in crate::store) fn ban_name(counter: &Counter) -> [&[u8]; 7] {
    let (key, policy) = (counter.key().as_bytes(), counter.policy().as_bytes());
    [b"{", key, b"}:", policy, b":", FORMAT.as_bytes(), b"b"]
}
