//! Decisions, outcomes and quotas as data for logs (feature `serde`).
//!
//! Fields are named like the getters, and a field with a time ends with its unit. Fields may be added, and none is left
//! out: absent values are null.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{Algorithm, Ban, Calendar, Decision, Key, Mode, Outcome, PolicyName, Quota, Source};

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Decision", 7)?;
        fields.serialize_field("allowed", &self.is_allowed())?;
        fields.serialize_field("source", &self.source())?;
        fields.serialize_field("binding", &self.binding().map(Outcome::policy))?;
        fields.serialize_field("retry_after_seconds", &self.retry_after().map(seconds))?;
        fields.serialize_field("delay_seconds", &seconds(self.delay()))?;
        fields.serialize_field("outcomes", self.outcomes())?;
        fields.serialize_field("outer", &self.outer())?;
        fields.end()
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Outcome", 13)?;
        fields.serialize_field("policy", self.policy())?;
        fields.serialize_field("key", self.key())?;
        fields.serialize_field("shadow", &(self.mode() == Mode::Shadow))?;
        fields.serialize_field("overridden", &self.is_overridden())?;
        fields.serialize_field("allowed", &self.is_allowed())?;
        fields.serialize_field("limit", &self.limit())?;
        fields.serialize_field("window_seconds", &seconds(self.window()))?;
        fields.serialize_field("remaining", &self.remaining())?;
        fields.serialize_field("reset_after_seconds", &seconds(self.reset_after()))?;
        fields.serialize_field("retry_after_seconds", &self.retry_after().map(seconds))?;
        fields.serialize_field("retry_is_guess", &self.retry_is_guess())?;
        fields.serialize_field("banned_for_seconds", &self.banned_for().map(seconds))?;
        fields.serialize_field("delay_seconds", &seconds(self.delay()))?;
        fields.end()
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Quota", 5)?;
        fields.serialize_field("algorithm", &self.algorithm())?;
        fields.serialize_field("limit", &self.limit())?;
        fields.serialize_field("window_seconds", &seconds(self.window()))?;
        fields.serialize_field("capacity", &self.capacity())?;
        fields.serialize_field("calendar", &self.calendar().as_ref().map(Calendar::to_string))?;
        fields.end()
    }
}

impl Serialize for Ban {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Ban", 4)?;
        fields.serialize_field("after", &self.after())?;
        fields.serialize_field("within_seconds", &seconds(self.within()))?;
        fields.serialize_field("duration_seconds", &seconds(self.duration()))?;
        fields.serialize_field("max_seconds", &seconds(self.max()))?;
        fields.end()
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for PolicyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Exact to the microsecond for 285 years.
fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
