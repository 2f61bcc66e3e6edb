//! Headers beside those an inner layer or an upstream has set: never loosened, never dropped.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};

use crate::headers::{LIMIT, RATELIMIT, REMAINING, RESET};

/// Adds members to a List field, as one line; `first` puts them before those that are there.
pub(crate) fn merge(headers: &mut HeaderMap, name: HeaderName, ours: HeaderValue, first: bool) {
    if !headers.contains_key(&name) {
        headers.insert(name, ours);
        return;
    }
    let mut values: Vec<&[u8]> = lines(headers, name.clone()).map(HeaderValue::as_bytes).collect();
    let place = if first { 0 } else { values.len() };
    values.insert(place, ours.as_bytes());
    let joined = HeaderValue::from_bytes(&values.join(&b", "[..]));
    headers.insert(name, joined.expect("header values joined by a comma are a header value"));
}

/// Whether `ours` is less than what any header leaves that is there already.
///
/// Headers that cannot be read, or tell a limit and not what is left of it, count as the stricter
/// ones: they stay as they are.
pub(crate) fn is_stricter(headers: &HeaderMap, ours: u64) -> bool {
    let fields = lines(headers, RATELIMIT).map(left_of_field);
    let legacy = lines(headers, REMAINING).map(|value| value.to_str().ok()?.trim().parse().ok());
    let told = !headers.contains_key(REMAINING) && (headers.contains_key(LIMIT) || headers.contains_key(RESET));
    !told && fields.chain(legacy).all(|theirs: Option<u64>| theirs.is_some_and(|theirs| ours < theirs))
}

/// The lines of a field that say anything.
fn lines(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &HeaderValue> {
    headers.get_all(name).iter().filter(|value| !value.as_bytes().trim_ascii().is_empty())
}

/// The least `r` of a `RateLimit` field.
fn left_of_field(value: &HeaderValue) -> Option<u64> {
    let list = Parser::new(value.as_bytes()).parse::<List>().ok()?;
    let left = list.iter().filter_map(|member| match member {
        ListEntry::Item(item) => match item.params.get("r") {
            Some(BareItem::Integer(left)) => u64::try_from(i64::from(*left)).ok(),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    });
    left.min()
}
