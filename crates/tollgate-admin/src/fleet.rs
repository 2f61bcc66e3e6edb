use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::deadpool_redis::redis::{FromRedisValue, Value, cmd};
use tollgate::{Ban, Decision, Error, Key, Limiter, LiveLayer, OnFailure, Policy, Quota, RedisStore, Rule};

use crate::entry::Entry;
use crate::source::{Source, is_number, redis_ms};
use crate::top::{Top, TopKey, merged};

/// How often a process publishes its policies.
pub(crate) const PUBLISHED_EACH: Duration = Duration::from_secs(10);
/// Milliseconds after which a process that has not published is gone.
const GONE_MS: u64 = 30_000;
/// Keys that a process publishes of its [`Top`].
const MAX_TOP: usize = 100;
/// Processes that are read.
const MAX_PROCESSES: usize = 1_000;

/// The overrides and counters of a running fleet, for a program that has none of its layers.
///
/// It finds policies by what the processes of the fleet publish: an [`Admin`](crate::Admin) on Redis that was
/// [started](crate::Admin::start) writes its policies to `<prefix>:process:<name>` every 10 s, for 30 s.
#[derive(Debug)]
#[must_use]
pub struct Fleet {
    store: RedisStore,
    source: Source,
}

/// A policy of a layer, in this process or in those of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PolicyState {
    /// Name of the layer.
    pub layer: String,
    /// Name of the policy.
    pub policy: String,
    /// Name of the algorithm, such as `"token_bucket"`.
    pub algorithm: String,
    /// Units per window.
    pub limit: u64,
    /// The window, in microseconds.
    pub window_us: u64,
    /// The most units that can be taken at once.
    pub capacity: u64,
    /// The calendar whose windows count, if any.
    #[serde(default)]
    pub calendar: Option<String>,
    /// The kind of its keys, such as `"header x-user"`. `None` if it is not known.
    #[serde(default)]
    pub key_kind: Option<String>,
    /// Whether keys have a hash of the value that clients send.
    #[serde(default)]
    pub is_hashed: bool,
    /// The state of the circuit breaker of the process that published last.
    pub breaker: String,
    /// Number of processes that have the policy.
    #[serde(default)]
    pub processes: usize,
}

#[derive(Serialize, Deserialize)]
struct Process {
    policies: Vec<PolicyState>,
    #[serde(default)]
    top: Vec<TopKey>,
}

impl Fleet {
    /// Uses the Redis and the prefix of the fleet's store.
    pub fn new(store: RedisStore) -> Self {
        Self { source: Source::Redis(store.clone()), store }
    }

    /// Lists the policies of all processes that published within 30 s.
    ///
    /// # Errors
    ///
    /// If there are none, or Redis fails.
    pub async fn policies(&self) -> Result<Vec<PolicyState>, Error> {
        let mut found: BTreeMap<(String, String), PolicyState> = BTreeMap::new();
        for process in live_processes(&self.store).await? {
            for policy in process.policies {
                let id = (policy.layer.clone(), policy.policy.clone());
                let processes = found.get(&id).map_or(0, |other| other.processes) + 1;
                found.insert(id, PolicyState { processes, ..policy });
            }
        }
        if found.is_empty() { Err(self.nobody()) } else { Ok(found.into_values().collect()) }
    }

    /// Lists the keys with most requests and denials of all processes whose [`Admin`](crate::Admin) has a [`Top`].
    ///
    /// Counts are of the last 5 to 10 minutes, and at most 10 s old.
    ///
    /// # Errors
    ///
    /// If Redis fails.
    pub async fn top(&self) -> Result<Vec<TopKey>, Error> {
        Ok(merged(live_processes(&self.store).await?.into_iter().flat_map(|process| process.top)))
    }

    /// Lists the overrides that have not ended.
    ///
    /// # Errors
    ///
    /// If Redis fails.
    pub async fn overrides(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.source.read().await?.0.into_values().collect())
    }

    /// Returns the time by which overrides end, in milliseconds of Unix time.
    ///
    /// # Errors
    ///
    /// If Redis fails.
    pub async fn now_ms(&self) -> Result<u64, Error> {
        self.source.now_ms().await
    }

    /// Sets an override, which holds in all processes within about a second, and returns it with its whole key and end.
    ///
    /// The key is the value that a client sends, if the policy is given, or a whole key.
    ///
    /// # Errors
    ///
    /// If no process has the policy, or none of the policies has such keys. If the entry needs an end and has none.
    pub async fn set(&self, entry: Entry) -> Result<Entry, Error> {
        let mut entry = self.with_key(entry).await?;
        let now = self.source.now_ms().await?;
        entry.end_by(now)?;
        drop(entry.to_override(now)?);
        self.source.set(entry.clone()).await?;
        Ok(entry)
    }

    /// Removes the override of the same kind for the same layer, policy and key. Returns `true` if there was one.
    ///
    /// # Errors
    ///
    /// See [`set`](Self::set).
    pub async fn remove(&self, entry: Entry) -> Result<bool, Error> {
        // An entry as it is listed can be removed also if no process has its policy any more.
        if self.source.remove(&entry.id()).await? {
            return Ok(true);
        }
        self.source.remove(&self.with_key(entry).await?.id()).await
    }

    /// Returns what a key has left of a policy with the overrides in force, without taking anything. The decision has no
    /// outcome if the key is exempt or the policy is off.
    ///
    /// # Errors
    ///
    /// If no process has the policy, its keys are not known, its windows are a calendar's, or Redis fails.
    pub async fn show(&self, layer: Option<&str>, policy: &str, key: &str) -> Result<Decision, Error> {
        let state = self.find(layer, policy).await?;
        let (limiter, key) = self.counter(&state, key)?;
        let (entries, now) = self.source.read().await?;
        let in_force = entries.values().filter(|entry| entry.is_for(&state.layer));
        limiter.overrides().replace(in_force.filter_map(|entry| entry.to_override(now).ok()));
        limiter.peek(&key).await
    }

    /// Resets the counters of a key. Returns the number of those that had taken something.
    ///
    /// # Errors
    ///
    /// See [`show`](Self::show).
    pub async fn reset(&self, layer: Option<&str>, policy: &str, key: &str) -> Result<usize, Error> {
        let (limiter, key) = self.counter(&self.find(layer, policy).await?, key)?;
        limiter.reset(&key).await
    }

    /// Refunds units to a key.
    ///
    /// # Errors
    ///
    /// See [`show`](Self::show).
    pub async fn refund(&self, layer: Option<&str>, policy: &str, key: &str, units: u64) -> Result<usize, Error> {
        let (limiter, key) = self.counter(&self.find(layer, policy).await?, key)?;
        limiter.refund(&key, units).await
    }

    /// Lifts the ban of a key. Returns the number of policies that had a ban or strikes.
    ///
    /// # Errors
    ///
    /// See [`show`](Self::show).
    pub async fn lift_ban(&self, layer: Option<&str>, policy: &str, key: &str) -> Result<usize, Error> {
        let (limiter, key) = self.counter(&self.find(layer, policy).await?, key)?;
        limiter.lift_ban(&key).await
    }

    async fn find(&self, layer: Option<&str>, policy: &str) -> Result<PolicyState, Error> {
        let all = self.policies().await?;
        let is = |one: &&PolicyState| one.policy == policy && layer.is_none_or(|layer| layer == one.layer);
        let names = || all.iter().map(|one| format!("{}/{}", one.layer, one.policy)).collect::<Vec<_>>();
        let of = layer.map(|layer| format!("{layer}/")).unwrap_or_default();
        let unknown =
            || Error::invalid(format!("no process has the policy {of}{policy}; there are {}", names().join(", ")));
        all.iter().find(is).cloned().ok_or_else(unknown)
    }

    /// Says that no process has published its policies.
    fn nobody(&self) -> Error {
        let prefix = self.store.prefix();
        Error::invalid(format!(
            "no process has published policies within 30 s under the prefix {prefix:?} of this Redis"
        ))
    }

    /// Turns the value that a client sends into a whole key. Fails if no process has the layer or policy, or none of
    /// the policies has such keys.
    async fn with_key(&self, mut entry: Entry) -> Result<Entry, Error> {
        if let Some(policy) = &entry.policy {
            let policy = self.find(entry.layer.as_deref(), policy).await?;
            if let Some(key) = &mut entry.key {
                policy.key_of(key)?.as_str().clone_into(key);
            }
            return Ok(entry);
        }
        let all = self.policies().await?;
        let mut of_layer = all.iter().filter(|one| entry.is_for(&one.layer)).peekable();
        if of_layer.peek().is_none() {
            let layer = entry.layer.unwrap_or_default();
            return Err(Error::invalid(format!("no process has the layer {layer:?}")));
        }
        if let Some(key) = &entry.key {
            if key.parse::<Key>().is_err() {
                let text = format!("the key {key:?} needs its policy, or its kind, such as \"header x-user:ada\"");
                return Err(Error::invalid(text));
            }
            if !of_layer.any(|one| one.key_kind.is_none() || one.is_whole(key)) {
                return Err(Error::invalid(format!("no policy makes the key {key}")));
            }
        }
        Ok(entry)
    }

    fn counter(&self, policy: &PolicyState, key: &str) -> Result<(Limiter, Key), Error> {
        let hour = Duration::from_secs(3_600);
        // Its numbers need not be those of the fleet, because they are not part of the name of a ban.
        let rule = Rule::try_new(&policy.policy, policy.quota()?)?.ban(Ban::new(1, hour, hour));
        let limiter = Limiter::try_new(self.store.clone(), [rule])?.on_failure(OnFailure::Deny);
        Ok((limiter, policy.key_of(key)?))
    }
}

impl PolicyState {
    fn new(layer: &str, live: &LiveLayer, policy: &Policy) -> Self {
        let quota = policy.quota();
        let key = ["a", "192.0.2.1"].into_iter().find_map(|probe| policy.key_of(probe).ok());
        let kind = key.as_ref().and_then(|key| key.as_str().split_once(':'));
        Self {
            layer: layer.to_owned(),
            policy: policy.name().to_owned(),
            algorithm: quota.algorithm().as_str().to_owned(),
            limit: quota.limit(),
            window_us: u64::try_from(quota.window().as_micros()).unwrap_or(u64::MAX),
            capacity: quota.capacity(),
            calendar: quota.calendar().map(|calendar| calendar.to_string()),
            key_kind: kind.map(|(kind, _)| kind.to_owned()),
            is_hashed: kind.is_some_and(|(_, value)| value.starts_with('#')),
            breaker: live.breaker_state().to_string(),
            processes: 1,
        }
    }

    /// A text that begins with the kind of the policy's keys is a whole key, any other text a value.
    fn key_of(&self, text: &str) -> Result<Key, Error> {
        let Some(kind) = &self.key_kind else { return text.parse() };
        match self.is_whole(text) {
            true => text.parse(),
            false if self.is_hashed => Ok(Key::hashed(kind, text)),
            false => Ok(Key::new(kind, text)),
        }
    }

    fn is_whole(&self, text: &str) -> bool {
        let rest = self.key_kind.as_deref().and_then(|kind| text.strip_prefix(kind));
        rest.is_some_and(|rest| rest.starts_with(':'))
    }

    fn quota(&self) -> Result<Quota, Error> {
        if let Some(calendar) = &self.calendar {
            let text =
                format!("policy {:?} counts by the calendar {calendar}: ask a process of the fleet", self.policy);
            return Err(Error::invalid(text));
        }
        let quota = Quota::try_new(self.algorithm.parse()?, self.limit, Duration::from_micros(self.window_us))?;
        match self.algorithm.as_str() {
            "token_bucket" => quota.try_burst(self.capacity),
            "leaky_bucket" => quota.try_queue(self.capacity.saturating_sub(1)),
            _ => Ok(quota),
        }
    }
}

pub(crate) fn states(layers: &[(String, LiveLayer)]) -> Vec<PolicyState> {
    let of = |(name, live): &(String, LiveLayer)| {
        let state = |policy| PolicyState::new(name, live, &policy);
        live.policies().into_iter().map(state).collect::<Vec<_>>()
    };
    layers.iter().flat_map(of).collect()
}

/// Publishes policies under a name that no other process has.
#[derive(Debug)]
pub(crate) struct Publisher {
    name: String,
}

impl Publisher {
    pub(crate) fn new() -> Self {
        Self { name: format!("{:x}-{}", RandomState::new().hash_one(0), std::process::id()) }
    }

    /// Writes one value, and its name to the set of all processes, from which it drops those that are gone: so what a
    /// process does for this does not grow with the fleet.
    pub(crate) async fn publish(
        &self,
        store: &RedisStore,
        layers: &[(String, LiveLayer)],
        top: Option<&Top>,
    ) -> Result<(), Error> {
        let mut top = top.map(Top::list).unwrap_or_default();
        top.truncate(MAX_TOP);
        let process = Process { policies: states(layers), top };
        let text = serde_json::to_string(&process).map_err(|error| Error::store("no JSON", error))?;
        let (now, all) = (redis_ms(store).await?, processes_key(store));
        let mut set = cmd("SET");
        set.arg(process_key(store, &self.name)).arg(text).arg("PX").arg(GONE_MS);
        store.command_checked(&set, |reply| *reply == Value::Okay).await?;
        store.command_checked(cmd("ZADD").arg(&all).arg(now).arg(&self.name), is_number).await?;
        let gone = now.saturating_sub(GONE_MS);
        store.command_checked(cmd("ZREMRANGEBYSCORE").arg(&all).arg(0).arg(gone), is_number).await?;
        store.command_checked(cmd("PEXPIRE").arg(&all).arg(2 * GONE_MS), is_number).await.map(drop)
    }
}

fn processes_key(store: &RedisStore) -> String {
    format!("{}:processes", store.prefix())
}

fn process_key(store: &RedisStore, name: &str) -> String {
    format!("{}:process:{name}", store.prefix())
}

/// Reads what the processes that are not gone have published.
async fn live_processes(store: &RedisStore) -> Result<Vec<Process>, Error> {
    let since = redis_ms(store).await?.saturating_sub(GONE_MS);
    let is_list = |reply: &Value| matches!(reply, Value::Array(_));
    let names = cmd("ZRANGEBYSCORE").arg(processes_key(store)).arg(since).arg("+inf").take();
    let names = store.command_checked(&names, is_list).await?;
    let names: Vec<String> =
        FromRedisValue::from_redis_value(names).map_err(|error| Error::store("no names of processes", error))?;
    let mut live = Vec::new();
    for name in names.into_iter().take(MAX_PROCESSES) {
        let is_text = |reply: &Value| matches!(reply, Value::BulkString(_) | Value::Nil);
        let text = store.command_checked(cmd("GET").arg(process_key(store, &name)), is_text).await?;
        if let Value::BulkString(text) = text {
            // What a process of another version published is left out.
            live.extend(serde_json::from_slice::<Process>(&text));
        }
    }
    Ok(live)
}
