//! Keys from the value of a cookie.
//!
//! RFC 6265 leaves open how servers read cookies. Servers differ in which of several cookies they read, in whether they
//! decode names and values, and in what they drop as malformed (a pair, or a whole line that is not ASCII). The key is
//! a value only if all servers read that value. Otherwise the key is ambiguous, so that a client cannot be counted by
//! one value and served by another.

use std::borrow::Cow;

use http::header::COOKIE;
use http::request::Parts;
use percent_encoding::percent_decode;

use super::extracted::Ambiguous;
use super::reading::{Choices, Pick, Value, lines, same};

pub(super) fn cookie_value<'a>(choices: &'a Choices, name: &'a str, parts: &'a Parts) -> Value<'a> {
    let all = || named(parts, name.as_bytes());
    let form = |found: CookiePair<'a>| found.value.map(|value| choices.form(value));
    let picked =
        if choices.pick == Pick::Same { None } else { choices.pick.one_of(all()).filter(CookiePair::is_seen_by_all) };
    let value = picked.map_or_else(|| same(all().map(form)), |found| Ok(Some(form(found))))?;
    value.map(|value| value.ok_or(Ambiguous)).transpose()
}

struct CookiePair<'a> {
    /// In normal form. `None` if servers read it in different ways.
    value: Option<Cow<'a, [u8]>>,
    /// Undecoded. `None` if there is only the name.
    raw: Option<&'a [u8]>,
    has_name: bool,
    line: &'a [u8],
}

/// The `cookie` crate is not used, because it would hide all cookies of a line if one is not UTF-8.
fn named<'a>(parts: &'a Parts, name: &'a [u8]) -> impl Iterator<Item = CookiePair<'a>> {
    lines(&parts.headers, COOKIE).flat_map(move |line| {
        let pairs = line.split(|byte| *byte == b';');
        pairs.filter_map(move |pair| CookiePair::read(line, pair, name))
    })
}

impl<'a> CookiePair<'a> {
    fn read(line: &'a [u8], pair: &'a [u8], name: &[u8]) -> Option<Self> {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (found, raw) = equals.map_or((pair, None), |equals| (&pair[..equals], Some(&pair[equals + 1..])));
        let is =
            |found: &[u8]| found == name || found.contains(&b'%') && percent_decode(found).eq(name.iter().copied());
        let is_certain = is(found.trim_ascii());
        (is_certain || is(in_ascii(found))).then(|| {
            let has_name = found.strip_suffix(name).is_some_and(|before| before.iter().all(|byte| *byte == b' '));
            let value = if is_certain { normal(raw.unwrap_or_default().trim_ascii()) } else { None };
            CookiePair { value, raw, has_name, line }
        })
    }

    fn is_seen_by_all(&self) -> bool {
        let Some(raw) = self.raw.map(<[u8]>::trim_ascii_end) else { return false };
        let may_stand = |byte: &u8| matches!(byte, b'!'..=b'~' | b' ') && !b"\"\\".contains(byte);
        let is_text = || self.line.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        let is_value = !raw.starts_with(b" ") && unquoted(raw).iter().all(may_stand);
        self.has_name && is_value && is_text() && percent_decode(raw).decode_utf8().is_ok()
    }
}

/// Returns the form that does not depend on the order in which quotes, white space and percent-encoding are removed.
fn normal(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    // Some servers trim white space of any script.
    str::from_utf8(raw).ok().filter(|text| text.trim() == *text)?;
    let inner = unquoted(raw);
    let has_quotes = inner.len() < raw.len();
    // Some servers drop a quote that stands alone, and read a backslash in quotes as an escape.
    let is_unclear = if has_quotes { inner.contains(&b'\\') } else { raw.starts_with(b"\"") || raw.ends_with(b"\"") };
    if is_unclear {
        return None;
    }
    let decoded = Cow::from(percent_decode(inner));
    str::from_utf8(&decoded).ok()?;
    Some(match decoded {
        Cow::Borrowed(decoded) => Cow::Borrowed(bare(decoded)),
        Cow::Owned(decoded) if bare(&decoded).len() < decoded.len() => Cow::Owned(bare(&decoded).to_vec()),
        Cow::Owned(decoded) => Cow::Owned(decoded),
    })
}

pub(super) fn bare(mut decoded: &[u8]) -> &[u8] {
    loop {
        let inner = unquoted(decoded.trim_ascii()).trim_ascii();
        if inner.len() == decoded.len() {
            return inner;
        }
        decoded = inner;
    }
}

fn in_ascii(mut name: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | 0x80.., rest @ ..] | [rest @ .., b' ' | b'\t' | 0x80..] = name {
        name = rest;
    }
    name
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}
