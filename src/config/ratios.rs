//! The `[ratios]` table: the settings of a ratio store, of which only the tally is missing, and which policies it can
//! limit.

use std::num::NonZeroU32;

use serde::Deserialize;
use toml::Spanned;

use super::error::{At, Fault};
use super::values::{Given, Names, Period};
use crate::core::Error;
use crate::http::Policy;
use crate::store::ratio::{
    MemoryTally, RatioStore, RatioStoreBuilder, Tally, check_life, check_policy, check_report, check_shards, check_tick,
};

/// Each takes about a kilobyte.
const MOST_KEYS: usize = 10_000_000;

/// The table `[ratios]`; a field that is not given has the default of the store.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, under [ratios]")]
pub(super) struct Ratios {
    tick: Given<Period>,
    ttl: Given<Period>,
    report: Given<u64>,
    keys: Given<u64>,
    shards: Given<u64>,
    fair: Option<Fair>,
}

/// The policy whose drops are divided, and the one whose keys are the callers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { policy = \"global\", by = \"caller\" }")]
struct Fair {
    policy: Spanned<String>,
    by: Spanned<String>,
}

impl Ratios {
    /// Checks the settings, and that the policies of the file can be limited by ratios.
    pub(super) fn check(&self, policies: &[Policy], names: &Names) -> Result<(), Fault> {
        let _ = self.builder(MemoryTally::new())?;
        if let Some(Fair { policy, by }) = &self.fair {
            if let Some(name) = [policy, by].into_iter().find(|name| !names.contains_key(name.get_ref())) {
                let message =
                    format!("fair names {:?}, which is no policy of the file: give the name of one", name.get_ref());
                return Err(Fault::new(name, message));
            }
            if policy == by {
                let message = format!("callers of {:?} are its own keys: give another policy for them", by.get_ref());
                return Err(Fault::new(by, message));
            }
        }
        let tick = self.tick.get().map(|tick| tick.0);
        policies
            .iter()
            .try_for_each(|policy| check_policy(&policy.rule().requirement(), tick).at(&names[policy.name()]))
    }

    /// Returns the store with a tally.
    pub(super) fn store(&self, tally: impl Tally, instances: NonZeroU32) -> Result<RatioStore, Error> {
        self.builder(tally).expect("the settings were checked").instances(instances).try_build()
    }

    fn builder(&self, tally: impl Tally) -> Result<RatioStoreBuilder, Fault> {
        let tick = self.tick.get().map(|tick| tick.0);
        let builder = RatioStore::builder(tally);
        let builder = self.tick.set(builder, |builder, tick| check_tick(tick.0).map(|()| builder.tick(tick.0)))?;
        let builder = self.ttl.set(builder, |builder, ttl| check_life(tick, ttl.0).map(|()| builder.ttl(ttl.0)))?;
        let builder = self.report.set(builder, |builder, report| Ok(builder.report(check_report(report)?)))?;
        let builder = self.shards.set(builder, |builder, shards| Ok(builder.shards(check_shards(shards)?)))?;
        let builder = self.keys.set(builder, |builder, keys| match usize::try_from(keys) {
            Ok(keys) if (1..=MOST_KEYS).contains(&keys) => Ok(builder.capacity(keys)),
            _ => Err(Error::invalid(format!("keys {keys} is not allowed: give 1 to {MOST_KEYS}"))),
        })?;
        Ok(match &self.fair {
            Some(Fair { policy, by }) => builder.fair(policy.get_ref(), by.get_ref()),
            None => builder,
        })
    }
}
