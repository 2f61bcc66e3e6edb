//! The interpreter that runs scripts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mlua::{Function, Lua, Value};

use super::data::Data;
use super::lua::{Running, Shared, lock, sandbox};
use super::reply::Reply;
use super::script::to_reply;

/// A Lua interpreter as Redis has one. It keeps what it compiled, also when no node knows that script any
/// more; clones are the same interpreter.
#[derive(Clone)]
pub struct Vm {
    lua: Lua,
    script: Function,
    running: Shared,
    compiled: Arc<Mutex<Compiled>>,
}

/// Scripts by SHA-1 of the source.
type Compiled = BTreeMap<[u8; 20], Function>;

impl fmt::Debug for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm").finish_non_exhaustive()
    }
}

impl Default for Vm {
    fn default() -> Self {
        Self::new()
    }
}

/// How a node is when it calls a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) now_us: u64,
    pub(super) read_only: bool,
    pub(super) out_of_memory: bool,
}

impl Vm {
    /// An interpreter that has compiled nothing yet.
    pub fn new() -> Self {
        let running = Shared::default();
        let (lua, script) = sandbox(&running).expect("the sandbox is the same each time, and works");
        Self { lua, script, running, compiled: Arc::default() }
    }

    /// Compiles a script, if it was not; the error as Redis tells it.
    pub(super) fn compile(&self, source: &[u8], digest: [u8; 20]) -> Result<Function, String> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = compiled.get(&digest) {
            return Ok(function.clone());
        }
        let function = self.chunk(source, "@user_script");
        let function = function.map_err(|text| format!("ERR Error compiling script (new function): {text}"))?;
        compiled.insert(digest, function.clone());
        Ok(function)
    }

    fn chunk(&self, source: &[u8], name: &str) -> Result<Function, String> {
        self.lua.load(source).set_name(name).set_mode(mlua::ChunkMode::Text).into_function().map_err(
            |error| match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            },
        )
    }

    /// Calls a script on a node's data.
    pub(super) fn call(
        &self,
        called: &Function,
        data: &mut Data,
        situation: Situation,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Reply, String> {
        let Situation { now_us, read_only, out_of_memory } = situation;
        let running = Running { data: std::mem::take(data), now_us, read_only, out_of_memory, ..Running::default() };
        *lock(&self.running) = running;
        let result = self.run(called, keys, args);
        *data = std::mem::take(&mut lock(&self.running).data);
        result
    }

    fn run(&self, called: &Function, keys: &[&[u8]], args: &[&[u8]]) -> Result<Reply, String> {
        let result = self.table(keys).and_then(|keys| self.script.call((called, keys, self.table(args)?)));
        match result {
            Ok((true, value)) => Ok(to_reply(&value)),
            Ok((false, _)) => Err(lock(&self.running).failure.take().unwrap_or_default()),
            Err(error) => Err(format!("ERR {error}")),
        }
    }

    fn table(&self, words: &[&[u8]]) -> mlua::Result<Value> {
        let words = words.iter().map(|word| self.lua.create_string(word));
        self.lua.create_sequence_from(words.collect::<mlua::Result<Vec<_>>>()?).map(Value::Table)
    }
}
