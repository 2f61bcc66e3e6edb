//! The table `ban` of a policy.
//!
//! Each error is at the field at fault; a ban by which clients could have others banned is one at the table.

use std::time::Duration;

use super::document::{Field, Table};
use crate::core::{Ban, Error};
use crate::http::Policy;

/// All fields of a ban.
const FIELDS: &[&str] = &["after", "within", "time", "growth", "most", "extend", "layer", "verified_key"];

const EXAMPLE: &str = "a table such as { after = 10, within = \"5m\", time = \"15m\" }";

/// With this in the place of one time, only the other can be at fault.
const ANY: Duration = Duration::from_secs(1);

/// The policy, with its ban. Its key has to be set before.
pub(super) fn with_ban(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let Some(given) = table.get("ban") else { return Ok(policy) };
    let policy = policy.ban(read_ban(given)?);
    policy.check_ban().map_err(|error| given.error(error))?;
    Ok(policy)
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
