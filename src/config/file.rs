//! A file with policies, read and checked as a whole. Nothing is in force until a layer is built of it, or updated by it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use toml::Spanned;

use super::error::{Fault, Source, one_line};
use super::fleet::{Fleet, FleetTable};
use super::policy::PolicyTable;
use super::ratios::Ratios;
use super::server::{Server, ServerTable};
use super::values::Names;
use crate::core::Error;
use crate::http::shed::FleetShedLayer;
use crate::http::{LiveLayer, Policy, RateLimitLayer};
use crate::store::Store;
use crate::store::ratio::{RatioStore, Tally};

/// Policies and settings from a TOML file; see the [module](crate::config) for its fields.
///
/// The default has no policies, and the default settings of the server.
///
/// # Examples
///
/// ```
/// use tollgate::config::Config;
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let config = Config::from_toml("[[policy]]\nname = \"all\"\nlimit = 100\nwindow = \"60s\"")?;
/// assert_eq!(config.policies().len(), 1);
///
/// assert!(Config::from_toml("[[policy]]\nname = \"all\"\nlimit = 0\nwindow = \"60s\"").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// In the order of the file.
    policies: Vec<Policy>,
    /// Whether the file has `policy = []`: no policies, on purpose.
    has_none: bool,
    /// The table `[server]`, or its defaults.
    server: Server,
    /// The table `[fleet]`.
    fleet: Option<Fleet>,
    /// The table `[ratios]`.
    ratios: Option<Ratios>,
    /// The errors for tables that have no effect without a call of their own, by that call.
    uncalled: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Option<Vec<PolicyTable>>,
    server: Option<ServerTable>,
    fleet: Option<Spanned<FleetTable>>,
    ratios: Option<Spanned<Ratios>>,
}

impl Config {
    /// Reads a file's text.
    ///
    /// # Errors
    ///
    /// If it is no TOML, or holds anything that is unknown or can never work. The message is one
    /// line that starts with the number of the line in the file, and ends with the column.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let config = Config::from_toml("[[policy]]\nname = \"search\"\nlimit = 30\nwindow = \"60s\"")?;
    /// assert_eq!(config.policies()[0].name(), "search");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        Self::read(&Source { name: None, text })
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, and as [`from_toml`](Self::from_toml); the message starts with
    /// the path.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            let text = format!("cannot read the config file {name}: give the path of a TOML file");
            Error::invalid(one_line(&text)).with_source(error)
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let source = Source { name: Some(&name), text: &text };
        match str::from_utf8(&bytes) {
            Ok(_) => Self::read(&source),
            Err(error) => {
                let message = "the file is not UTF-8 text: save it as UTF-8".to_owned();
                Err(source.error(&Fault(error.valid_up_to()..bytes.len(), message)).with_source(error))
            }
        }
    }

    /// Returns the policies, in the order of the file.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the policies without the rest, in the order of the file.
    pub fn into_policies(self) -> Vec<Policy> {
        self.policies
    }

    /// Replaces the policies by those that `change` makes of them.
    ///
    /// It completes policies by what no file has, such as a [`when`](Policy::when) or a
    /// [`tier_lookup`](Policy::tier_lookup), and adds others. Read every newer file with the same closure: then
    /// [`layer`](Self::layer) and [`update`](Self::update) have the same policies. Where the closure adds one, a file that
    /// lost all of its own is no error of `update` any more.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use tollgate::config::Config;
    /// use tollgate::policy::TierLookup;
    /// use tollgate::{MemoryStore, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// // In a service this queries a database. Clones share its cache, so it is made once.
    /// let plans = TierLookup::new(async |_| Ok::<_, Infallible>(Some(Quota::per_hour(5_000))));
    /// let complete = |policies: Vec<Policy>| {
    ///     let complete = |policy: Policy| match policy.name() {
    ///         "address" => policy.when(|parts| !parts.headers.contains_key("x-api-key")),
    ///         "plan" => policy.tier_lookup(plans.clone()),
    ///         _ => policy,
    ///     };
    ///     policies.into_iter().map(complete).chain([Policy::new("all", Quota::per_second(1_000))]).collect()
    /// };
    ///
    /// let file = |limit| {
    ///     format!(
    ///         r#"
    ///         [[policy]]
    ///         name = "address"
    ///         key = "client_ip"
    ///         limit = {limit}
    ///         window = "60s"
    ///
    ///         [[policy]]
    ///         name = "plan"
    ///         key = "header:x-api-key"
    ///         limit = 100
    ///         window = "1h"
    ///         "#
    ///     )
    /// };
    /// let layer = Config::from_toml(&file(60))?.with_policies(&complete).layer(MemoryStore::new())?.live();
    /// // The file has changed.
    /// Config::from_toml(&file(10))?.with_policies(&complete).update(&layer)?;
    /// assert_eq!(layer.find_policy("address").expect("it is in the file").quota().limit(), 10);
    /// assert!(layer.find_policy("all").is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_policies(self, change: impl FnOnce(Vec<Policy>) -> Vec<Policy>) -> Self {
        let policies = change(self.policies);
        let has_none = self.has_none && policies.is_empty();
        Self { policies, has_none, ..self }
    }

    /// A layer with what `[[policy]]` and `[server]` set: its policies, how the client's address is known, and what
    /// happens to requests the store could not decide. If the file has `[fleet]` or `[ratios]`, call
    /// [`fleet`](Self::fleet) or [`ratio_store`](Self::ratio_store) before.
    ///
    /// What no file sets, such as [headers](RateLimitLayer::headers), is set on the layer. Policies that are added to the
    /// layer are removed by the next [`update`](Self::update): add them by [`with_policies`](Self::with_policies).
    ///
    /// # Errors
    ///
    /// If the call for a table `[fleet]` or `[ratios]` is missing, which would have no effect, and as
    /// [`RateLimitLayer::try_policies`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    /// use tollgate::{MemoryStore, RateLimitHeaders};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let config = Config::from_toml(
    ///     r#"
    ///     [[policy]]
    ///     name = "all"
    ///     limit = 1_000
    ///     window = "60s"
    ///
    ///     [server]
    ///     on_failure = "deny"
    ///     "#,
    /// )?;
    /// let layer = config.layer(MemoryStore::new())?.headers(RateLimitHeaders::both());
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn layer(&self, store: impl Store) -> Result<RateLimitLayer, Error> {
        let Self { policies, server, .. } = self;
        if let Some(message) = self.uncalled().values().next() {
            return Err(Error::invalid(message.as_str()));
        }
        let layer = RateLimitLayer::composite(store).on_failure(server.on_failure);
        let layer = layer.allow_for(server.allow_for).instances(server.instances);
        #[cfg(feature = "axum")]
        let layer = layer.client(server.client.clone());
        let layer = layer.try_policies(policies.iter().cloned())?;
        if self.has_none {
            layer.clone().live().remove_policies();
        }
        Ok(layer)
    }

    /// Returns the fleet shedder of the file, if it has one, with the `instances` of `[server]`.
    ///
    /// It takes effect at the start: [`update`](Self::update) does not change it, and
    /// [`has_fleet_of`](Self::has_fleet_of) returns whether a newer file would.
    ///
    /// # Errors
    ///
    /// If the store has no slots: all else was checked when the file was read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    /// use tollgate::MemoryStore;
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let config = Config::from_toml(
    ///     r#"
    ///     [fleet]
    ///     limit = 500
    ///     reserve = 0.2
    ///     critical = { header = "x-priority", value = "high" }
    ///     "#,
    /// )?;
    /// assert!(config.fleet(MemoryStore::new())?.is_some());
    /// assert!(Config::default().fleet(MemoryStore::new())?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fleet(&self, store: impl Store) -> Result<Option<FleetShedLayer>, Error> {
        self.uncalled().remove("fleet");
        let layer = |fleet: &Fleet| Ok(fleet.layer(store)?.instances(self.server.instances));
        self.fleet.as_ref().map(layer).transpose()
    }

    /// Returns whether another file has the same fleet shedder, or none as well.
    pub fn has_fleet_of(&self, other: &Self) -> bool {
        self.fleet == other.fleet
    }

    /// Returns the ratio store of the file, if it has one, with the `instances` of `[server]`, for
    /// the [`layer`](Self::layer).
    ///
    /// It takes effect at the start: [`update`](Self::update) does not change it, and
    /// [`has_ratios_of`](Self::has_ratios_of) returns whether a newer file would.
    ///
    /// # Errors
    ///
    /// None at present: all settings were checked when the file was read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    /// use tollgate::ratio::MemoryTally;
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let config = Config::from_toml(
    ///     r#"
    ///     [[policy]]
    ///     name = "all"
    ///     limit = 50_000
    ///     window = "1s"
    ///
    ///     [ratios]
    ///     ttl = "20s"
    ///     "#,
    /// )?;
    /// if let Some(store) = config.ratio_store(MemoryTally::new())? {
    ///     let layer = config.layer(store)?;
    /// #   let _ = layer;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ratio_store(&self, tally: impl Tally) -> Result<Option<RatioStore>, Error> {
        self.uncalled().remove("ratio_store");
        self.ratios.as_ref().map(|ratios| ratios.store(tally, self.server.instances)).transpose()
    }

    /// Returns whether another file has the same ratios, or none as well.
    pub fn has_ratios_of(&self, other: &Self) -> bool {
        self.ratios == other.ratios
    }

    /// Updates a layer in use, its clones and its services, to this file: that of a [layer](Self::layer)
    /// which was made of an older one.
    ///
    /// All policies of the layer are [replaced](LiveLayer::replace_policies) by those of this file, and
    /// in the same swap the proxies that are trusted. Counters are kept.
    ///
    /// `on_failure`, `allow_for` and `instances` of a layer cannot be replaced: if this file has other
    /// values, those of the layer stay in force, and one warning with the code `settings_stay` names them.
    ///
    /// # Errors
    ///
    /// As [`LiveLayer::replace_policies`]: then the policies in force stay.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    /// use tollgate::MemoryStore;
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let file = |limit| format!("[[policy]]\nname = \"all\"\nlimit = {limit}\nwindow = \"60s\"");
    /// let config = Config::from_toml(&file(100))?;
    /// let layer = config.layer(MemoryStore::new())?.live();
    /// // The file has changed.
    /// Config::from_toml(&file(200))?.update(&layer)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self, layer: &LiveLayer) -> Result<(), Error> {
        if self.has_none {
            layer.remove_policies();
        }
        #[cfg(feature = "axum")]
        layer.replace_client(&self.server.client, self.policies.iter().cloned())?;
        #[cfg(not(feature = "axum"))]
        layer.replace_policies(self.policies.iter().cloned())?;
        let settings = self.server.differing(layer);
        if !settings.is_empty() {
            tracing::warn!(
                code = "settings_stay",
                ?settings,
                "on_failure, allow_for and instances stay as they were: restart the server to change them"
            );
        }
        Ok(())
    }

    fn uncalled(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.uncalled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(source: &Source<'_>) -> Result<Self, Error> {
        let file = toml::from_str::<File>(source.text).map_err(Fault::from);
        file.and_then(|file| file.build(source)).map_err(|fault| source.error(&fault))
    }
}

impl File {
    /// Makes settings of the tables. The server's come first, as keys depend on its proxies.
    fn build(self, source: &Source<'_>) -> Result<Config, Fault> {
        let has_shared = self.fleet.is_some() || self.ratios.is_some();
        let server = self.server.map_or_else(|| Ok(Server::default()), |table| table.build(has_shared))?;
        let has_none = self.policy.as_ref().is_some_and(Vec::is_empty);
        let (mut policies, mut names) = (Vec::new(), Names::new());
        for table in self.policy.unwrap_or_default() {
            policies.push(table.build(&server)?);
            // Policies that share a name could share their counters.
            if let Some(first) = names.get(table.name.get_ref()) {
                let (name, (line, _)) = (&table.name, source.position(&first.span()));
                let message = format!("policy name {:?} is taken on line {line}: give each its own", name.get_ref());
                return Err(Fault::new(name, message));
            }
            names.insert(table.name.get_ref().clone(), table.name);
        }
        let places = [self.fleet.as_ref().map(Spanned::span), self.ratios.as_ref().map(Spanned::span)];
        let uncalled = ["fleet", "ratio_store"].into_iter().zip(places).filter_map(|(call, place)| {
            let message = format!("this table has no effect without Config::{call}: call it before Config::layer");
            Some((call, source.error(&Fault(place?, message)).to_string()))
        });
        let uncalled = Arc::new(Mutex::new(uncalled.collect()));
        self.ratios.as_ref().map_or(Ok(()), |table| table.get_ref().check(&policies, &names))?;
        let fleet = self.fleet.map(|table| FleetTable::build(&table, &names, source)).transpose()?;
        let ratios = self.ratios.map(Spanned::into_inner);
        Ok(Config { policies, has_none, server, fleet, ratios, uncalled })
    }
}
