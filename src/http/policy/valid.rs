//! What must be true of a policy when a layer is built: one that limits nothing, or refuses all, is an error then.

use super::Count;
use super::Policy;
use super::access::advice;
use super::options::Options;
use crate::core::Error;
use crate::http::key::{Bannable, MissingKey};

impl Policy {
    /// Checks that the policy can do what it is for.
    ///
    /// # Errors
    ///
    /// If it cannot; the message names the policy, and what to change.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.check_slots()?;
        self.check_ban()?;
        self.check_cost()?;
        self.check_free()?;
        self.check_count()?;
        self.check_scope()?;
        self.check_matches()
    }

    /// Checks that a request can ever be admitted: that the quota holds the units that it costs.
    ///
    /// # Errors
    ///
    /// If it does not, and no closure and no tier may change that.
    fn check_cost(&self) -> Result<(), Error> {
        let Options { cost_by, unit, tier, .. } = &self.options;
        let is_fixed = cost_by.is_none() && unit.is_none() && tier.is_none();
        let Some((cost, capacity)) = self.rule.excess().filter(|_| is_fixed) else { return Ok(()) };
        Err(Error::invalid(format!(
            "policy {:?}: a request costs {cost} and the quota holds {capacity} at most, so all would be refused: lower \
             the cost, or raise the limit or burst",
            self.name()
        )))
    }

    /// Checks that requests cost something, or that the policy refuses some for another reason.
    ///
    /// # Errors
    ///
    /// If they do not, whatever a handler reports; the message names the policy.
    fn check_free(&self) -> Result<(), Error> {
        let Options { cost_by, unit, metered, deny, .. } = &self.options;
        let is_charged = self.rule.units() > 0 || cost_by.is_some() || unit.is_some() || *metered;
        let refuses = self.rule.banning().is_some() || deny.is_some();
        let refuses = refuses || self.rule_for_missing_key() == MissingKey::Deny;
        if is_charged || refuses {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "policy {:?}: requests cost 0, so this policy limits nothing: give a cost of 1 or more, make it \
             metered, or if that is meant, set cost_by(|_| 0)",
            self.name()
        )))
    }

    /// Checks that some responses count, and some are strikes of a ban.
    ///
    /// # Errors
    ///
    /// If none do; the message names the policy, and what to give.
    fn check_count(&self) -> Result<(), Error> {
        let Options { count, bans_on, .. } = &self.options;
        let text = if count.as_ref().is_some_and(Count::is_of_none) {
            "count is of no statuses, so this policy limits nothing: give at least one"
        } else if bans_on.as_ref().is_some_and(Count::is_of_none) {
            "the ban is for responses of no statuses, so nobody would be banned: give at least one"
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("policy {:?}: {text}", self.name())))
    }

    /// Checks that the policy is for some requests: that no list of methods or routes is empty. Lists of clients may be
    /// computed, and have nobody at times.
    ///
    /// # Errors
    ///
    /// If one is, or a standard method is not in upper case; the message names the policy and the list.
    fn check_scope(&self) -> Result<(), Error> {
        if let Some((given, meant)) = self.options.scope.wrong_method() {
            let text =
                format!("policy {:?}: no request has the method {:?}: give {meant}", self.name(), given.as_str());
            return Err(Error::invalid(text));
        }
        let Some(what) = self.options.scope.empty_list() else { return Ok(()) };
        Err(Error::invalid(format!(
            "policy {:?}: {what} is an empty list, so this policy limits nothing: give at least one, or leave it out",
            self.name()
        )))
    }

    /// Checks that each route and each entry of a list can match some request.
    ///
    /// # Errors
    ///
    /// If a route or an entry can match nothing; the message names the policy.
    fn check_matches(&self) -> Result<(), Error> {
        self.options.scope.check_routes().map_err(|error| {
            let text = format!("policy {:?}: {error}", self.name());
            Error::invalid(text)
        })?;
        self.check_lists()
    }

    /// Checks that the slots of a concurrency, which are released when a request ends, are not to be settled as well.
    ///
    /// # Errors
    ///
    /// If they are; the message names the policy and the option.
    fn check_slots(&self) -> Result<(), Error> {
        let Options { metered, count, .. } = &self.options;
        if !self.quota().facts().held || !metered && count.is_none() {
            return Ok(());
        }
        let (name, option) = (self.name(), if *metered { "metered" } else { "count" });
        let text = format!("policy {name:?}: its slots are released at the end of each request: leave out {option}");
        Err(Error::invalid(text))
    }

    /// Returns an error if clients could have others banned.
    ///
    /// # Errors
    ///
    /// If they could; the message names the policy, and what to do.
    fn check_ban(&self) -> Result<(), Error> {
        let Some(ban) = self.rule.banning() else { return Ok(()) };
        let text = match self.info.bannable {
            _ if ban.extends && self.options.bans_on.is_some() => {
                "a refusal is no failure, so a ban by failures is not extended: leave out extending"
            }
            Bannable::Client => return Ok(()),
            Bannable::Claimed if ban.verified => return Ok(()),
            Bannable::Claimed => {
                "clients choose this key, so one could have another banned: ban by address, or say that keys are \
                 verified before (of_verified_keys)"
            }
            Bannable::Spoofable => {
                "anyone may write the header with this address, and have others banned: give trusted_proxies as the \
                 networks of your proxies"
            }
            Bannable::Shared => "all clients share this key, so one could have all of them banned: ban by address",
        };
        Err(Error::invalid(format!("policy {:?}: {text}", self.name())))
    }

    fn check_lists(&self) -> Result<(), Error> {
        for (what, list) in [("allow", &self.options.allow), ("deny", &self.options.deny)] {
            let Some((place, is_address)) = list.as_ref().and_then(|list| list.idle(&*self.extractor)) else {
                continue;
            };
            return Err(Error::invalid(format!(
                "entry {place} of the {what} list of policy {:?} can never match: {}",
                self.name(),
                advice(is_address)
            )));
        }
        Ok(())
    }
}
