//! The table `ban` of a policy.
//!
//! Each error is at its field. An error about a ban by which clients could get others banned is at the table.

use std::time::Duration;

use serde::Deserialize;
use tollgate::{Ban, Policy};
use toml::Spanned;

use super::error::{At, Fault};
use super::values::{Given, Period, WordOr, read_count};

/// Valid in place of one time, so that only the other time can be at fault.
const ANY: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { after = 10, within = \"5m\", duration = \"15m\" }")]
pub(super) struct BanTable {
    after: Spanned<u64>,
    within: Spanned<Period>,
    duration: Spanned<Period>,
    backoff: Given<f64>,
    max: Given<Period>,
    on: Given<WordOr<u64>>,
    extend: Option<bool>,
    layer: Option<bool>,
    verified_key: Option<bool>,
}

pub(super) fn in_file(Fault(place, message): Fault) -> Fault {
    let message = message.replace("of_verified_keys", "verified_key = true");
    let message = message.replace("by a tuple of client_ip() and", "by a list of \"client_ip\" and");
    Fault(place, message.replace("remove extending", "remove extend"))
}

impl BanTable {
    pub(super) fn add_to(&self, policy: Policy) -> Result<Policy, Fault> {
        let strikes = u32::try_from(*self.after.get_ref()).unwrap_or(u32::MAX);
        let (within, time) = (self.within.get_ref().0, self.duration.get_ref().0);
        let _ = Ban::try_new(strikes, ANY, ANY).at(&self.after)?;
        let _ = Ban::try_new(1, within, ANY).at(&self.within)?;
        let mut ban = Ban::try_new(strikes, within, time).at(&self.duration)?;
        self.backoff.needs("backoff", self.max.get().is_some(), "the longest ban, such as max = \"1d\"")?;
        self.max.needs("max", self.backoff.get().is_some(), "backoff, such as backoff = 2")?;
        if let (Some(growth), Some(most)) = (&self.backoff.0, &self.max.0) {
            let alike = ban.try_backoff(*growth.get_ref(), time).at(growth)? == ban;
            self.backoff.needs("backoff", !alike, "a factor above 1")?;
            ban = ban.try_backoff(*growth.get_ref(), most.get_ref().0).at(most)?;
        }
        let ban = if self.extend == Some(true) { ban.extending() } else { ban };
        let ban = if self.layer == Some(true) { ban.whole_layer() } else { ban };
        let ban = if self.verified_key == Some(true) { ban.of_verified_keys() } else { ban };
        Ok(match &self.on.0 {
            Some(on) if !matches!(on.get_ref(), WordOr::Word(word) if word == "denials") => {
                policy.ban_failures(ban, read_count("on", on)?)
            }
            _ => policy.ban(ban),
        })
    }
}
