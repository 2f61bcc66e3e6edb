//! Values that hold others, each with its place.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::values::Whole;

/// A word, or a list.
#[derive(Debug)]
pub(super) enum OneOrMany<T> {
    One(String),
    Many(Vec<Spanned<T>>),
}

/// What may be listed where a word may stand.
pub(super) trait Listed {
    const EXPECTED: &'static str;
}

impl Listed for String {
    const EXPECTED: &'static str = "a key in quotes, or a list of keys";
}

impl Listed for Whole {
    const EXPECTED: &'static str = "\"all\", \"failures\", \"successes\", or a list of statuses such as [401, 403]";
}

/// Texts, in a list.
#[derive(Debug)]
pub(super) struct TextList<T = String>(pub(super) Vec<Spanned<T>>);

/// A client on a list.
#[derive(Debug)]
pub(super) enum Client {
    /// An address, a network, or a value that does not look like one.
    Text(String),
    /// A value, whatever it looks like.
    Value(ValueTable),
}

/// The value of a key, or of the keys of a name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueTable {
    pub(super) value: String,
    pub(super) key: Option<String>,
}

/// Limits by the names of tiers, and where a request says its tier.
#[derive(Debug)]
pub(super) struct TierTable {
    pub(super) by: Option<Spanned<String>>,
    pub(super) limits: Vec<(String, Spanned<Whole>)>,
}

// Not an untagged enum: that would lose the places of the list's elements.
impl<'de, T: Listed + Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Listed + Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<OneOrMany<T>, E> {
                Ok(OneOrMany::One(word.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOrMany<T>, A::Error> {
                elements(list).map(OneOrMany::Many)
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = TextList<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts in quotes, such as [\"a\", \"b\"]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<TextList<T>, A::Error> {
                elements(list).map(TextList)
            }
        }

        deserializer.deserialize_seq(Reader(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Client {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Client;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a table such as { value = \"a\", key = \"header:x-api-key\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Client, E> {
                Ok(Client::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Client, A::Error> {
                ValueTable::deserialize(MapAccessDeserializer::new(map)).map(Client::Value)
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

// Not a flattened map: that would lose the places of the limits.
impl<'de> Deserialize<'de> for TierTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = TierTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { by = \"header:x-plan\", free = 100, pro = 5000 }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TierTable, A::Error> {
                let mut table = TierTable { by: None, limits: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "by" {
                        table.by = Some(map.next_value()?);
                    } else {
                        table.limits.push((name, map.next_value()?));
                    }
                }
                Ok(table)
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

fn elements<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(mut list: A) -> Result<Vec<T>, A::Error> {
    let mut elements = Vec::new();
    while let Some(element) = list.next_element()? {
        elements.push(element);
    }
    Ok(elements)
}
