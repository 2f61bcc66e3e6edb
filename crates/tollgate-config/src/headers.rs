//! Headers of requests: their names and values in files, and how they are read from requests.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use toml::Spanned;

use super::error::{At, Fault};

#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { header = \"x-priority\", value = \"high\" }")]
pub struct Critical {
    header: Spanned<String>,
    value: Spanned<String>,
}

impl Critical {
    pub fn checked(&self) -> Result<OnlyValue, Fault> {
        let header = header_name("critical", self.header.get_ref()).at(&self.header)?;
        let value = header_value("critical", self.value.get_ref()).at(&self.value)?.to_owned();
        Ok(OnlyValue { header, value })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct OnlyValue {
    header: HeaderName,
    value: String,
}

impl OnlyValue {
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        only(headers, &self.header) == Some(self.value.as_bytes())
    }
}

pub(super) fn header_name(what: &str, text: &str) -> Result<HeaderName, String> {
    let wrong = |_| format!("{what} has {text:?} for a name: use one such as x-api-key");
    HeaderName::from_bytes(text.as_bytes()).map_err(wrong)
}

pub(super) fn header_value<'a>(what: &str, text: &'a str) -> Result<&'a str, String> {
    if HeaderValue::from_bytes(text.as_bytes()).is_ok() && trimmed(text.as_bytes()) == text.as_bytes() {
        return Ok(text);
    }
    let advice = "remove white space around it, and control characters";
    Err(format!("{what} has {text:?}, which cannot be the value of a header: {advice}"))
}

pub(super) fn read_header(what: &str, text: &str) -> Result<HeaderName, String> {
    match text.split_once(':') {
        Some(("header", name)) => header_name(&format!("{what} header:NAME"), name),
        _ => Err(format!("{what} {text:?} is unknown: use header:NAME")),
    }
}

pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = lines(headers, name);
    let first = lines.next()?;
    lines.all(|line| line == first).then_some(first)
}

/// The error is the largest number, if lines or comma-separated values differ or are not digits.
pub(super) fn units_in(parts: &Parts, header: &HeaderName, min: u64) -> Result<u64, u64> {
    let (mut said, mut is_certain) = (None, true);
    for value in lines(&parts.headers, header).flat_map(|line| line.split(|byte| *byte == b',')) {
        let units = digits(value);
        is_certain &= units.is_some() && (said.is_none() || said == units);
        said = said.max(units);
    }
    let units = said.unwrap_or(1).max(min);
    if is_certain { Ok(units) } else { Err(units) }
}

fn digits(value: &[u8]) -> Option<u64> {
    let text = str::from_utf8(trimmed(value)).ok().filter(|text| !text.is_empty())?;
    // A number that overflows is above any capacity.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().unwrap_or(u64::MAX))
}

fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).iter().map(|line| trimmed(line.as_bytes()))
}

/// HTTP/2 keeps the white space around a value, and HTTP/1 servers drop it:
/// <https://www.rfc-editor.org/rfc/rfc9110#section-5.5>.
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}
