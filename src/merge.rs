//! Headers beside those an inner layer or an upstream has set: never loosened, never dropped.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};

use crate::Decision;
use crate::headers::{RATELIMIT, REMAINING};

/// Adds members to a List field, as one line; `first` puts them before those that are there.
pub(crate) fn merge(headers: &mut HeaderMap, name: HeaderName, ours: HeaderValue, first: bool) {
    if !headers.contains_key(&name) {
        headers.insert(name, ours);
        return;
    }
    let mut values: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    let place = if first { 0 } else { values.len() };
    values.insert(place, ours.as_bytes());
    let joined = HeaderValue::from_bytes(&values.join(&b", "[..]));
    headers.insert(name, joined.expect("header values joined by a comma are a header value"));
}

/// Whether what is decided here leaves fewer units than what the headers say already.
///
/// Headers that cannot be read count as the stricter ones: they stay as they are.
pub(crate) fn is_stricter(headers: &HeaderMap, decision: &Decision) -> bool {
    let Some(ours) = decision.binding().map(crate::Outcome::remaining) else { return false };
    let fields = headers.get(RATELIMIT).map(left_of_field);
    let legacy = headers.get(REMAINING).map(|value| value.to_str().ok()?.trim().parse().ok());
    fields.or(legacy).is_none_or(|theirs: Option<u64>| theirs.is_some_and(|theirs| ours < theirs))
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
