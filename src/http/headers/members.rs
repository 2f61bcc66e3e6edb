//! Reads the List fields of others: a line in two syntaxes is valid in neither, and clients would ignore all of it.

use sfv::{BareItem, Item, List, ListEntry, Parser};

/// Returns whether all members of a line are of this draft, with the `required` parameter.
pub(super) fn is_of_this_draft(line: &[u8], required: &str) -> bool {
    let Ok(list) = Parser::new(line).parse::<List>() else { return false };
    list.iter().all(|member| matches!(member, ListEntry::Item(item) if is_member(item, required)))
}

/// Returns whether a member is a quoted name with whole units, and with whole seconds if it has any.
fn is_member(item: &Item, required: &str) -> bool {
    let are_whole = |name: &str| item.params.get(name).is_none_or(is_whole);
    let has_units = item.params.get(required).is_some_and(is_whole);
    item.bare_item.as_string().is_some() && has_units && are_whole("t") && are_whole("w")
}

fn is_whole(value: &BareItem) -> bool {
    value.as_integer().is_some_and(|number| i64::from(number) >= 0)
}
