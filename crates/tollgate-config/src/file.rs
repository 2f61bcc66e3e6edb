//! Files of policies, which are read and checked as a whole. They take effect when a layer is built from them or
//! updated.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tollgate::store::Store;
use tollgate::{Error, LiveLayer, Policy, RateLimitLayer};
use toml::Spanned;

use super::error::{Fault, Source};
use super::policy::PolicyTable;
use super::server::{Server, ServerTable};

/// Policies and settings from a TOML file. See the [crate](crate) for its fields.
///
/// The default has no policies, and default settings of the server.
///
/// # Examples
///
/// ```
/// use tollgate_config::Config;
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
    policies: Vec<Policy>,
    /// Whether the file has `policy = []`, which is intended to remove all policies.
    has_none: bool,
    server: Server,
}

#[derive(Deserialize)]
struct File {
    policy: Option<Vec<PolicyTable>>,
    server: Option<ServerTable>,
}

impl Config {
    /// Reads a file's text.
    ///
    /// # Errors
    ///
    /// If the text is not TOML, or has a field that is unknown or can never work. The message is one line that starts
    /// with the line number in the file, and ends with the column.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let config = Config::from_toml("[[policy]]\nname = \"search\"\nlimit = 30\nwindow = \"60s\"")?;
    /// assert_eq!(config.policies()[0].name(), "search");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        Self::from_toml_without(text, &[])
    }

    /// Reads a file's text without some of its tables, which other crates read.
    ///
    /// # Errors
    ///
    /// Like [`from_toml`](Self::from_toml), for which any table but `[[policy]]` and `[server]` is an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let text = "[[policy]]\nname = \"all\"\nlimit = 100\nwindow = \"60s\"\n\n[fleet]\nlimit = 500";
    /// assert_eq!(Config::from_toml_without(text, &["fleet"])?.policies().len(), 1);
    ///
    /// let error = Config::from_toml(text).unwrap_err().to_string();
    /// assert!(error.starts_with("line 6: unknown field `fleet`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_toml_without(text: &str, tables: &[&str]) -> Result<Self, Error> {
        Self::read(&Source { name: None, text }, tables)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, and like [`from_toml`](Self::from_toml). The message starts with the path.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_file_without(path, &[])
    }

    /// Reads a file without some of its tables, as [`from_toml_without`](Self::from_toml_without).
    ///
    /// # Errors
    ///
    /// Like [`from_file`](Self::from_file).
    pub fn from_file_without(path: impl AsRef<Path>, tables: &[&str]) -> Result<Self, Error> {
        Source::of_file(path.as_ref(), |source| Self::read(source, tables))
    }

    /// Returns the policies, in the order of the file.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the policies without the rest, in the order of the file.
    pub fn into_policies(self) -> Vec<Policy> {
        self.policies
    }

    /// Replaces the policies with the result of `change`.
    ///
    /// The closure completes policies with settings that no file has, such as a [`when`](Policy::when) or a quota that
    /// is looked up, and may add policies. Read every newer file with the same closure, so that [`layer`](Self::layer)
    /// and [`update`](Self::update) have the same policies. If the closure adds a policy, [`update`](Self::update) does
    /// not reject a file without policies any more.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota};
    /// use tollgate_config::Config;
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let complete = |policies: Vec<Policy>| {
    ///     let complete = |policy: Policy| match policy.name() {
    ///         "address" => policy.when(|parts| !parts.headers.contains_key("x-api-key")),
    ///         _ => policy,
    ///     };
    ///     policies.into_iter().map(complete).chain([Policy::new("all", Quota::per_second(1_000))]).collect()
    /// };
    ///
    /// let file = |limit| format!("[[policy]]\nname = \"address\"\nkey = \"client_ip\"\nlimit = {limit}\nwindow = \"60s\"");
    /// let layer = Config::from_toml(&file(60))?.with_policies(complete).layer(MemoryStore::new())?.live();
    /// // The file has changed.
    /// Config::from_toml(&file(10))?.with_policies(complete).update(&layer)?;
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

    /// Creates a layer with the settings of `[[policy]]` and `[server]`: policies, how the client's address is
    /// determined, and how requests are treated that the store could not decide.
    ///
    /// Settings that no file has, such as [headers](RateLimitLayer::headers), are set on the layer. The next
    /// [`update`](Self::update) removes policies that were added to the layer: add them by
    /// [`with_policies`](Self::with_policies).
    ///
    /// # Errors
    ///
    /// Like [`RateLimitLayer::try_policies`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
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

    /// Updates a layer in use, its clones and its services to this file, if an older file made the
    /// [layer](Self::layer).
    ///
    /// The policies of this file [replace](LiveLayer::replace_policies) all policies of the layer, and its trusted
    /// proxies replace the layer's in the same swap. Counters are kept.
    ///
    /// `on_failure`, `allow_for` and `instances` of a layer cannot be replaced: if this file has other values, the
    /// values of the layer stay in force, and one warning with the code `settings_stay` names them.
    ///
    /// # Errors
    ///
    /// Like [`LiveLayer::replace_policies`]. On an error the policies in force stay.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
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
            tracing::warn!(code = "settings_stay", ?settings, "changed settings need a restart");
        }
        Ok(())
    }

    fn read(source: &Source<'_>, without: &[&str]) -> Result<Self, Error> {
        let tables = toml::from_str::<BTreeMap<Spanned<String>, Spanned<IgnoredAny>>>(source.text).map_err(Fault::from);
        let others = tables.and_then(|tables| check_tables(tables.keys(), without));
        let config = others.and_then(|has_others| toml::from_str::<File>(source.text)?.build(source, has_others));
        config.map_err(|fault| source.error(&fault))
    }
}

fn check_tables<'a>(tables: impl Iterator<Item = &'a Spanned<String>>, without: &[&str]) -> Result<bool, Fault> {
    let mut others = tables.filter(|name| !["policy", "server"].contains(&name.get_ref().as_str())).peekable();
    let has_others = others.peek().is_some();
    match others.find(|name| !without.contains(&name.get_ref().as_str())) {
        None => Ok(has_others),
        Some(name) => Err(Fault::new(
            name,
            format!(
                "unknown field `{}`, expected `policy` or `server`: correct it, or if another crate reads this table, name \
                 it to Config::from_file_without",
                name.get_ref()
            ),
        )),
    }
}

impl File {
    /// Builds the settings of the server first, because keys depend on its proxies.
    fn build(self, source: &Source<'_>, has_others: bool) -> Result<Config, Fault> {
        let server = self.server.map_or_else(|| Ok(Server::default()), |table| table.build(has_others))?;
        let has_none = self.policy.as_ref().is_some_and(Vec::is_empty);
        let (mut policies, mut names) = (Vec::new(), HashMap::<_, Spanned<String>>::new());
        for table in self.policy.unwrap_or_default() {
            policies.push(table.build(&server)?);
            // Policies that share a name could share their counters.
            if let Some(first) = names.get(table.name.get_ref()) {
                let (name, (line, _)) = (&table.name, source.position(&first.span()));
                let message = format!("policy name {:?} is taken on line {line}: each needs its own", name.get_ref());
                return Err(Fault::new(name, message));
            }
            names.insert(table.name.get_ref().clone(), table.name);
        }
        Ok(Config { policies, has_none, server })
    }
}
