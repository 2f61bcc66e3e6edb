//! The file as it is written: tables, fields and values, each with its place.
//!
//! Text comes in and is parsed once; [`Field`] and [`Table`] go out, which borrow from it and are copied freely.
//! Every method that reads a value as some type returns an error for any other type, with the field, what was
//! found, what is expected, and the line and column. So the other files of this module never handle places
//! themselves.

use std::fmt::Display;
use std::time::Duration;

use http::HeaderName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Source, shortened};
use crate::core::Error;
use crate::http::key::value::carried;

/// What a duration may be, at the end of an error.
const DURATIONS: &str = "give a number and a unit, such as 100ms, 60s, 1h or 30d";

/// A value, its name, and the file that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    /// The name in messages: that of the field, or of the elements of a list.
    pub(super) name: &'a str,
    value: &'a Spanned<DeValue<'a>>,
    /// The file, for places in messages.
    source: &'a Source<'a>,
}

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// The field that the table is the value of.
    pub(super) whole: Field<'a>,
    /// Its fields, in no order.
    fields: &'a DeTable<'a>,
}

/// Reads a text as TOML.
///
/// # Errors
///
/// If it is not TOML; the message has the place at which the parser stopped.
pub(super) fn parse<'a>(source: &Source<'a>) -> Result<Spanned<DeValue<'a>>, Error> {
    let file = DeTable::parse(source.text);
    let file = file.map_err(|error| source.error(&error.span().unwrap_or_default(), error.message()))?;
    Ok(Spanned::new(file.span(), DeValue::Table(file.into_inner())))
}

impl<'a> Field<'a> {
    /// Returns the field of a value.
    pub(super) fn new(name: &'a str, value: &'a Spanned<DeValue<'a>>, source: &'a Source<'a>) -> Self {
        Self { name, value, source }
    }

    /// Returns an error in this value, at its place.
    pub(super) fn error(&self, message: impl Display) -> Error {
        self.source.error(&self.value.span(), message)
    }

    /// Returns the error of a value that is of another type than the one `expected`.
    pub(super) fn wrong(&self, expected: &str) -> Error {
        let found = match self.value.get_ref() {
            DeValue::String(text) => format!("the string {:?}", shortened(text)),
            DeValue::Integer(number) => format!("the integer `{number}`"),
            DeValue::Float(number) => format!("the float `{number}`"),
            DeValue::Boolean(value) => format!("the boolean `{value}`"),
            DeValue::Datetime(time) => format!("the date or time `{time}`"),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.error(format!("{} is {found}: give {expected}", self.name))
    }

    /// Returns the number of its line, from 1.
    pub(super) fn line(&self) -> usize {
        self.source.place(self.value.span().start).0
    }

    /// Returns the value if it is a string.
    pub(super) fn as_text(&self) -> Option<&'a str> {
        self.value.get_ref().as_str()
    }

    /// Returns the value if it is a whole number of 0 or more that fits; in any base that TOML has.
    pub(super) fn as_whole(&self) -> Option<u64> {
        let number = self.value.get_ref().as_integer()?;
        // By way of a signed number, as -0 is 0.
        i128::from_str_radix(number.as_str(), number.radix()).ok()?.try_into().ok()
    }

    /// Returns the elements of a list, each of which is called `name` in messages.
    pub(super) fn as_list(&self, name: &'a str) -> Option<Vec<Self>> {
        let elements = self.value.get_ref().as_array()?.iter();
        Some(elements.map(|value| Self { name, value, ..*self }).collect())
    }

    /// Returns a string, or an error if it is none.
    pub(super) fn text(&self) -> Result<&'a str, Error> {
        self.as_text().ok_or_else(|| self.wrong("a string, in quotes"))
    }

    /// Returns a whole number of 0 or more, or an error if it is none.
    pub(super) fn whole(&self) -> Result<u64, Error> {
        self.as_whole().ok_or_else(|| {
            let is_larger = self.value.get_ref().as_integer().is_some_and(|number| !number.as_str().starts_with('-'));
            if is_larger {
                return self.error(format!("{} is too large: give at most {}", self.name, u64::MAX));
            }
            self.wrong("a whole number, 0 or more, without quotes")
        })
    }

    /// Returns a number with or without a fraction, or an error if it is none; its bounds are the caller's to
    /// check.
    pub(super) fn fraction(&self) -> Result<f64, Error> {
        self.as_number().ok_or_else(|| self.wrong("a fraction such as 0.2, without quotes"))
    }

    /// As [`fraction`](Self::fraction), for a number that may be above 1.
    pub(super) fn number(&self) -> Result<f64, Error> {
        self.as_number().ok_or_else(|| self.wrong("a number such as 2 or 1.5, without quotes"))
    }

    fn as_number(&self) -> Option<f64> {
        match self.value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        }
    }

    /// Returns a boolean, or an error if it is none.
    pub(super) fn flag(&self) -> Result<bool, Error> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong("a boolean, true or false without quotes"))
    }

    /// Returns the elements of a list, or an error if it is none; their types are not checked.
    pub(super) fn texts(&self, name: &'a str) -> Result<Vec<Self>, Error> {
        self.as_list(name).ok_or_else(|| self.wrong("a list of texts in quotes, such as [\"a\", \"b\"]"))
    }

    /// Returns a table, or an error if it is none.
    pub(super) fn table(&self, expected: &str) -> Result<Table<'a>, Error> {
        let fields = self.value.get_ref().as_table().ok_or_else(|| self.wrong(expected))?;
        Ok(Table { whole: *self, fields })
    }

    /// Returns a duration in the format of `humantime`, or an error if it is none. The unit `M` is an error, as
    /// it may be meant for minutes or months.
    pub(super) fn period(&self) -> Result<Duration, Error> {
        let name = self.name;
        let expected = || self.wrong("a duration in quotes, such as \"100ms\", \"60s\" or \"30d\"");
        let text = self.as_text().ok_or_else(expected)?;
        if text.split(|other: char| !other.is_alphabetic()).any(|unit| unit == "M") {
            let message = format!("{name} {text:?} has the unit M, which may be minutes or months: give 1m or 30d");
            return Err(self.error(message));
        }
        let wrong = || self.error(format!("{name} {text:?} is not a duration: {DURATIONS}"));
        // The parser panics where the sum is as large as a `Duration` can be.
        let digits = text.split(|other: char| !other.is_ascii_digit()).map(str::len).max();
        if text.len() > 40 || digits > Some(11) {
            return Err(self.error(format!("{name} {:?} is too long: {DURATIONS}", shortened(text))));
        }
        humantime::parse_duration(text).map_err(|error| wrong().with_source(error))
    }

    /// Returns the value of the text among the `known` words; an unknown one is an error that lists them.
    pub(super) fn choose<T: Copy>(&self, known: &[(&str, T)]) -> Result<T, Error> {
        let text = self.text()?;
        let found = known.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            self.error(format!("{} {text:?} is unknown: give one of {}", self.name, words.join(", ")))
        })
    }

    /// Returns the header of a text `header:NAME`, which is all that `what` can be.
    pub(super) fn header(&self, what: &str) -> Result<HeaderName, Error> {
        match self.text()?.split_once(':') {
            Some(("header", name)) => self.header_name(&format!("{what} header:NAME"), name),
            _ => Err(self.error(format!("{what} {:?} is unknown: give header:NAME", self.text()?))),
        }
    }

    /// Returns the header of a name, which is in `what`.
    pub(super) fn header_name(&self, what: &str, name: &str) -> Result<HeaderName, Error> {
        HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
            self.error(format!("{what} has {name:?} for a name: give one such as x-api-key")).with_source(error)
        })
    }

    /// Refuses a text that is compared with the values of a header, and that none can be.
    pub(super) fn check_header_value(&self, what: &str, text: &str) -> Result<(), Error> {
        if carried(text.as_bytes()) == Some(text.as_bytes()) {
            return Ok(());
        }
        let advice = "leave out white space around it, and control characters";
        Err(self.error(format!("{what} has {text:?}, which cannot be the value of a header: {advice}")))
    }
}

impl<'a> Table<'a> {
    /// Refuses all fields but those that are `known`.
    pub(super) fn only(self, known: &[&str]) -> Result<Self, Error> {
        let unknown = self.fields.keys().filter(|name| !known.contains(&&**name.get_ref()));
        let Some(first) = unknown.min_by_key(|name| name.span().start) else { return Ok(self) };
        let known = known.join("`, `");
        let message = format!("unknown field `{}`: give one of `{known}`", first.get_ref());
        Err(self.whole.source.error(&first.span(), message))
    }

    /// Returns the field of this name, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<Field<'a>> {
        let (name, value) = self.fields.get_key_value(name)?;
        Some(Field { name: name.get_ref(), value, ..self.whole })
    }

    /// Returns the field of this name, which has to be there; else the error is `missing`, at the place of the table.
    pub(super) fn required(&self, name: &str, missing: &str) -> Result<Field<'a>, Error> {
        self.get(name).ok_or_else(|| self.whole.error(missing))
    }

    /// Returns the field of this name if it is `true`; `None` if it is `false` or not there.
    pub(super) fn switched_on(&self, name: &str) -> Result<Option<Field<'a>>, Error> {
        let Some(field) = self.get(name) else { return Ok(None) };
        Ok(field.flag()?.then_some(field))
    }

    /// Returns all fields, in the order of the file.
    pub(super) fn fields(&self) -> Vec<Field<'a>> {
        let mut names: Vec<_> = self.fields.keys().collect();
        names.sort_by_key(|name| name.span().start);
        names.into_iter().filter_map(|name| self.get(name.get_ref())).collect()
    }
}
