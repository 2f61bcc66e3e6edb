//! The file as it is written: its tables, and where each value stands.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default)]
    pub(super) policy: Vec<Spanned<PolicyTable>>,
    #[serde(default)]
    pub(super) server: ServerTable,
}

/// One `[[policy]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyTable {
    pub(super) name: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<KeyNames>>,
    pub(super) algorithm: Option<Spanned<String>>,
    pub(super) limit: Option<Spanned<Whole>>,
    pub(super) window: Option<Spanned<Period>>,
    pub(super) burst: Option<Spanned<Whole>>,
    pub(super) queue: Option<Spanned<Whole>>,
    pub(super) cost: Option<Spanned<Whole>>,
    pub(super) missing_key: Option<Spanned<String>>,
    pub(super) advertise: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    pub(super) on_failure: Option<Spanned<String>>,
    pub(super) instances: Option<Spanned<Whole>>,
}

/// A whole number, 0 or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(pub(super) u64);

/// The text of a duration, not yet read.
#[derive(Debug)]
pub(super) struct Period(pub(super) String);

/// One key, or a list of keys.
#[derive(Debug)]
pub(super) enum KeyNames {
    One(String),
    Joined(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, 0 or more, without quotes")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                let whole = u64::try_from(number);
                whole.map(Whole).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
        }

        deserializer.deserialize_u64(Reader)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Period;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes, such as \"100ms\", \"60s\" or \"30d\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Period, E> {
                Ok(Period(text.to_owned()))
            }
        }

        deserializer.deserialize_str(Reader)
    }
}

// Not an untagged enum: that would lose the places of the list's keys.
impl<'de> Deserialize<'de> for KeyNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = KeyNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key in quotes, or a list of keys")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<KeyNames, E> {
                Ok(KeyNames::One(name.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<KeyNames, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(KeyNames::Joined(names))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}
