//! Values with their own syntax, and operations on the fields of all tables.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use http::StatusCode;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use tollgate::Error;
use tollgate::policy::Count;
use toml::Spanned;

use super::error::{At, Fault};

#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Given<T>(pub(super) Option<Spanned<T>>);

impl<T> Given<T> {
    pub(super) fn get(&self) -> Option<&T> {
        self.0.as_ref().map(Spanned::get_ref)
    }

    pub(super) fn set<S>(&self, settings: S, set: impl FnOnce(S, T) -> Result<S, Error>) -> Result<S, Fault>
    where
        T: Copy,
    {
        match &self.0 {
            Some(field) => set(settings, *field.get_ref()).at(field),
            None => Ok(settings),
        }
    }

    pub(super) fn needs(&self, name: &str, has: bool, what: &str) -> Result<(), Fault> {
        match &self.0 {
            Some(field) if !has => {
                let message = format!("{name} has no effect without {what}: add it, or leave {name} out");
                Err(Fault::new(field, message))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn needs_axum(&self, name: &str) -> Result<(), Fault> {
        self.needs(name, cfg!(feature = "axum"), "the feature axum")
    }
}

impl Given<bool> {
    pub(super) fn is_on(&self) -> bool {
        self.get() == Some(&true)
    }
}

impl Given<String> {
    pub(super) fn choose<T: Clone>(&self, name: &str, known: &[(&str, T)]) -> Result<Option<T>, Fault> {
        self.0.as_ref().map(|field| choose(name, field, known)).transpose()
    }
}

pub(super) fn choose<T: Clone>(name: &str, field: &Spanned<String>, known: &[(&str, T)]) -> Result<T, Fault> {
    let found = known.iter().find(|(word, _)| word == field.get_ref());
    let words = || known.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let unknown = || format!("{name} {:?} is unknown: use one of {}", field.get_ref(), words());
    found.map(|(_, value)| value.clone()).ok_or_else(unknown).at(field)
}

/// Duration in the format of `humantime`, without units of variable length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Period(pub(super) Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Window::deserialize(from)? {
            Window::Length(length) => Ok(Self(length)),
            Window::Unit(unit) => Err(D::Error::custom(format!("{unit:?} is not a duration: {DURATIONS}"))),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Window {
    Length(Duration),
    Unit(&'static str),
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = "expected a duration in quotes, such as \"100ms\", \"60s\" or \"30d\"";
        let text = String::deserialize(from).map_err(|_| D::Error::custom(wrong))?;
        match ["hour", "day", "week", "month"].into_iter().find(|unit| *unit == text) {
            Some(unit) => Ok(Self::Unit(unit)),
            None => duration(&text, MONTHS).map(Self::Length).map_err(D::Error::custom),
        }
    }
}

const DURATIONS: &str = "use a number and a unit, such as 100ms, 60s, 1h or 30d";

const MONTHS: &str = ": M may be minutes or months, and months and years differ in length: use 1m, 30d, or a fixed_window \
                      the window \"month\"";

/// The error for a unit of variable length ends with `varies`.
pub fn duration(text: &str, varies: &str) -> Result<Duration, String> {
    let mut units = text.split(|other: char| !other.is_alphabetic());
    if let Some(unit) = units.find(|unit| matches!(*unit, "M" | "month" | "months" | "y" | "yr" | "year" | "years")) {
        return Err(format!("{text:?} has the unit {unit}{varies}"));
    }
    // The parser panics where the sum is as large as a `Duration` can be.
    let digits = text.split(|other: char| !other.is_ascii_digit()).map(str::len).max();
    if text.len() > 40 || digits > Some(11) {
        return Err(format!("a duration is too long: {DURATIONS}"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{text:?} is not a duration ({error}): {DURATIONS}"))
}

#[derive(Debug)]
pub(super) enum WordOr<T> {
    Word(String),
    List(Vec<Spanned<T>>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader(PhantomData))
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
    type Value = WordOr<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or a list")
    }

    fn visit_str<E>(self, text: &str) -> Result<WordOr<T>, E> {
        Ok(WordOr::Word(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<WordOr<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(WordOr::List)
    }
}

pub(super) fn some<'a, T>(name: &str, list: &'a [T]) -> Result<&'a [T], String> {
    let is_empty = list.is_empty();
    if is_empty { Err(format!("{name} is an empty list: at least one is needed")) } else { Ok(list) }
}

pub(super) fn read_count(name: &str, given: &Spanned<WordOr<u64>>) -> Result<Count, Fault> {
    match given.get_ref() {
        WordOr::Word(word) => match word.as_str() {
            "all" => Ok(Count::all()),
            "failures" => Ok(Count::failures()),
            "successes" => Ok(Count::successes()),
            "served" => Ok(Count::served()),
            _ => Err(format!("{name} {word:?} is unknown: use one of all, failures, successes, served")).at(given),
        },
        WordOr::List(statuses) => {
            let statuses = some(name, statuses).at(given)?.iter().map(|given| {
                let number = *given.get_ref();
                let status = u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
                status.ok_or_else(|| format!("status {number} is not allowed: use 100 to 999")).at(given)
            });
            Ok(Count::statuses(statuses.collect::<Result<Vec<_>, _>>()?))
        }
    }
}
