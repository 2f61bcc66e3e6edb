//! Selection of the rules that a key is for.
//!
//! A limiter's own rules take any key. A layer's rules are policies, which count keys of one kind. A key of another
//! kind would lead to a counter that no request uses. Work outside of requests matches no policy for certain requests,
//! unless the policy is named.

use std::sync::Arc;

use super::Limiter;
use super::limits::Limits;
use super::plan::Places;
use super::rule::Rule;
use crate::core::{Ban, Error, Key, PolicyName};

impl Limiter {
    /// Returns a limiter by these policies or rules only, for all keys.
    ///
    /// It also uses policies with a [scope](crate::Policy::routes), and policies whose key is a closure or of another
    /// kind. They are looked up by name whenever the limiter is used, so they may be replaced.
    ///
    /// # Errors
    ///
    /// If no names are given, or no policy or rule has one of them. The methods of the limiter return this error, too,
    /// if a policy is removed later.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let login = Policy::new("login", Quota::per_minute(5)).key(key::header("x-account")).routes(["/login"]);
    /// let ada = login.key_of("ada")?;
    /// let layer = RateLimitLayer::new(MemoryStore::new(), login).live();
    ///
    /// assert!(layer.limiter().check(&ada).await.is_err(), "no job is a request to /login");
    /// assert!(layer.limiter().only(["login"])?.check(&ada).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn only(self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let names: Arc<[PolicyName]> = names.into_iter().map(|name| name.as_ref().parse()).collect::<Result<_, _>>()?;
        if names.is_empty() {
            return Err(Error::invalid("a limiter by certain policies must have at least one name"));
        }
        self.in_force.now().named(&names)?;
        Ok(Self { only: Some(names), ..self })
    }

    /// Fails if there are rules but none is for the key, or a named rule is gone.
    pub(super) fn places(&self, limits: &Limits, key: &Key) -> Result<Places, Error> {
        match &self.only {
            Some(names) => limits.named(names),
            None => limits.for_key(key),
        }
    }

    pub(super) fn banning<'a>(&self, limits: &'a Limits, key: &Key) -> Result<Vec<(usize, &'a Rule, Ban)>, Error> {
        let places = self.places(limits, key)?;
        let of = |place: usize| limits.rules[place].banning().map(|ban| (place, &limits.rules[place], ban));
        let banning: Vec<_> = places.into_iter().filter_map(of).collect();
        if banning.is_empty() {
            let bans = limits.rules.iter().filter(|rule| rule.banning().is_some());
            let bans: Vec<&str> = bans.map(|rule| rule.name().as_str()).collect();
            return Err(Error::invalid(format!(
                "no policy that counts all work with a key of kind {:?} has a ban; those with one, which Limiter::only \
                 selects by name: {bans:?}",
                key.kind()
            )));
        }
        Ok(banning)
    }
}

impl Limits {
    fn named(&self, names: &[PolicyName]) -> Result<Places, Error> {
        let place_of = |name: &PolicyName| {
            let place = self.rules.iter().position(|rule| rule.name() == name);
            place.ok_or_else(|| {
                let all: Vec<&str> = self.rules.iter().map(|rule| rule.name().as_str()).collect();
                Error::invalid(format!("no policy has the name {:?}; there are {all:?}", name.as_str()))
            })
        };
        let mut places = names.iter().map(place_of).collect::<Result<Places, Error>>()?;
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    fn for_key(&self, key: &Key) -> Result<Places, Error> {
        let is_for = |place: &usize| self.keys.get(*place).is_none_or(|keys| keys.are_for(key));
        let places: Places = (0..self.rules.len()).filter(is_for).collect();
        if places.is_empty() && !self.rules.is_empty() {
            let each = self.rules.iter().zip(&self.keys).map(|(rule, keys)| keys.describe(rule.name()));
            return Err(Error::invalid(format!(
                "no policy counts all work with a key of kind {:?}: {}; Limiter::only selects policies by name",
                key.kind(),
                each.collect::<Vec<_>>().join("; ")
            )));
        }
        Ok(places)
    }
}
