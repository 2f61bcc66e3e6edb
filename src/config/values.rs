//! Single values, as they are written.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A whole number, 0 or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(pub(super) u64);

/// A number that need not be whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fraction(pub(super) f64);

/// The text of a duration, not yet read.
#[derive(Debug)]
pub(super) struct Period(pub(super) String);

/// Units, or where a request says them.
#[derive(Debug)]
pub(super) enum CostText {
    Units(u64),
    From(String),
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
                whole(number, &self).map(Whole)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
        }

        deserializer.deserialize_u64(Reader)
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Fraction;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fraction such as 0.2, without quotes")
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Fraction, E> {
                Ok(Fraction(number))
            }

            #[allow(clippy::cast_precision_loss, reason = "no whole number is between 0 and 1")]
            fn visit_i64<E: Error>(self, number: i64) -> Result<Fraction, E> {
                Ok(Fraction(number as f64))
            }
        }

        deserializer.deserialize_f64(Reader)
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

impl<'de> Deserialize<'de> for CostText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = CostText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, 0 or more, or \"header:NAME\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<CostText, E> {
                whole(number, &self).map(CostText::Units)
            }

            fn visit_str<E: Error>(self, from: &str) -> Result<CostText, E> {
                Ok(CostText::From(from.to_owned()))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

fn whole<E: Error>(number: i64, expected: &dyn serde::de::Expected) -> Result<u64, E> {
    u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), expected))
}
