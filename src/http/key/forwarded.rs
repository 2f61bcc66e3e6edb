//! Parses one hop of the `Forwarded` header: <https://www.rfc-editor.org/rfc/rfc7239#section-4>.
//!
//! One element of the list comes in; its address goes out, or nothing. An element that is malformed
//! anywhere has no address: what another parser would read in it is not certain.

use std::net::IpAddr;

use super::node;

/// The characters allowed between two parameters, besides one semicolon.
const BETWEEN: [char; 3] = [';', ' ', '\t'];

/// Returns the address of `for=`, if there is exactly one and the whole hop is well-formed.
///
/// `unknown` and obfuscated names are not addresses.
pub(super) fn address(hop: &str) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = hop.trim_matches(BETWEEN);
    while !rest.is_empty() {
        let (name, value, after) = parameter(rest)?;
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
        rest = after;
    }
    node::address(found?)
}

/// Splits off the first parameter: its name, its value, and the parameters after it.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let (value, rest) = match rest.strip_prefix('"') {
        Some(rest) => quoted(rest)?,
        None => plain(rest)?,
    };
    let after = rest.trim_start_matches(BETWEEN);
    let separated = after.is_empty() || rest.trim_ascii_start().starts_with(';');
    let named = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\";,".contains(&byte));
    (separated && named).then_some((name, value, after))
}

/// Splits after a value without quotes.
fn plain(text: &str) -> Option<(&str, &str)> {
    let (value, rest) = text.split_at(text.find(BETWEEN).unwrap_or(text.len()));
    (!value.contains('"')).then_some((value, rest))
}

/// Splits at the closing quote. Escapes are not resolved: an address has none.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let closing = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closing
    })?;
    Some((&text[..end], &text[end + 1..]))
}
