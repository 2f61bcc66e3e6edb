//! Merges headers with those that an inner layer or an upstream has set, so that the stricter limit is seen.
//!
//! A List field stays one line. `members` decides what is kept of it, and how much room is left: with the feature
//! `merge-headers` each member is read, without it none is.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(feature = "merge-headers")]
use super::members::{left, members};
use super::names::{LIMIT, RATELIMIT, REMAINING, RESET};
#[cfg(not(feature = "merge-headers"))]
use super::unparsed::{left, members};

/// Adds members to a List field, as one line; `first` puts them before the earlier members. Of those, only members of
/// this draft are kept.
pub(super) fn merge(headers: &mut HeaderMap, name: HeaderName, ours: HeaderValue, first: bool) {
    if !headers.contains_key(&name) {
        headers.insert(name, ours);
        return;
    }
    let required = if name == RATELIMIT { "r" } else { "q" };
    let mut values: Vec<Cow<'_, [u8]>> =
        lines(headers, name.clone()).filter_map(|line| members(line.as_bytes(), required)).collect();
    let place = if first { 0 } else { values.len() };
    values.insert(place, ours.as_bytes().into());
    let joined = HeaderValue::from_bytes(&values.join(&b", "[..]));
    headers.insert(name, joined.expect("header values joined by a comma are a header value"));
}

/// Returns whether `ours` is less than what any earlier header leaves.
///
/// Earlier headers that cannot be parsed, or that have a limit but not what is left of it, count as the stricter ones
/// and stay as they are. A `RateLimit` that cannot be parsed does not count if ours `is_written` in its place; one that
/// is not read counts unless `X-RateLimit-Remaining` is beside it.
pub(super) fn is_stricter(headers: &HeaderMap, ours: u64, is_written: bool) -> bool {
    let fields = left(lines(headers, RATELIMIT), is_written, headers.contains_key(REMAINING));
    let legacy = lines(headers, REMAINING).map(|value| value.to_str().ok()?.trim().parse().ok());
    let lacks_remaining =
        !headers.contains_key(REMAINING) && (headers.contains_key(LIMIT) || headers.contains_key(RESET));
    !lacks_remaining && fields.chain(legacy).all(|theirs: Option<u64>| theirs.is_some_and(|theirs| ours < theirs))
}

/// Returns the lines of a field that are not empty.
fn lines(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &HeaderValue> {
    headers.get_all(name).iter().filter(|value| !value.as_bytes().trim_ascii().is_empty())
}

#[cfg(all(test, not(feature = "merge-headers")))]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[track_caller]
    fn merged(theirs: &[&'static str], first: bool, expected: &str) {
        let mut fields = HeaderMap::new();
        for line in theirs {
            fields.append(RATELIMIT, HeaderValue::from_static(line));
        }
        merge(&mut fields, RATELIMIT, HeaderValue::from_static("\"ours\";r=5;t=60"), first);
        assert_eq!(fields.get_all(RATELIMIT).iter().collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn lines_of_this_draft_are_kept_whole_in_one_line_with_ours() {
        merged(&["\"a\";r=1;t=9, \"b\";r=7"], false, "\"a\";r=1;t=9, \"b\";r=7, \"ours\";r=5;t=60");
        merged(&["\"a\";r=9;t=9", "\"b\";r=7"], true, "\"ours\";r=5;t=60, \"a\";r=9;t=9, \"b\";r=7");
    }

    #[test]
    fn lines_of_older_drafts_are_dropped_as_no_client_reads_two_syntaxes_in_one_field() {
        merged(&["limit=10, remaining=1, reset=9"], false, "\"ours\";r=5;t=60");
        merged(&["10;w=60", "", "  \"a\";r=1"], false, "  \"a\";r=1, \"ours\";r=5;t=60");
    }

    #[test]
    fn a_field_that_is_not_read_is_not_replaced_by_ours_unless_its_numbers_are_beside_it() {
        let field = ("ratelimit", "\"a\";r=9;t=9");
        let left = |remaining| [field, ("x-ratelimit-remaining", remaining)];
        for is_written in [true, false] {
            assert!(!is_stricter(&headers(&[field]), 5, is_written));
            assert!(is_stricter(&headers(&left("9")), 5, is_written));
            assert!(!is_stricter(&headers(&left("5")), 5, is_written));
            assert!(!is_stricter(&headers(&left("many")), 5, is_written));
        }
        assert!(is_stricter(&headers(&[]), 5, true));
        assert!(is_stricter(&headers(&[("ratelimit", "")]), 5, true));
    }
}
