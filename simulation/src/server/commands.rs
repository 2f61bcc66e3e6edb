//! Commands about keys, and those that scripts may call too.

use super::data::{Data, Value};
use super::fault::texts::{NO_INTEGER, SYNTAX, WRONG_TYPE};
use super::hashes;
use super::node::integer;
use super::reply::Reply;

/// The most bytes of a value.
const MAX_BYTES: usize = 512 * 1024 * 1024;

/// Does what a command says, at a time in µs since the epoch; `None` if it is none of these.
pub(super) fn run(data: &mut Data, now_us: u64, name: &str, words: &[&[u8]]) -> Option<Reply> {
    let done = match name {
        "get" => get(data, now_us, words[1]),
        "mget" => {
            // What is no value of bytes is nothing.
            let values = words[1..].iter().map(|key| get(data, now_us, key).unwrap_or(Reply::Nil));
            Ok(Reply::Array(values.collect()))
        }
        "set" => set(data, now_us, words),
        "setrange" => set_range(data, now_us, words),
        "del" => Ok(count(&words[1..], |key| data.remove(key, now_us).is_some())),
        "exists" => Ok(count(&words[1..], |key| data.get(key, now_us).is_some())),
        "pttl" => Ok(remaining(data, now_us, words[1])),
        "pexpire" => expire(data, now_us, words),
        "flushall" => {
            data.clear();
            Ok(Reply::OK)
        }
        "time" => Ok(time(now_us)),
        "ping" => Ok(Reply::Simple("PONG".into())),
        _ => return hashes::run(data, now_us, name, words).map(|done| done.unwrap_or_else(Reply::error)),
    };
    Some(done.unwrap_or_else(Reply::error))
}

/// The value of a key that has bytes.
fn bytes<'a>(data: &'a mut Data, now_us: u64, key: &[u8]) -> Result<Option<&'a mut Vec<u8>>, &'static str> {
    match data.get(key, now_us).map(|entry| &mut entry.value) {
        None => Ok(None),
        Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
        Some(Value::Hash(_)) => Err(WRONG_TYPE),
    }
}

fn get(data: &mut Data, now_us: u64, key: &[u8]) -> Result<Reply, &'static str> {
    Ok(bytes(data, now_us, key)?.map_or(Reply::Nil, |value| Reply::Bulk(value.clone())))
}

fn count(keys: &[&[u8]], mut counts: impl FnMut(&[u8]) -> bool) -> Reply {
    Reply::count(keys.iter().filter(|key| counts(key)).count())
}

fn time(now_us: u64) -> Reply {
    Reply::Array(vec![Reply::text((now_us / 1_000_000).to_string()), Reply::text((now_us % 1_000_000).to_string())])
}

/// `SET key value [PX ms]`.
fn set(data: &mut Data, now_us: u64, words: &[&[u8]]) -> Result<Reply, &'static str> {
    let until_ms = match &words[3..] {
        [] => None,
        [option, life] if option.eq_ignore_ascii_case(b"PX") => Some(until(now_us, life)?),
        _ => return Err(SYNTAX),
    };
    data.set(words[1], Value::Bytes(words[2].to_vec()), until_ms);
    Ok(Reply::OK)
}

/// The last millisecond of a life of so many.
fn until(now_us: u64, life: &[u8]) -> Result<u64, &'static str> {
    const INVALID: &str = "ERR invalid expire time in 'set' command";
    let (life, now) = (integer(life)?, i64::try_from(now_us / 1000).map_err(|_| INVALID)?);
    let until = Some(life).filter(|life| *life > 0).and_then(|life| now.checked_add(life));
    until.and_then(|until| u64::try_from(until).ok()).ok_or(INVALID)
}

fn set_range(data: &mut Data, now_us: u64, words: &[&[u8]]) -> Result<Reply, &'static str> {
    let (offset, part) = (integer(words[2])?, words[3]);
    let offset = usize::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    let there = bytes(data, now_us, words[1])?.map(|value| value.len());
    if part.is_empty() {
        return Ok(Reply::count(there.unwrap_or(0)));
    }
    let end = offset.checked_add(part.len()).filter(|end| *end <= MAX_BYTES);
    let end = end.ok_or("ERR string exceeds maximum allowed size (proto-max-bulk-len)")?;
    if there.is_none() {
        data.set(words[1], Value::Bytes(Vec::new()), None);
    }
    let value = bytes(data, now_us, words[1])?.ok_or(NO_INTEGER)?;
    value.resize(value.len().max(end), 0);
    value[offset..end].copy_from_slice(part);
    Ok(Reply::count(value.len()))
}

/// `PEXPIRE key ms`: a key without a life any more is gone at once.
fn expire(data: &mut Data, now_us: u64, words: &[&[u8]]) -> Result<Reply, &'static str> {
    let life = integer(words[2])?;
    let now = i64::try_from(now_us / 1000).unwrap_or(i64::MAX);
    let until = now.checked_add(life).ok_or("ERR invalid expire time in 'pexpire' command")?;
    let Some(entry) = data.get(words[1], now_us) else { return Ok(Reply::Integer(0)) };
    entry.until_ms = u64::try_from(until).ok();
    if until <= now {
        data.remove(words[1], now_us);
    }
    Ok(Reply::Integer(1))
}

/// For how many milliseconds a key is there.
fn remaining(data: &mut Data, now_us: u64, key: &[u8]) -> Reply {
    Reply::Integer(match data.get(key, now_us).map(|entry| entry.until_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(until)) => i64::try_from(until - now_us / 1000).unwrap_or(i64::MAX),
    })
}
