//! Merging with headers that an inner layer or an upstream has set, so that clients see the stricter limit.
//!
//! `RateLimit` and `RateLimit-Policy` of this draft are merged as one line. All other forms are only read: older drafts
//! (`RateLimit: limit=10, remaining=4, reset=7`, `RateLimit-Remaining`), and `X-RateLimit-*` of any kind. If our limit
//! is stricter, these headers are removed. Otherwise they do not change, and our headers are left out.

use std::cmp::Reverse;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
#[cfg(feature = "merge-headers")]
use sfv::{BareItem, Item, List, ListEntry, Parser};

pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// From this number on, a reset is Unix time, because no window is that many seconds long.
const UNIX_TIME: u64 = 1_000_000_000;

/// Promises of a response's earlier headers. Unreadable headers promise nothing.
pub(super) struct Earlier {
    /// Fewest units left, and most seconds until there are more.
    left: u64,
    wait: u64,
    has_list: bool,
    has_others: bool,
    /// `true` if they are of this draft, and have none of our policies' names.
    pub(super) are_lists: bool,
}

#[inline]
pub(super) fn is_of_limit(name: &HeaderName) -> bool {
    // Checked first, because all names of each response are compared, and most begin otherwise.
    name.as_str().starts_with(['r', 'x']) && (name == RETRY_AFTER || suffix(name).is_some())
}

#[inline]
fn suffix(name: &HeaderName) -> Option<&str> {
    ["ratelimit", "x-ratelimit", "x-rate-limit"].iter().find_map(|prefix| name.as_str().strip_prefix(prefix))
}

fn is_list(name: &HeaderName) -> bool {
    name == RATELIMIT || name == RATELIMIT_POLICY
}

impl Earlier {
    pub(super) fn parse(headers: &HeaderMap, now: u64, is_ours: impl Fn(&[u8]) -> bool) -> Self {
        let mut earlier = Self { left: u64::MAX, wait: 0, has_list: false, has_others: false, are_lists: true };
        let mut has_left = false;
        for (name, value) in headers {
            let Some(suffix) = suffix(name).filter(|_| !is_empty(value)) else { continue };
            let says_left = earlier.read(name, value, now);
            if is_list(name) {
                let required = if name == RATELIMIT { "r" } else { "q" };
                let has_ours = value.as_bytes().split(|byte| *byte == b'"').any(&is_ours);
                earlier.has_list |= name == RATELIMIT;
                earlier.are_lists &= is_of_this_draft(value.as_bytes(), required) && !has_ours;
            } else {
                has_left |= says_left;
                earlier.has_others |= says_left || suffix.contains("limit") || suffix.contains("reset");
            }
        }
        // The headers have a limit, but not its remaining units. If our limit is used up, too, it is stricter, because
        // it says for how long.
        if earlier.has_others && !has_left {
            earlier.left = 0;
        }
        earlier
    }

    /// Returns `true` if the value says how much is left. Numbers in quoted names can only make the result stricter.
    fn read(&mut self, header: &HeaderName, value: &HeaderValue, now: u64) -> bool {
        let mut has_left = false;
        for part in value.as_bytes().split(|byte| matches!(byte, b',' | b';')) {
            let part = str::from_utf8(part).unwrap_or_default().to_ascii_lowercase();
            let (name, number) = part.split_once('=').unwrap_or((header.as_str(), &part));
            let (name, number) = (name.trim(), number.trim().parse::<u64>());
            if name == "r" || name.contains("remaining") || header.as_str().contains("remaining") {
                has_left = true;
                self.left = self.left.min(number.unwrap_or(0));
            } else if name == "t" || name.contains("reset") {
                let seconds = number.unwrap_or(u64::MAX);
                self.wait = self.wait.max(if seconds < UNIX_TIME { seconds } else { seconds.saturating_sub(now) });
            }
        }
        has_left
    }

    pub(super) fn promise_more(&self, left: u64, wait: u64) -> bool {
        (left, Reverse(wait)) < (self.left, Reverse(self.wait))
    }

    /// Returns `false` if clients would read only our members, in place of another form.
    pub(super) fn take_members(&self) -> bool {
        self.are_lists && (self.has_list || !self.has_others)
    }

    pub(super) fn remove(&self, headers: &mut HeaderMap, writes_lists: bool, writes_legacy: bool) {
        if !writes_lists || !self.are_lists {
            headers.remove(RATELIMIT);
            headers.remove(RATELIMIT_POLICY);
        }
        if writes_legacy || self.has_others {
            let is_other = |name: &&HeaderName| suffix(name).is_some() && !is_list(name);
            let others: Vec<HeaderName> = headers.keys().filter(is_other).cloned().collect();
            for name in others {
                headers.remove(name);
            }
        }
    }
}

pub(super) fn merge(headers: &mut HeaderMap, name: HeaderName, ours: &HeaderValue, first: bool) {
    let mut values: Vec<&[u8]> =
        headers.get_all(&name).iter().filter(|value| !is_empty(value)).map(HeaderValue::as_bytes).collect();
    let place = if first { 0 } else { values.len() };
    values.insert(place, ours.as_bytes());
    let joined = HeaderValue::from_bytes(&values.join(&b", "[..]));
    headers.insert(name, joined.expect("header values joined by a comma are a header value"));
}

fn is_empty(value: &HeaderValue) -> bool {
    value.as_bytes().trim_ascii().is_empty()
}

#[cfg(not(feature = "merge-headers"))]
fn is_of_this_draft(line: &[u8], _: &str) -> bool {
    line.trim_ascii_start().starts_with(b"\"")
}

#[cfg(feature = "merge-headers")]
fn is_of_this_draft(line: &[u8], required: &str) -> bool {
    let Ok(list) = Parser::new(line).parse::<List>() else { return false };
    list.iter().all(|member| matches!(member, ListEntry::Item(item) if is_member(item, required)))
}

#[cfg(feature = "merge-headers")]
fn is_member(item: &Item, required: &str) -> bool {
    let are_whole = |name: &str| item.params.get(name).is_none_or(is_whole);
    let has_units = item.params.get(required).is_some_and(is_whole);
    item.bare_item.as_string().is_some() && has_units && are_whole("t") && are_whole("w")
}

#[cfg(feature = "merge-headers")]
fn is_whole(value: &BareItem) -> bool {
    value.as_integer().is_some_and(|number| i64::from(number) >= 0)
}
