//! Commands about hashes, as far as tallies need them.

use std::collections::BTreeMap;

use super::data::{Data, Value};
use super::fault::texts::WRONG_TYPE;
use super::node::integer;
use super::reply::Reply;

/// The fields of a hash.
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// Does what a command says; `None` if it is none of these.
pub(super) fn run(data: &mut Data, now_us: u64, name: &str, words: &[&[u8]]) -> Option<Result<Reply, String>> {
    Some(match name {
        "hset" => set(data, now_us, words),
        "hincrby" => add(data, now_us, words),
        "hmget" => fields(data, now_us, words[1]).map(|fields| {
            let get = |field: &&[u8]| fields.as_deref().and_then(|fields| fields.get(*field));
            Reply::Array(words[2..].iter().map(|field| get(field).map_or(Reply::Nil, Reply::text)).collect())
        }),
        "hlen" => fields(data, now_us, words[1]).map(|fields| Reply::count(fields.as_deref().map_or(0, BTreeMap::len))),
        _ => return None,
    })
}

fn fields<'a>(data: &'a mut Data, now_us: u64, key: &[u8]) -> Result<Option<&'a mut Fields>, String> {
    match data.get(key, now_us).map(|entry| &mut entry.value) {
        None => Ok(None),
        Some(Value::Hash(fields)) => Ok(Some(fields)),
        Some(Value::Bytes(_)) => Err(WRONG_TYPE.to_owned()),
    }
}

/// `HSET key field value [field value ...]`.
fn set(data: &mut Data, now_us: u64, words: &[&[u8]]) -> Result<Reply, String> {
    if !words.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'hset' command".to_owned());
    }
    let fields = made(data, now_us, words[1])?;
    let is_new = |pair: &&[&[u8]]| fields.insert(pair[0].to_vec(), pair[1].to_vec()).is_none();
    Ok(Reply::count(words[2..].chunks(2).filter(is_new).count()))
}

/// `HINCRBY key field number`.
fn add(data: &mut Data, now_us: u64, words: &[&[u8]]) -> Result<Reply, String> {
    let (field, more) = (words[2], integer(words[3])?);
    let there = fields(data, now_us, words[1])?.and_then(|fields| fields.get(field).cloned());
    let there = there.map(|value| integer(&value)).transpose().map_err(|_| "ERR hash value is not an integer")?;
    let sum = there.unwrap_or(0).checked_add(more).ok_or("ERR increment or decrement would overflow")?;
    made(data, now_us, words[1])?.insert(field.to_vec(), sum.to_string().into_bytes());
    Ok(Reply::Integer(sum))
}

/// The fields of a hash, which is made if it is not there.
fn made<'a>(data: &'a mut Data, now_us: u64, key: &[u8]) -> Result<&'a mut Fields, String> {
    if fields(data, now_us, key)?.is_none() {
        data.set(key, Value::Hash(Fields::new()), None);
    }
    fields(data, now_us, key)?.ok_or_else(|| WRONG_TYPE.to_owned())
}
