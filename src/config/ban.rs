//! The table `ban` of a policy.
//!
//! Each error is at the field at fault; a ban by which clients could have others banned is one at the table.

use std::time::Duration;

use super::document::{Field, Table};
use super::requests::read_count;
use crate::core::{Ban, Error};
use crate::http::{Count, Policy};

/// All fields of a ban.
const FIELDS: &[&str] = &["after", "within", "time", "growth", "most", "on", "extend", "layer", "verified_key"];

const EXAMPLE: &str = "a table such as { after = 10, within = \"5m\", time = \"15m\" }";

/// With this in the place of one time, only the other can be at fault.
const ANY: Duration = Duration::from_secs(1);

/// The policy, with its ban. Its key has to be set before.
pub(super) fn with_ban(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let Some(given) = table.get("ban") else { return Ok(policy) };
    let policy = match read_count_of(given)? {
        Some(count) => policy.ban_failures(read_ban(given)?, count),
        None => policy.ban(read_ban(given)?),
    };
    policy.check_ban().map_err(|error| given.error(error))?;
    Ok(policy)
}

/// Reads which responses are strikes; `None` if refusals are.
fn read_count_of(given: Field<'_>) -> Result<Option<Count>, Error> {
    let on = given.table(EXAMPLE)?.get("on").filter(|on| on.as_text() != Some("refusals"));
    let Some(on) = on else { return Ok(None) };
    if on.as_list("status").is_some_and(|statuses| statuses.is_empty()) {
        return Err(on.error("on is an empty list, so nothing begins a ban: give at least one status"));
    }
    read_count(on).map(Some)
}

fn read_ban(given: Field<'_>) -> Result<Ban, Error> {
    let table = given.table(EXAMPLE)?.only(FIELDS)?;
    let required = |name, example| table.required(name, &format!("this ban has no {name}: add {name} = {example}"));
    let after = required("after", "10")?;
    let (within, time) = (required("within", "\"5m\"")?, required("time", "\"15m\"")?);
    let strikes = u32::try_from(after.whole()?).unwrap_or(u32::MAX);
    let _ = Ban::try_new(strikes, ANY, ANY).map_err(|error| after.error(error))?;
    let _ = Ban::try_new(1, within.period()?, ANY).map_err(|error| within.error(error))?;
    let ban = Ban::try_new(strikes, within.period()?, time.period()?).map_err(|error| time.error(error))?;
    let ban = with_growth(ban, table)?;
    let ban = if table.switched_on("extend")?.is_some() { ban.extending() } else { ban };
    let ban = if table.switched_on("layer")?.is_some() { ban.whole_layer() } else { ban };
    Ok(if table.switched_on("verified_key")?.is_some() { ban.of_verified_keys() } else { ban })
}

/// The ban with its growth and the longest one, of which neither is there without the other.
fn with_growth(ban: Ban, table: Table<'_>) -> Result<Ban, Error> {
    match (table.get("growth"), table.get("most")) {
        (None, None) => Ok(ban),
        (Some(growth), None) => Err(growth.error("a ban that grows needs a longest one: add most = \"1d\"")),
        (None, Some(most)) => Err(most.error("most has no effect on a ban that does not grow: add growth = 2")),
        (Some(growth), Some(most)) => {
            let factor = growth.number()?;
            let _ = ban.try_growing(factor, ban.time()).map_err(|error| growth.error(error))?;
            ban.try_growing(factor, most.period()?).map_err(|error| most.error(error))
        }
    }
}
