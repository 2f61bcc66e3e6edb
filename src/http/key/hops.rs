//! The hops that proxies list in headers, the nearest first.
//!
//! Whatever a client sends is to the left of what proxies append. So lines are read from their right end, as bytes,
//! and only as far as proxies are trusted: nothing on the left can hide, change or slow down what is to the right of
//! it. No crate reads these headers like that: `forwarded-header-value` refuses a whole line for one malformed hop,
//! and `rfc7239` splits at commas within quotes.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderMap, HeaderName};

use super::forwarded;
use super::node::address;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The longest chain of proxies that is read; elements of a list count even if they are empty.
const MOST_HOPS: usize = 64;

/// The longest hop that is read, in bytes: enough for all parameters of `Forwarded`.
const LONGEST_HOP: usize = 1024;

/// The header that is read: only one, as a client can send each one that a proxy does not overwrite.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

/// Returns whether a request has a header in which proxies name the client.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(FORWARDED)
}

/// Returns the hops of `X-Forwarded-For`; `None` is a malformed one.
pub(super) fn x_forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    hops(headers, &X_FORWARDED_FOR, last_comma, address)
}

/// Returns the hops of `Forwarded`; `None` is one that is malformed or hides its address.
pub(super) fn forwarded(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    hops(headers, &FORWARDED, last_comma_outside_quotes, forwarded::address)
}

/// Returns the only hop of a header with a single value; `None` if it is malformed or there are several.
pub(super) fn single(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = Option<IpAddr>> {
    let mut lines = headers.get_all(name).iter();
    let only = lines.next().map(|line| Some(line.as_bytes().trim_ascii()).filter(|text| text.len() <= LONGEST_HOP));
    let more = lines.next().is_some();
    only.map(|value| if more { None } else { read(value?, address) }).into_iter()
}

/// Returns the hops of a header, as `split` returns the elements of its lists and `parse` reads each.
fn hops<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    split: fn(&[u8]) -> Option<usize>,
    parse: fn(&str) -> Option<IpAddr>,
) -> impl Iterator<Item = Option<IpAddr>> + use<'a> {
    let lines = headers.get_all(name).iter().rev();
    lines
        .flat_map(move |line| FromRight { rest: Some(line.as_bytes()), split })
        .take(MOST_HOPS)
        .filter(|element| *element != Some(b""))
        .map(move |element| read(element?, parse))
}

fn read(text: &[u8], parse: fn(&str) -> Option<IpAddr>) -> Option<IpAddr> {
    parse(std::str::from_utf8(text).ok()?)
}

/// The elements of a list, the right-most first; `None` is one that is too long.
struct FromRight<'a> {
    /// What is left of the line; `None` at its end, or after an element that is too long.
    rest: Option<&'a [u8]>,
    /// Finds the comma before the last element.
    split: fn(&[u8]) -> Option<usize>,
}

impl<'a> Iterator for FromRight<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let skipped = rest.len().saturating_sub(LONGEST_HOP);
        let element = match (self.split)(&rest[skipped..]) {
            Some(comma) => {
                self.rest = Some(&rest[..skipped + comma]);
                &rest[skipped + comma + 1..]
            }
            None if skipped == 0 => rest,
            None => return Some(None),
        };
        Some(Some(element.trim_ascii()))
    }
}

fn last_comma(text: &[u8]) -> Option<usize> {
    text.iter().rposition(|byte| *byte == b',')
}

/// Finds the last comma that is not in a quoted string. From the right a quote is escaped by what is before it.
fn last_comma_outside_quotes(text: &[u8]) -> Option<usize> {
    let mut quoted = false;
    for (at, byte) in text.iter().enumerate().rev() {
        match byte {
            b'"' if !(quoted && is_escaped(&text[..at])) => quoted = !quoted,
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether a byte within quotes is escaped, by an odd number of backslashes before it.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}
