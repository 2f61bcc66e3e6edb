//! What scripts call and return.

use std::ops::Deref;

use mlua::{Lua, Table, Value, Variadic};

use super::fault::texts::{OUT_OF_MEMORY, READ_ONLY};
use super::lua::{Raised, Running};
use super::reply::Reply;
use super::{commands, table};

/// An argument of `redis.call`.
enum Word<'a> {
    Bytes(mlua::BorrowedBytes<'a>),
    Number(String),
}

impl Deref for Word<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(text) => text.as_bytes(),
        }
    }
}

impl<'a> Word<'a> {
    fn of(value: &'a Value) -> Result<Self, Raised> {
        match value {
            Value::String(bytes) => Ok(Self::Bytes(bytes.as_bytes())),
            Value::Number(number) => Ok(Self::Number(print(*number))),
            Value::Integer(number) => Ok(Self::Number(number.to_string())),
            _ => Err(error("Lua redis lib command arguments must be strings or integers")),
        }
    }
}

/// A number as a command gets it: the scripts pass whole ones.
fn print(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e17 { format!("{number:.0}") } else { format!("{number:e}") }
}

fn error(text: &str) -> Raised {
    Raised::Reply(format!("ERR {text}"))
}

/// `redis.call`.
pub(super) fn call(lua: &Lua, running: &mut Running, words: &Variadic<Value>) -> mlua::Result<Value> {
    let words = words.iter().map(Word::of).collect::<Result<Vec<_>, _>>()?;
    let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
    to_lua(lua, answer(running, &words)?)
}

fn answer(running: &mut Running, words: &[&[u8]]) -> Result<Reply, Raised> {
    if words.is_empty() {
        return Err(error("Please specify at least one argument for this redis lib call"));
    }
    let spec = table::find(words).map_err(Raised::Reply)?;
    if !spec.is_for_scripts() {
        return Err(error("This Redis command is not allowed from script"));
    }
    if spec.writes() && running.read_only {
        return Err(Raised::Reply(READ_ONLY.to_owned()));
    }
    if spec.grows() && running.out_of_memory {
        return Err(Raised::Reply(OUT_OF_MEMORY.to_owned()));
    }
    // Nothing could be taken back after a write.
    running.out_of_memory &= !spec.writes();
    match commands::run(&mut running.data, running.now_us, spec.name, words) {
        Some(Reply::Error(text)) => Err(Raised::Reply(text)),
        Some(reply) => Ok(reply),
        None => Err(error("This Redis command is not allowed from script")),
    }
}

#[allow(clippy::cast_precision_loss, reason = "as Redis does")]
fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Integer(number) => Value::Number(number as f64),
        Reply::Array(items) => {
            let items = items.into_iter().map(|item| to_lua(lua, item));
            Value::Table(lua.create_sequence_from(items.collect::<mlua::Result<Vec<_>>>()?)?)
        }
        Reply::Simple(text) => field(lua, "ok", &text)?,
        Reply::Error(text) => field(lua, "err", &text)?,
    })
}

fn field(lua: &Lua, name: &str, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, text)?;
    Ok(Value::Table(table))
}

/// What a script returned, as Redis answers it.
#[allow(clippy::cast_possible_truncation, reason = "as Redis does")]
pub(super) fn to_reply(value: &Value) -> Reply {
    match value {
        Value::String(bytes) => Reply::text(bytes.as_bytes()),
        Value::Integer(number) => Reply::Integer(*number),
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => of_table(table),
        _ => Reply::Nil,
    }
}

fn of_table(table: &Table) -> Reply {
    if let Ok(Value::String(text)) = table.raw_get("err") {
        return Reply::Error(text.to_string_lossy().trim_start_matches('-').to_owned());
    }
    if let Ok(Value::String(text)) = table.raw_get("ok") {
        return Reply::Simple(text.to_string_lossy().into());
    }
    let items = (1..).map_while(|place| match table.raw_get(place) {
        Ok(Value::Nil) | Err(_) => None,
        Ok(value) => Some(to_reply(&value)),
    });
    Reply::Array(items.collect())
}
