//! The names under which databases keep the states of counters.
//!
//! A name holds all that makes one counter's state differ from another's: the key that identifies the client, the policy,
//! the format of states, the algorithm, the window and its tick. The limit is not part of it, so a changed limit keeps the
//! units used; a changed window or algorithm starts with fresh state, and no state is ever read as another's.

use super::Counter;

/// Returns the parts of the name of a counter's state: `{<key>}:<policy>:<shape>`.
#[inline]
pub(in crate::store) fn name(counter: &Counter) -> [&[u8]; 4] {
    [b"{", counter.key().as_bytes(), b"}:", counter.limit().state.as_bytes()]
}
