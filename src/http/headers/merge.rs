//! Merges headers with those that an inner layer or an upstream has set, so that the stricter limit is seen.
//!
//! A List field keeps only members of this draft. Others, such as those of an older draft, are dropped, as a line in
//! two syntaxes is valid in neither: clients would ignore all of it.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parser};

use super::names::{LIMIT, RATELIMIT, REMAINING, RESET};

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
/// and stay as they are. A `RateLimit` that cannot be parsed does not count if ours `is_written` in its place.
pub(super) fn is_stricter(headers: &HeaderMap, ours: u64, is_written: bool) -> bool {
    let fields = lines(headers, RATELIMIT).map(left_of_field).filter(|left| left.is_some() || !is_written);
    let legacy = lines(headers, REMAINING).map(|value| value.to_str().ok()?.trim().parse().ok());
    let lacks_remaining =
        !headers.contains_key(REMAINING) && (headers.contains_key(LIMIT) || headers.contains_key(RESET));
    !lacks_remaining && fields.chain(legacy).all(|theirs: Option<u64>| theirs.is_some_and(|theirs| ours < theirs))
}

/// Returns the lines of a field that are not empty.
fn lines(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &HeaderValue> {
    headers.get_all(name).iter().filter(|value| !value.as_bytes().trim_ascii().is_empty())
}

/// Returns the members of this draft in a line, those with the `required` parameter; `None` if there are none.
fn members<'a>(line: &'a [u8], required: &str) -> Option<Cow<'a, [u8]>> {
    let mut list = Parser::new(line).parse::<List>().ok()?;
    let all = list.len();
    list.retain(|member| matches!(member, ListEntry::Item(item) if is_of_this_draft(item, required)));
    if list.len() == all { Some(line.into()) } else { Some(list.serialize()?.into_bytes().into()) }
}

/// Returns whether a member is a quoted name with whole units, and with whole seconds if it has any.
fn is_of_this_draft(item: &Item, required: &str) -> bool {
    let are_whole = |name: &str| item.params.get(name).is_none_or(|value| whole(value).is_some());
    item.bare_item.as_string().is_some() && units(item, required).is_some() && are_whole("t") && are_whole("w")
}

/// Returns the least `r` of a `RateLimit` field, or `remaining` in the syntax of an older draft.
fn left_of_field(value: &HeaderValue) -> Option<u64> {
    if let Ok(older) = Parser::new(value.as_bytes()).parse::<Dictionary>() {
        return match older.get("remaining")? {
            ListEntry::Item(item) => whole(&item.bare_item),
            ListEntry::InnerList(_) => None,
        };
    }
    let list = Parser::new(value.as_bytes()).parse::<List>().ok()?;
    let left = list.iter().filter_map(|member| match member {
        ListEntry::Item(item) => units(item, "r"),
        ListEntry::InnerList(_) => None,
    });
    left.min()
}

/// Returns a parameter that is a whole number, not below 0.
fn units(item: &Item, name: &str) -> Option<u64> {
    item.params.get(name).and_then(whole)
}

fn whole(value: &BareItem) -> Option<u64> {
    value.as_integer().and_then(|number| u64::try_from(i64::from(number)).ok())
}
