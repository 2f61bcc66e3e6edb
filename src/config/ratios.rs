//! The `[ratios]` table: the settings of a ratio store, and which policies it can limit.
//!
//! A table comes in, and a [`Ratios`] goes out, of which only a tally is missing: all else was checked, so that a file is
//! valid as a whole or an error.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::document::Field;
use crate::core::Error;
use crate::http::Policy;
use crate::store::{
    RatioStore, RatioStoreBuilder, Tally, ratio_life, ratio_report, ratio_shards, ratio_supports, ratio_tick,
};

/// All fields of the ratios.
const FIELDS: &[&str] = &["tick", "life", "report", "keys", "shards", "fair"];

/// Each takes about a kilobyte.
const MOST_KEYS: usize = 10_000_000;

/// A ratio store without its tally; a field that is not given has the default of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ratios {
    tick: Option<Duration>,
    life: Option<Duration>,
    report: Option<usize>,
    keys: Option<usize>,
    shards: Option<u8>,
    /// The policy whose drops are divided, and the one whose keys are the callers.
    fair: Option<(String, String)>,
}

impl Ratios {
    /// Reads the table; `names` has the place of each policy's name, all of which have to be rates.
    pub(super) fn read(
        given: Field<'_>,
        policies: &[Policy],
        names: &HashMap<String, Field<'_>>,
    ) -> Result<Self, Error> {
        let table = given.table("a table, under [ratios]")?.only(FIELDS)?;
        let tick = table.get("tick").map(|field| Ok((field, field.period()?))).transpose()?;
        if let Some((field, tick)) = tick {
            ratio_tick(tick).map_err(|error| field.error(error))?;
        }
        let tick = tick.map(|(_, tick)| tick);
        let life = table.get("life").map(|field| {
            let life = field.period()?;
            ratio_life(tick, life).map_err(|error| field.error(error))?;
            Ok(life)
        });
        let fair = table.get("fair").map(|field| read_fair(field, names)).transpose()?;
        let ratios = Self {
            tick,
            life: life.transpose()?,
            report: table.get("report").map(|field| whole(field, ratio_report)).transpose()?,
            keys: table.get("keys").map(read_keys).transpose()?,
            shards: table.get("shards").map(|field| whole(field, ratio_shards)).transpose()?,
            fair,
        };
        for policy in policies {
            let supported = ratio_supports(&policy.rule().requirement(), tick);
            supported.map_err(|error| names.get(policy.name()).unwrap_or(&given).error(error))?;
        }
        Ok(ratios)
    }

    /// Returns the store with a tally.
    pub(super) fn store(&self, tally: impl Tally, instances: NonZeroU32) -> Result<RatioStore, Error> {
        let Self { tick, life, report, keys, shards, fair } = self;
        let builder = RatioStore::builder(tally).instances(instances);
        let builder = set(builder, *tick, RatioStoreBuilder::tick);
        let builder = set(builder, *life, RatioStoreBuilder::life);
        let builder = set(builder, *report, RatioStoreBuilder::report);
        let builder = set(builder, *keys, RatioStoreBuilder::capacity);
        let builder = set(builder, *shards, RatioStoreBuilder::shards);
        set(builder, fair.as_ref(), |builder, (policy, by)| builder.fair(policy, by)).build()
    }
}

/// Sets what the file gives.
fn set<T>(
    builder: RatioStoreBuilder,
    given: Option<T>,
    set: impl FnOnce(RatioStoreBuilder, T) -> RatioStoreBuilder,
) -> RatioStoreBuilder {
    match given {
        Some(value) => set(builder, value),
        None => builder,
    }
}

/// Reads a number that the store accepts.
fn whole<T: TryFrom<u64>>(given: Field<'_>, accepts: fn(u64) -> Result<T, Error>) -> Result<T, Error> {
    accepts(given.whole()?).map_err(|error| given.error(error))
}

fn read_keys(given: Field<'_>) -> Result<usize, Error> {
    let keys = given.whole()?;
    let checked = usize::try_from(keys).ok().filter(|keys| (1..=MOST_KEYS).contains(keys));
    checked.ok_or_else(|| given.error(format!("keys {keys} is not allowed: give 1 to {MOST_KEYS}")))
}

/// Reads the names of two policies of the file.
fn read_fair(given: Field<'_>, names: &HashMap<String, Field<'_>>) -> Result<(String, String), Error> {
    let expected = "a table such as { policy = \"global\", by = \"caller\" }";
    let table = given.table(expected)?.only(&["policy", "by"])?;
    let name = |field: &str| {
        let field = table.required(field, &format!("fair lacks the field `{field}`: give {expected}"))?;
        let name = field.text()?;
        if names.contains_key(name) {
            return Ok((field, name.to_owned()));
        }
        Err(field.error(format!("fair names {name:?}, which is no policy of the file: give the name of one")))
    };
    let ((_, policy), (field, by)) = (name("policy")?, name("by")?);
    if policy == by {
        return Err(field.error(format!("callers of {by:?} are its own keys: give another policy for them")));
    }
    Ok((policy, by))
}
