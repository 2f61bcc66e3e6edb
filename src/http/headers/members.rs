//! Reads the List fields of others, so that they can be merged member by member.
//!
//! Only members of this draft are kept. Others, such as those of an older draft, are dropped, as a line in two syntaxes is
//! valid in neither: clients would ignore all of it.

use std::borrow::Cow;

use http::HeaderValue;
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parser};

/// Returns the members of this draft in a line, those with the `required` parameter; `None` if there are none.
pub(super) fn members<'a>(line: &'a [u8], required: &str) -> Option<Cow<'a, [u8]>> {
    let mut list = Parser::new(line).parse::<List>().ok()?;
    let all = list.len();
    list.retain(|member| matches!(member, ListEntry::Item(item) if is_of_this_draft(item, required)));
    if list.len() == all { Some(line.into()) } else { Some(list.serialize()?.into_bytes().into()) }
}

/// Returns what each line of `RateLimit` leaves; `None` for one that cannot be parsed, unless ours `is_written` in its
/// place.
pub(super) fn left<'a>(
    lines: impl Iterator<Item = &'a HeaderValue>,
    is_written: bool,
    _: bool,
) -> impl Iterator<Item = Option<u64>> {
    lines.map(left_of_field).filter(move |left| left.is_some() || !is_written)
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
