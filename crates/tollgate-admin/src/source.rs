//! Storage of overrides: in this process, in Redis, or in a file.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::deadpool_redis::redis::{FromRedisValue, Value, cmd};
use tollgate::{Error, RedisStore};

use crate::entry::Entry;

/// Maximum number of entries that are read. A layer accepts as many.
const MAX_ENTRIES: usize = 10_000;

#[derive(Debug)]
pub(crate) enum Source {
    Local(Mutex<BTreeMap<String, Entry>>),
    Redis(RedisStore),
    File(EntryFile),
}

/// Entries by ID, and the present time of the clock by which they end, in milliseconds.
pub(crate) type Entries = (BTreeMap<String, Entry>, u64);

impl Source {
    /// Reads all entries that have not ended.
    pub(crate) async fn read(&self) -> Result<Entries, Error> {
        match self {
            Self::Local(entries) => {
                let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                let now = unix_ms();
                entries.retain(|_, entry| !is_over(entry, now));
                Ok((entries.clone(), now))
            }
            Self::File(file) => Ok((file.read().await?.entries, unix_ms())),
            Self::Redis(store) => read_redis(store).await,
        }
    }

    pub(crate) async fn now_ms(&self) -> Result<u64, Error> {
        match self {
            Self::Redis(store) => redis_ms(store).await,
            _ => Ok(unix_ms()),
        }
    }

    pub(crate) async fn set(&self, entry: Entry) -> Result<(), Error> {
        let id = entry.id();
        match self {
            Self::Local(entries) => {
                let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                if entries.len() >= MAX_ENTRIES && !entries.contains_key(&id) {
                    return Err(full());
                }
                entries.insert(id, entry);
                Ok(())
            }
            Self::File(file) => file.set(id, entry).await,
            Self::Redis(store) => {
                let text = serde_json::to_string(&entry).map_err(|error| Error::store("no JSON", error))?;
                let key = overrides_key(store);
                let exists = store.command_checked(cmd("HEXISTS").arg(&key).arg(&id), is_number).await?;
                if u64::from_redis_value(exists).unwrap_or_default() == 0 {
                    drop_ended(store, redis_ms(store).await?).await?;
                    let length = store.command_checked(cmd("HLEN").arg(&key), is_number).await?;
                    if u64::from_redis_value(length).unwrap_or_default() >= MAX_ENTRIES as u64 {
                        return Err(full());
                    }
                }
                store.command_checked(cmd("HSET").arg(&key).arg(id).arg(text), is_number).await.map(drop)
            }
        }
    }

    /// Returns `true` if there was one.
    pub(crate) async fn remove(&self, id: &str) -> Result<bool, Error> {
        match self {
            Self::Local(entries) => Ok(entries.lock().unwrap_or_else(PoisonError::into_inner).remove(id).is_some()),
            Self::File(file) => file.remove(id).await,
            Self::Redis(store) => {
                let mut command = cmd("HDEL");
                command.arg(overrides_key(store)).arg(id);
                let removed = store.command_checked(&command, is_number).await?;
                Ok(u64::from_redis_value(removed).unwrap_or_default() > 0)
            }
        }
    }
}

fn overrides_key(store: &RedisStore) -> String {
    format!("{}:overrides", store.prefix())
}

pub(crate) fn is_number(reply: &Value) -> bool {
    matches!(reply, Value::Int(_))
}

fn is_over(entry: &Entry, now_ms: u64) -> bool {
    entry.until_ms.is_some_and(|until| until <= now_ms)
}

fn full() -> Error {
    Error::invalid(format!("there are {MAX_ENTRIES} overrides already: remove some"))
}

pub(crate) async fn redis_ms(store: &RedisStore) -> Result<u64, Error> {
    let is_time = |reply: &Value| matches!(reply, Value::Array(parts) if parts.len() == 2);
    let time = store.command_checked(&cmd("TIME"), is_time).await?;
    let (seconds, micros): (u64, u64) =
        FromRedisValue::from_redis_value(time).map_err(|error| Error::store("TIME is no time", error))?;
    Ok(seconds * 1_000 + micros / 1_000)
}

async fn read_redis(store: &RedisStore) -> Result<Entries, Error> {
    let key = overrides_key(store);
    let length = store.command_checked(cmd("HLEN").arg(&key), is_number).await?;
    let length = u64::from_redis_value(length).unwrap_or(u64::MAX);
    if length == 0 {
        return Ok((BTreeMap::new(), 0));
    }
    // Twice as many as are set, because ended ones stay until the next one is set.
    if length > 2 * MAX_ENTRIES as u64 {
        return Err(Error::store("the overrides cannot be read", format!("{key} has {length} fields")));
    }
    let fields = hash(store, &key).await?;
    let now = redis_ms(store).await?;
    // Entries of another version are left alone.
    let parsed = fields.into_iter().filter_map(|(id, text)| Some((id, serde_json::from_str::<Entry>(&text).ok()?)));
    Ok((parsed.filter(|(_, entry)| !is_over(entry, now)).take(MAX_ENTRIES).collect(), now))
}

/// Drops entries that have ended, unless another one was set in their place.
async fn drop_ended(store: &RedisStore, now_ms: u64) -> Result<(), Error> {
    const DROP: &str = "if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then return redis.call('HDEL', KEYS[1], ARGV[1]) end \
                        return 0";
    let key = overrides_key(store);
    for (id, text) in hash(store, &key).await? {
        let is_ended = serde_json::from_str::<Entry>(&text).is_ok_and(|entry| is_over(&entry, now_ms));
        if is_ended {
            store.command_checked(cmd("EVAL").arg(DROP).arg(1).arg(&key).arg(id).arg(text), is_number).await?;
        }
    }
    Ok(())
}

/// The fields of a hash that are text.
async fn hash(store: &RedisStore, key: &str) -> Result<Vec<(String, String)>, Error> {
    let is_hash = |reply: &Value| matches!(reply, Value::Array(_) | Value::Map(_));
    let fields = store.command_checked(cmd("HGETALL").arg(key), is_hash).await?;
    let fields: Vec<(Vec<u8>, Vec<u8>)> =
        FromRedisValue::from_redis_value(fields).map_err(|error| Error::store("no hash of texts", error))?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    Ok(fields.into_iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect())
}

/// A file with a list of entries.
#[derive(Debug)]
pub(crate) struct EntryFile {
    path: PathBuf,
    /// Held from reading to writing. Of two processes that write at once, one may undo the other.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Contents {
    entries: BTreeMap<String, Entry>,
    /// Entries of another version, which are kept as they are.
    others: Vec<serde_json::Value>,
}

impl EntryFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, changing: tokio::sync::Mutex::new(()) }
    }

    async fn set(&self, id: String, entry: Entry) -> Result<(), Error> {
        let _changing = self.changing.lock().await;
        let mut contents = self.read().await?;
        contents.entries.insert(id, entry);
        if contents.entries.len() > MAX_ENTRIES { Err(full()) } else { self.write(&contents).await }
    }

    async fn remove(&self, id: &str) -> Result<bool, Error> {
        let _changing = self.changing.lock().await;
        let mut contents = self.read().await?;
        let removed = contents.entries.remove(id).is_some();
        if removed {
            self.write(&contents).await?;
        }
        Ok(removed)
    }

    /// Entries that have not ended. A file that does not exist has none.
    async fn read(&self) -> Result<Contents, Error> {
        let path = &self.path;
        let text = match tokio::fs::read_to_string(path).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
            Err(error) => return Err(Error::store(format!("{} cannot be read", path.display()), error)),
        };
        let values: Vec<serde_json::Value> = serde_json::from_str(&text)
            .map_err(|error| Error::store(format!("{} is no list of overrides", path.display()), error))?;
        let (mut contents, now) = (Contents::default(), unix_ms());
        for value in values {
            match serde_json::from_value::<Entry>(value.clone()) {
                Ok(entry) if is_over(&entry, now) => {}
                Ok(entry) => drop(contents.entries.insert(entry.id(), entry)),
                Err(_) => contents.others.push(value),
            }
        }
        Ok(contents)
    }

    /// Replaces the file as a whole, so that no process reads a part of it.
    async fn write(&self, contents: &Contents) -> Result<(), Error> {
        let failed = |error| Error::store(format!("{} cannot be written", self.path.display()), error);
        let entries = contents.entries.values().map(|entry| serde_json::to_value(entry).unwrap_or_default());
        let all: Vec<_> = entries.chain(contents.others.iter().cloned()).collect();
        let text = serde_json::to_string_pretty(&all).map_err(|error| Error::store("no JSON", error))?;
        let new = self.path.with_extension(format!("new-{}", std::process::id()));
        tokio::fs::write(&new, text).await.map_err(failed)?;
        tokio::fs::rename(&new, &self.path).await.map_err(failed)
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
