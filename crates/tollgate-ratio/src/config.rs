//! The table `[ratios]` of a TOML file: all settings of a store but its tally.

use std::path::Path;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tollgate::Error;
use tollgate::policy::PolicyName;
use tollgate_config::table::{At, Fault, Source};
use toml::Spanned;

use crate::builder::{check_life, check_report, check_shards, check_tick};
use crate::{RatioStore, RatioStoreBuilder, Tally};

const MAX_KEYS: usize = 10_000_000;

/// The ratio store of a TOML file, from the table `[ratios]`. Other tables are for other crates.
///
/// | field | value | default |
/// | --- | --- | --- |
/// | `tick` | how often each process reports: `"100ms"` to `"60s"`, in whole milliseconds; the same in all processes | `"1s"` |
/// | `ttl` | how long the last ratio holds if the tally does not reply: 2 to 600 ticks | 10 ticks |
/// | `report` | the most counters of a report in each shard, 1 to 512 | 256 |
/// | `keys` | the most keys that are kept, 1 to 10000000 | 10000 |
/// | `shards` | into how many shards the tally divides counters, 1 to 16; the same in all processes | 1 |
/// | `fair` | `{ policy = "NAME", by = "NAME" }`: requests of the first policy are dropped by callers, which are the keys of the second: see [`RatioStoreBuilder::fair`] | none |
///
/// If a policy cannot have a ratio, such as a concurrency or a policy with a ban, the layer does not build. Two values
/// are equal if their settings are, so a service that reads its file again can tell whether the table has changed. A
/// store in use does not change with the file.
///
/// # Examples
///
/// ```
/// use tollgate_ratio::{MemoryTally, RatioConfig};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let ratios = RatioConfig::from_toml("[ratios]\ntick = \"2s\"")?.expect("the file has them");
/// let store = ratios.builder(MemoryTally::new()).build();
/// # let _ = store;
///
/// let error = RatioConfig::from_toml("[ratios]\nshards = 17").expect_err("they are too many");
/// assert_eq!(error.to_string(), "line 2: 17 shards are not allowed: use 1 to 16 (column 10)");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RatioConfig {
    tick: Option<Duration>,
    ttl: Option<Duration>,
    report: Option<usize>,
    keys: Option<usize>,
    shards: Option<u8>,
    fair: Option<(String, String)>,
}

impl RatioConfig {
    /// Reads a file's text. Without the table it is `None`.
    ///
    /// # Errors
    ///
    /// If it is no TOML, or the table holds anything that is unknown or can never work. The message is one line that starts
    /// with the number of the line in the file, and ends with the column.
    pub fn from_toml(text: &str) -> Result<Option<Self>, Error> {
        Self::read(&Source { name: None, text })
    }

    /// Reads a file. Returns `None` if it does not have the table.
    ///
    /// # Errors
    ///
    /// If the file cannot be read as UTF-8, and like [`from_toml`](Self::from_toml). The message starts with the path.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Option<Self>, Error> {
        Source::of_file(path.as_ref(), Self::read)
    }

    /// Returns the settings of a store with this tally, to which [`instances`](RatioStoreBuilder::instances) may be added.
    pub fn builder(&self, tally: impl Tally) -> RatioStoreBuilder {
        let Self { tick, ttl, report, keys, shards, fair } = self;
        let builder = RatioStore::builder(tally);
        let builder = tick.iter().fold(builder, |builder, tick| builder.tick(*tick));
        let builder = ttl.iter().fold(builder, |builder, ttl| builder.ttl(*ttl));
        let builder = report.iter().fold(builder, |builder, counters| builder.report(*counters));
        let builder = keys.iter().fold(builder, |builder, keys| builder.capacity(*keys));
        let builder = shards.iter().fold(builder, |builder, shards| builder.shards(*shards));
        fair.iter().fold(builder, |builder, (policy, by)| builder.fair(policy, by))
    }

    fn read(source: &Source<'_>) -> Result<Option<Self>, Error> {
        let file = toml::from_str::<File>(source.text).map_err(Fault::from);
        let config = file.and_then(|file| file.ratios.map(RatioTable::checked).transpose());
        config.map_err(|fault| source.error(&fault))
    }
}

#[derive(Deserialize)]
struct File {
    ratios: Option<RatioTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, under [ratios]")]
struct RatioTable {
    tick: Option<Spanned<Period>>,
    ttl: Option<Spanned<Period>>,
    report: Option<Spanned<u64>>,
    keys: Option<Spanned<u64>>,
    shards: Option<Spanned<u64>>,
    fair: Option<Fair>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { policy = \"global\", by = \"caller\" }")]
struct Fair {
    policy: Spanned<String>,
    by: Spanned<String>,
}

/// Duration in the format of `humantime`, without units of variable length.
struct Period(Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = "expected a duration in quotes, such as \"200ms\", \"1s\" or \"1m\"";
        let text = String::deserialize(from).map_err(|_| D::Error::custom(wrong))?;
        // Its parser panics where a sum is as large as a `Duration` can be.
        let is_short = text.len() < 16;
        let parsed = if is_short { humantime::parse_duration(&text).ok() } else { None };
        parsed.map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is not a duration: use 200ms, 1s or 1m")))
    }
}

impl RatioTable {
    fn checked(self) -> Result<RatioConfig, Fault> {
        let tick = self.tick.as_ref().map(|tick| tick.get_ref().0);
        let keys = |keys: u64| match usize::try_from(keys) {
            Ok(keys) if (1..=MAX_KEYS).contains(&keys) => Ok(keys),
            _ => Err(Error::invalid(format!("keys {keys} is not allowed: use 1 to {MAX_KEYS}"))),
        };
        Ok(RatioConfig {
            tick: check(self.tick, |Period(tick)| check_tick(tick).map(|()| tick))?,
            ttl: check(self.ttl, |Period(ttl)| check_life(tick, ttl).map(|()| ttl))?,
            report: check(self.report, check_report)?,
            keys: check(self.keys, keys)?,
            shards: check(self.shards, check_shards)?,
            fair: self.fair.map(Fair::checked).transpose()?,
        })
    }
}

impl Fair {
    fn checked(self) -> Result<(String, String), Fault> {
        for name in [&self.policy, &self.by] {
            PolicyName::try_from(name.get_ref().as_str()).at(name)?;
        }
        if self.policy.get_ref() == self.by.get_ref() {
            let message = format!("callers of {:?} are its own keys: use another policy for them", self.by.get_ref());
            return Err(Fault::new(&self.by, message));
        }
        Ok((self.policy.into_inner(), self.by.into_inner()))
    }
}

fn check<F, T>(field: Option<Spanned<F>>, check: impl FnOnce(F) -> Result<T, Error>) -> Result<Option<T>, Fault> {
    let checked = |field: Spanned<F>| {
        let place = field.span();
        check(field.into_inner()).map_err(|error| Fault(place, error.to_string()))
    };
    field.map(checked).transpose()
}
