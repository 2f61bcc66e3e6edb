//! Arguments of commands.

use super::fault::texts::NO_INTEGER;

/// A whole number, as Redis reads one: no `+`, no zeros before it, no spaces.
pub(super) fn integer(word: &[u8]) -> Result<i64, &'static str> {
    let number: i64 = str::from_utf8(word).ok().and_then(|text| text.parse().ok()).ok_or(NO_INTEGER)?;
    if number.to_string().as_bytes() == word { Ok(number) } else { Err(NO_INTEGER) }
}

/// The keys of a call, and its arguments: `words` begin with how many keys there are.
#[allow(clippy::type_complexity, reason = "two slices of words")]
pub(super) fn keys_and_args<'a>(words: &'a [&'a [u8]]) -> Result<(&'a [&'a [u8]], &'a [&'a [u8]]), &'static str> {
    let count = integer(words[0])?;
    let rest = &words[1..];
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    rest.split_at_checked(count).ok_or("ERR Number of keys can't be greater than number of args")
}
