use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{Decision, Error, Key, Limiter, LiveLayer, OnFailure, RedisStore};

use crate::entry::Entry;
use crate::fleet::{PUBLISHED_EACH, PolicyState, Publisher, states};
use crate::source::{EntryFile, Source};
use crate::top::{Top, TopKey};

/// How often overrides are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often overrides that have not changed are applied.
const APPLIED_EACH: Duration = Duration::from_secs(5);

/// Overrides and counters of the layers of this process, and of a fleet.
///
/// Clones share all state.
#[derive(Clone)]
#[must_use]
pub struct Admin(Arc<Inner>);

struct Inner {
    source: Source,
    layers: Vec<(String, LiveLayer)>,
    top: Option<Top>,
    /// Held while entries are read and applied, so that an older read does not undo a newer one.
    applied: tokio::sync::Mutex<Applied>,
}

#[derive(Default)]
struct Applied {
    /// The entries that were applied last, and when.
    last: Option<(BTreeMap<String, Entry>, Instant)>,
    /// `true` if the last read failed. Kept so that each outage is logged once.
    is_away: bool,
}

impl Admin {
    fn new(source: Source) -> Self {
        Self(Arc::new(Inner { source, layers: Vec::new(), top: None, applied: tokio::sync::Mutex::default() }))
    }

    /// Keeps overrides in this process alone.
    pub fn local() -> Self {
        Self::new(Source::Local(Mutex::default()))
    }

    /// Keeps overrides in Redis, for all processes whose store has the same prefix.
    ///
    /// The user of the store also needs `+hgetall +hset +hdel +hlen +hexists +get +zadd +zrangebyscore
    /// +zremrangebyscore +pexpire`, on the keys of the prefix.
    pub fn redis(store: RedisStore) -> Self {
        Self::new(Source::Redis(store))
    }

    /// Keeps overrides in a file, which is created with the first override.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Source::File(EntryFile::new(path.into())))
    }

    /// Adds a layer. From now on, the admin owns the overrides of this layer.
    ///
    /// # Panics
    ///
    /// If there is a layer with this name already, or the admin was cloned or [started](Self::start).
    pub fn layer(mut self, name: &str, layer: LiveLayer) -> Self {
        let inner = Arc::get_mut(&mut self.0).expect("layers are added before an admin is shared");
        assert!(inner.layers.iter().all(|(other, _)| other != name), "there are two layers named {name:?}");
        inner.layers.push((name.to_owned(), layer));
        self
    }

    /// Lists the keys of `top`, and publishes them for a [`Fleet`](crate::Fleet) with the policies.
    ///
    /// # Panics
    ///
    /// If the admin was cloned or [started](Self::start).
    pub fn top(mut self, top: Top) -> Self {
        let inner = Arc::get_mut(&mut self.0).expect("it is set before an admin is shared");
        inner.top = Some(top);
        self
    }

    /// Lists the keys with most requests and denials. Empty without a [`Top`].
    #[must_use]
    pub fn top_keys(&self) -> Vec<TopKey> {
        self.0.top.as_ref().map(Top::list).unwrap_or_default()
    }

    /// Starts to read overrides each second, and on Redis to publish the policies every 10 s for a
    /// [`Fleet`](crate::Fleet), in a task that ends with the last clone.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let (publisher, mut last): (_, Option<Instant>) = (Publisher::new(), None);
            while let Some(inner) = Weak::upgrade(&inner) {
                // A failed read was logged, and the last known overrides hold.
                let is_read = inner.refresh().await.is_ok();
                if let Source::Redis(store) = &inner.source
                    && is_read
                    && last.is_none_or(|last| last.elapsed() >= PUBLISHED_EACH)
                {
                    last = Some(Instant::now());
                    if let Err(error) = publisher.publish(store, &inner.layers, inner.top.as_ref()).await {
                        tracing::debug!(error = format!("{error:#}"), "policies were not published");
                    }
                }
                drop(inner);
                sleep(INTERVAL).await;
            }
        });
    }

    /// Lists the policies of all layers.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyState> {
        states(&self.0.layers)
    }

    /// Reads the overrides that have not ended.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub async fn overrides(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.0.source.read().await?.0.into_values().collect())
    }

    /// Sets an override, in place of one of the same kind for the same layer, policy and key.
    ///
    /// The override is in force in this process when this method returns, and in other processes within about a second.
    /// The key is a whole key or, if the policy is given, the value that a client sends.
    ///
    /// # Errors
    ///
    /// If no layer accepts the override, because no policy has its name, the policy makes no such key, or an end is
    /// missing. If the override cannot be written.
    pub async fn set(&self, entry: Entry) -> Result<(), Error> {
        let mut entry = self.0.with_key(entry)?;
        let now = self.0.source.now_ms().await?;
        entry.end_by(now)?;
        let one = entry.to_override(now)?;
        let mut refused = Error::invalid(format!("there is no layer {:?}", entry.layer));
        for (_, layer) in self.0.layers.iter().filter(|(name, _)| entry.is_for(name)) {
            match layer.overrides().check(&one) {
                Ok(()) => {
                    self.0.source.set(entry).await?;
                    // If it cannot be read now, it is read within a second of the store's return.
                    let _ = self.0.refresh().await;
                    return Ok(());
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Removes the override of the same kind for the same layer, policy and key. Returns `true` if there was one.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub async fn remove(&self, entry: Entry) -> Result<bool, Error> {
        // An entry as it is listed can be removed also if no layer has its policy any more.
        let mut removed = self.0.source.remove(&entry.id()).await?;
        if !removed {
            removed = self.0.source.remove(&self.0.with_key(entry)?.id()).await?;
        }
        let _ = self.0.refresh().await;
        Ok(removed)
    }

    /// Returns the units of a policy that a key has left, without taking any.
    ///
    /// # Errors
    ///
    /// If no layer has the policy, the policy makes no such key, or the store fails.
    pub async fn show(&self, layer: Option<&str>, policy: &str, key: &str) -> Result<Decision, Error> {
        let (limiter, key) = self.0.counters(layer, policy, key)?.swap_remove(0);
        limiter.peek(&key).await
    }

    /// Resets the counters of a key. Returns the number of counters that had taken units.
    ///
    /// # Errors
    ///
    /// See [`show`](Self::show).
    pub async fn reset(&self, layer: Option<&str>, policy: &str, key: &str) -> Result<usize, Error> {
        let mut changed = 0;
        for (limiter, key) in self.0.counters(layer, policy, key)? {
            changed += limiter.reset(&key).await?;
        }
        Ok(changed)
    }

    /// Refunds units to a key.
    ///
    /// # Errors
    ///
    /// See [`show`](Self::show).
    pub async fn refund(&self, layer: Option<&str>, policy: &str, key: &str, units: u64) -> Result<usize, Error> {
        let mut changed = 0;
        for (limiter, key) in self.0.counters(layer, policy, key)? {
            changed += limiter.refund(&key, units).await?;
        }
        Ok(changed)
    }

    /// Lifts the ban of a key. Returns the number of policies that had a ban or strikes.
    ///
    /// # Errors
    ///
    /// See [`show`](Self::show). If the policy has no ban.
    pub async fn lift_ban(&self, layer: Option<&str>, policy: &str, key: &str) -> Result<usize, Error> {
        let mut changed = 0;
        for (limiter, key) in self.0.counters(layer, policy, key)? {
            changed += limiter.lift_ban(&key).await?;
        }
        Ok(changed)
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("layers", &self.0.layers).finish_non_exhaustive()
    }
}

impl Inner {
    async fn refresh(&self) -> Result<(), Error> {
        let mut applied = self.applied.lock().await;
        let read = self.source.read().await;
        let was_away = std::mem::replace(&mut applied.is_away, read.is_err());
        let (entries, now) = match read {
            Ok(entries) => entries,
            Err(error) => {
                if !was_away {
                    let error = format!("{error:#}");
                    tracing::warn!(code = "overrides_unavailable", error, "overrides cannot be read");
                }
                return Err(error);
            }
        };
        if was_away {
            tracing::info!(code = "overrides_available", "overrides are read again");
        }
        // Policies that were replaced may accept what others did not.
        let is_old = applied.last.as_ref().is_none_or(|(last, at)| *last != entries || at.elapsed() >= APPLIED_EACH);
        if is_old {
            self.apply(&entries, now);
            applied.last = Some((entries, Instant::now()));
        }
        Ok(())
    }

    fn apply(&self, entries: &BTreeMap<String, Entry>, now: u64) {
        for (name, layer) in &self.layers {
            let of_layer = entries.values().filter(|entry| entry.is_for(name));
            layer.overrides().replace(of_layer.filter_map(|entry| entry.to_override(now).ok()));
        }
    }

    fn layers<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a LiveLayer> {
        self.layers.iter().filter(move |(other, _)| name.is_none_or(|name| name == other)).map(|(_, layer)| layer)
    }

    /// Turns the value that a client sends into a whole key. Fails if layers make different keys of it.
    fn with_key(&self, mut entry: Entry) -> Result<Entry, Error> {
        if let (Some(policy), Some(text)) = (&entry.policy, &entry.key) {
            let layers = self.layers(entry.layer.as_deref()).filter(|layer| layer.find_policy(policy).is_some());
            let mut layers = layers.peekable();
            if layers.peek().is_none() {
                return Err(self.no_policy(entry.layer.as_deref(), policy));
            }
            let keys = layers.map(|layer| key_of(layer, policy, text)).collect::<Result<BTreeSet<Key>, Error>>()?;
            if keys.len() > 1 {
                return Err(Error::invalid(format!("layers make different keys of {text:?}: name the layer")));
            }
            if let Some(key) = keys.first() {
                entry.key = Some(key.as_str().to_owned());
            }
        }
        Ok(entry)
    }

    /// The counters of all layers that have the policy, at least one, without the fallback, in which nothing was taken.
    fn counters(&self, layer: Option<&str>, policy: &str, key: &str) -> Result<Vec<(Limiter, Key)>, Error> {
        let found = self.layers(layer).filter(|layer| layer.find_policy(policy).is_some());
        let counter = |layer: &LiveLayer| {
            Ok((layer.limiter().only([policy])?.on_failure(OnFailure::Deny), key_of(layer, policy, key)?))
        };
        let counters = found.map(counter).collect::<Result<Vec<_>, Error>>()?;
        if counters.is_empty() {
            return Err(self.no_policy(layer, policy));
        }
        Ok(counters)
    }

    fn no_policy(&self, layer: Option<&str>, policy: &str) -> Error {
        let policies = self.layers(layer).flat_map(LiveLayer::policies);
        let all: Vec<String> = policies.map(|policy| policy.name().to_owned()).collect();
        Error::invalid(format!("no policy has the name {policy:?}; there are {all:?}"))
    }
}

/// A text that begins with the kind of the policy's keys is a whole key. Any other text is a value.
fn key_of(layer: &LiveLayer, policy: &str, text: &str) -> Result<Key, Error> {
    let found =
        layer.find_policy(policy).ok_or_else(|| Error::invalid(format!("no policy has the name {policy:?}")))?;
    let whole = text.parse::<Key>().ok().filter(|key| {
        let one = tollgate::overrides::Override::exempt(INTERVAL).key(key.clone());
        one.policy(policy).is_ok_and(|one| layer.overrides().check(&one).is_ok())
    });
    match whole {
        Some(key) => Ok(key),
        None => found.key_of(text),
    }
}
