//! What scripts find around them, as Redis has it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value, Variadic};

use super::data::Data;
use super::{failure, script, structs};

/// An error that functions of this program raise in scripts.
#[derive(Clone, Debug)]
pub(super) enum Raised {
    /// What a command answered.
    Reply(String),
    /// A text, which gets the place before it.
    Error(String),
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(text) | Self::Error(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Raised {}

impl From<Raised> for mlua::Error {
    fn from(raised: Raised) -> Self {
        Self::external(raised)
    }
}

/// What a script works on while it runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) data: Data,
    pub(super) now_us: u64,
    pub(super) read_only: bool,
    /// As of its start; it ends with the first write.
    pub(super) out_of_memory: bool,
    pub(super) failure: Option<String>,
}

/// What is shared with the functions that scripts call.
pub(super) type Shared = Arc<Mutex<Running>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Running> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An interpreter, and the function in it that calls a script.
pub(super) fn sandbox(shared: &Shared) -> mlua::Result<(Lua, Function)> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    let globals = lua.globals();
    globals.raw_set("struct", structs::library(&lua)?)?;
    globals.raw_set("redis", redis(&lua, shared)?)?;
    let script = lua.load(CALLS).set_name("=calls").call(failure::handler(&lua, shared)?)?;
    Ok((lua, script))
}

/// How scripts are called.
const CALLS: &str = "
local handle = ...
local xpcall = xpcall
KEYS, ARGV = false, false
local function script(called, keys, args)
  KEYS, ARGV = keys, args
  return xpcall(called, handle)
end
return script
";

/// The `redis` table.
fn redis(lua: &Lua, shared: &Shared) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    let to = Arc::clone(shared);
    let call = move |lua: &Lua, words: Variadic<Value>| script::call(lua, &mut lock(&to), &words);
    redis.raw_set("call", lua.create_function(call)?)?;
    Ok(redis)
}
