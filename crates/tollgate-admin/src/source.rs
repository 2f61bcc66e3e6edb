//! Storage of overrides: in this process, in Redis, or in a file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};
use tollgate::{Error, RedisStore};

use crate::entry::Entry;

/// Maximum number of entries that are read. A layer accepts as many.
const MAX_ENTRIES: usize = 10_000;

#[derive(Debug)]
pub(crate) enum Source {
    Local(Mutex<BTreeMap<String, Entry>>),
    Redis(RedisStore),
    File(PathBuf),
}

/// Entries by ID, and the present time of the clock by which they end, in milliseconds.
pub(crate) type Entries = (BTreeMap<String, Entry>, u64);

impl Source {
    /// Reads all entries that have not ended, and drops those that have.
    pub(crate) async fn read(&self) -> Result<Entries, Error> {
        match self {
            Self::Local(entries) => {
                let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                let now = unix_ms();
                entries.retain(|_, entry| !is_over(entry, now));
                Ok((entries.clone(), now))
            }
            Self::File(path) => {
                let (mut entries, now) = (read_file(path).await?, unix_ms());
                entries.retain(|_, entry| !is_over(entry, now));
                Ok((entries, now))
            }
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
            Self::File(path) => {
                let mut entries = read_file(path).await?;
                entries.insert(id, entry);
                if entries.len() > MAX_ENTRIES { Err(full()) } else { write_file(path, &entries).await }
            }
            Self::Redis(store) => {
                let text = serde_json::to_string(&entry).map_err(|error| Error::store("no JSON", error))?;
                let key = overrides_key(store);
                let length = store.command_checked(cmd("HLEN").arg(&key), is_number).await?;
                if u64::from_redis_value(length).unwrap_or_default() >= MAX_ENTRIES as u64 {
                    return Err(full());
                }
                store.command_checked(cmd("HSET").arg(&key).arg(id).arg(text), is_number).await.map(drop)
            }
        }
    }

    /// Returns `true` if there was one.
    pub(crate) async fn remove(&self, id: &str) -> Result<bool, Error> {
        match self {
            Self::Local(entries) => Ok(entries.lock().unwrap_or_else(PoisonError::into_inner).remove(id).is_some()),
            Self::File(path) => {
                let mut entries = read_file(path).await?;
                let removed = entries.remove(id).is_some();
                if removed {
                    write_file(path, &entries).await?;
                }
                Ok(removed)
            }
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
    let is_hash = |reply: &Value| matches!(reply, Value::Array(_) | Value::Map(_));
    let fields = store.command_checked(cmd("HGETALL").arg(&key), is_hash).await?;
    let fields: Vec<(String, String)> =
        FromRedisValue::from_redis_value(fields).map_err(|error| Error::store("no hash of texts", error))?;
    if fields.is_empty() {
        return Ok((BTreeMap::new(), 0));
    }
    let now = redis_ms(store).await?;
    let (mut entries, mut over): (BTreeMap<String, Entry>, Cmd) = (BTreeMap::new(), cmd("HDEL"));
    over.arg(&key);
    let mut is_any_over = false;
    for (id, text) in fields.into_iter().take(MAX_ENTRIES) {
        // Entries that another version wrote stay unchanged.
        let Ok(entry) = serde_json::from_str::<Entry>(&text) else { continue };
        if is_over(&entry, now) {
            over.arg(id);
            is_any_over = true;
        } else {
            entries.insert(id, entry);
        }
    }
    if is_any_over {
        store.command_checked(&over, is_number).await?;
    }
    Ok((entries, now))
}

/// An absent file has no entries.
async fn read_file(path: &Path) -> Result<BTreeMap<String, Entry>, Error> {
    let text = match tokio::fs::read_to_string(path).await {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(Error::store(format!("{} cannot be read", path.display()), error)),
    };
    let entries: Vec<Entry> = serde_json::from_str(&text)
        .map_err(|error| Error::store(format!("{} is no list of overrides", path.display()), error))?;
    Ok(entries.into_iter().map(|entry| (entry.id(), entry)).collect())
}

/// Replaces the whole file at once, so that no process reads a partly written file.
async fn write_file(path: &Path, entries: &BTreeMap<String, Entry>) -> Result<(), Error> {
    let failed = |error| Error::store(format!("{} cannot be written", path.display()), error);
    let entries: Vec<&Entry> = entries.values().collect();
    let text = serde_json::to_string_pretty(&entries).map_err(|error| Error::store("no JSON", error))?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    tokio::fs::write(&new, text).await.map_err(failed)?;
    tokio::fs::rename(&new, path).await.map_err(failed)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
