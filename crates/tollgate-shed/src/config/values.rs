//! Values with their own syntax.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::fault::{At, Fault};

/// Duration in the format of `humantime`, without units of variable length.
pub(super) struct Period(pub(super) Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = "expected a duration in quotes, such as \"100ms\", \"60s\" or \"30d\"";
        let text = String::deserialize(from).map_err(|_| D::Error::custom(wrong))?;
        period(&text).map(Self).map_err(D::Error::custom)
    }
}

fn period(text: &str) -> Result<Duration, String> {
    const ADVICE: &str = "use a number and a unit, such as 100ms, 60s, 1h or 30d";
    let mut units = text.split(|other: char| !other.is_alphabetic());
    if let Some(unit) = units.find(|unit| matches!(*unit, "M" | "month" | "months" | "y" | "yr" | "year" | "years")) {
        return Err(format!("{text:?} has the unit {unit}, which differs in length: {ADVICE}"));
    }
    // The parser panics where the sum is as large as a `Duration` can be.
    let digits = text.split(|other: char| !other.is_ascii_digit()).map(str::len).max();
    if text.len() > 40 || digits > Some(11) {
        return Err(format!("a duration is too long: {ADVICE}"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{text:?} is not a duration ({error}): {ADVICE}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { header = \"x-priority\", value = \"high\" }")]
pub(super) struct Critical {
    header: Spanned<String>,
    value: Spanned<String>,
}

impl Critical {
    pub(super) fn checked(self) -> Result<TheValue, Fault> {
        let (header, value) = (self.header.get_ref(), self.value.get_ref());
        let wrong = |_| format!("critical has {header:?} for a name: use one such as x-api-key");
        let name = HeaderName::from_bytes(header.as_bytes()).map_err(wrong).at(&self.header)?;
        if HeaderValue::from_bytes(value.as_bytes()).is_err() || value.trim_ascii() != value {
            let advice = "remove white space around it, and control characters";
            let message = format!("critical has {value:?}, which cannot be the value of a header: {advice}");
            return Err(Fault::new(&self.value, message));
        }
        Ok(TheValue { header: name, value: self.value.into_inner() })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TheValue {
    header: HeaderName,
    value: String,
}

impl TheValue {
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(&self.header).iter().peekable();
        lines.peek().is_some() && lines.all(|line| line.as_bytes().trim_ascii() == self.value.as_bytes())
    }
}
