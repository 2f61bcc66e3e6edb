//! The scripts themselves, and of a server what they need.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, MultiValue, Result, String as LuaString, Table, Value, Variadic};

use super::bytes::number;
use crate::server::{Call, Entry};

/// Everything in `lua/`, in the order in which scripts have it.
pub(super) const SOURCE: &str = concat!(
    include_str!("../../../../lua/prelude.lua"),
    include_str!("../../../../lua/falling.lua"),
    include_str!("../../../../lua/fixed_window.lua"),
    include_str!("../../../../lua/token_bucket.lua"),
    include_str!("../../../../lua/sliding_window.lua"),
    include_str!("../../../../lua/sliding_log.lua"),
    include_str!("../../../../lua/leaky_bucket.lua"),
    include_str!("../../../../lua/concurrency.lua"),
    include_str!("../../../../lua/calendar_window.lua"),
    include_str!("../../../../lua/wide.lua"),
    include_str!("../../../../lua/ban.lua"),
    include_str!("../../../../lua/wire.lua"),
    include_str!("../../../../lua/decide.lua"),
    include_str!("../../../../lua/adjust.lua"),
    include_str!("../../../../lua/batch.lua"),
    include_str!("../../../../lua/bans.lua"),
    include_str!("../../../../lua/single.lua"),
    include_str!("../../../../lua/singles.lua"),
);

/// Values, and the last millisecond at which they are there.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub(super) now_us: u64,
    pub(super) values: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
}

impl Data {
    /// Removes what expired.
    pub(super) fn expire(&mut self) {
        let now_ms = self.now_us / 1_000;
        self.values.retain(|_, (_, until)| *until >= now_ms);
    }

    fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        if self.values.get(key)?.1 < self.now_us / 1_000 {
            self.values.remove(key);
        }
        self.values.get(key).map(|(value, _)| &**value)
    }
}

pub(super) struct Server {
    pub(super) data: Arc<Mutex<Data>>,
    lua: Lua,
    entries: [Function; 4],
}

impl Server {
    pub(super) fn new(source: &str) -> Self {
        let (lua, data) = (Lua::new(), Arc::new(Mutex::new(Data::default())));
        let entries = load(&lua, source, &data).expect("the scripts are right");
        Self { data, lua, entries }
    }

    pub(super) fn run(&self, entry: Entry, keys: &[&[u8]], args: [Vec<u8>; 2]) -> Call {
        let table = |items: &[&[u8]]| {
            let strings: Result<Vec<_>> = items.iter().map(|item| self.lua.create_string(item)).collect();
            self.lua.create_sequence_from(strings?)
        };
        let function = &self.entries[entry as usize];
        let run = || function.call::<LuaString>((table(keys)?, table(&[&args[0], &args[1]])?));
        let reply = run().expect("the script answers").as_bytes().to_vec();
        let at_us = self.data.lock().unwrap().now_us;
        Call { at_us, entry, keys: keys.iter().map(|key| key.to_vec()).collect(), args: args.into(), reply }
    }
}

fn load(lua: &Lua, source: &str, data: &Arc<Mutex<Data>>) -> Result<[Function; 4]> {
    let (redis, bytes, data) = (lua.create_table()?, lua.create_table()?, data.clone());
    let call = move |lua: &Lua, words: MultiValue| command(lua, &mut data.lock().unwrap(), words);
    redis.set("call", lua.create_function(call)?)?;
    bytes.set("pack", lua.create_function(pack)?)?;
    bytes.set("unpack", lua.create_function(unpack)?)?;
    lua.globals().set("redis", redis)?;
    lua.globals().set("struct", bytes)?;
    let entries: Table = lua.load(format!("{source}\nreturn {{ batch, single, singles, bans }}")).call(())?;
    Ok([entries.get(1)?, entries.get(2)?, entries.get(3)?, entries.get(4)?])
}

fn command(lua: &Lua, data: &mut Data, words: MultiValue) -> Result<Value> {
    let words: Vec<Vec<u8>> = words.into_iter().map(|word| lua.coerce_string(word)).map(text).collect::<Result<_>>()?;
    let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
    match *words {
        [b"TIME"] => {
            let parts = [data.now_us / 1_000_000, data.now_us % 1_000_000].map(|part| part.to_string());
            return Ok(Value::Table(lua.create_sequence_from(parts)?));
        }
        [b"MGET", ..] => {
            let value = |key: &&[u8]| match data.get(key) {
                Some(value) => lua.create_string(value).map(Value::String),
                None => Ok(Value::Boolean(false)),
            };
            let values: Result<Vec<Value>> = words[1..].iter().map(value).collect();
            return Ok(Value::Table(lua.create_sequence_from(values?)?));
        }
        [b"SET", key, value, b"PX", life] => {
            let life: u64 = std::str::from_utf8(life).unwrap().parse().expect("a life is a whole number");
            data.values.insert(key.into(), (value.into(), data.now_us / 1_000 + life));
        }
        [b"SETRANGE", key, b"0", value] => {
            data.expire();
            let (old, _) = data.values.entry(key.into()).or_insert((Vec::new(), u64::MAX));
            let behind = old.get(value.len()..).unwrap_or_default().to_vec();
            *old = [value, &behind].concat();
        }
        [b"DEL", key] => drop(data.values.remove(key)),
        _ => panic!("no such command: {words:?}"),
    }
    Ok(Value::Nil)
}

fn text(word: Result<Option<LuaString>>) -> Result<Vec<u8>> {
    Ok(word?.expect("words are text").as_bytes().to_vec())
}

/// The sizes of a format's numbers: `>BI7` has two.
fn sizes(format: &LuaString) -> Vec<usize> {
    let format = format.to_str().expect("a format is text");
    let parts = format.strip_prefix('>').expect("all is big-endian").split_inclusive(['B', '4', '6', '7']);
    parts.map(|part| part.strip_prefix('I').map_or(1, |size| size.parse().expect("a size"))).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers are whole and below 2^53")]
fn pack(lua: &Lua, (format, numbers): (LuaString, Variadic<f64>)) -> Result<LuaString> {
    let packed = sizes(&format).into_iter().zip(&*numbers).flat_map(|(size, n)| number(size, *n as u64));
    lua.create_string(packed.collect::<Vec<u8>>())
}

#[allow(clippy::cast_precision_loss, clippy::unnecessary_wraps, reason = "numbers are below 2^53")]
fn unpack(_: &Lua, (format, bytes, first): (LuaString, LuaString, Option<usize>)) -> Result<Variadic<f64>> {
    let (bytes, mut place) = (bytes.as_bytes(), first.unwrap_or(1) - 1);
    let mut numbers = Vec::new();
    for size in sizes(&format) {
        numbers.push(bytes[place..place + size].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) as f64);
        place += size;
    }
    numbers.push((place + 1) as f64);
    Ok(numbers.into_iter().collect())
}
