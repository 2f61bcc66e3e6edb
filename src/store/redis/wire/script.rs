//! Scripts and libraries, and the commands that call them.
//!
//! Programs are made when first needed and are never dropped: there are at most [`Needs::SETS`] scripts and one
//! library. Both are named by a hash of their source, so that versions of this crate can share a server.

use std::sync::{LazyLock, OnceLock};

use deadpool_redis::redis::{Cmd, Script, cmd};

use super::source::{Needs, script_for, statements_for};

/// Reveals if a server's Lua calculates like the Lua of Redis.
pub(in crate::store::redis) const CHECK: &str = include_str!("../../../../lua/check.lua");

/// Set by [`functions`](crate::store::RedisStoreBuilder::functions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) enum Calls {
    #[default]
    Scripts,
    Functions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::redis) enum Way {
    Plain,
    /// After `ASKING`, to the node to which the slot is being moved.
    #[cfg(feature = "cluster")]
    Asking,
}

#[derive(Debug)]
pub(in crate::store::redis) struct Program {
    calls: Calls,
    source: String,
    /// The SHA-1 of a script in hexadecimal digits, or the name of a library.
    name: String,
    functions: Vec<String>,
}

impl Program {
    /// The first call makes the program. Concurrent calls wait for it.
    pub(super) fn shared(calls: Calls, needs: Needs) -> &'static Self {
        static SCRIPTS: [OnceLock<Program>; Needs::SETS] = [const { OnceLock::new() }; Needs::SETS];
        match calls {
            Calls::Scripts => SCRIPTS[needs.set()].get_or_init(|| Self::script(needs, needs.entry())),
            Calls::Functions => Self::library(),
        }
    }

    fn script(needs: Needs, entry: &str) -> Self {
        let source = script_for(needs, entry);
        let name = Script::new(&source).get_hash().to_owned();
        Self { calls: Calls::Scripts, source, name, functions: Vec::new() }
    }

    /// Names contain a hash of the source, so that versions of this crate do not collide.
    pub(in crate::store::redis) fn library() -> &'static Self {
        static LIBRARY: OnceLock<Program> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            let entries = ["batch", "bans", "single", "singles"];
            let statements = statements_for(Needs::all().bans(), &entries);
            let statements = format!("{statements}{CHECK}");
            let name = format!("tollgate_{}", &Script::new(&statements).get_hash()[..16]);
            let register = |entry| format!("redis.register_function('{name}_{entry}', {entry})\n");
            let functions = entries.iter().map(|entry| format!("{name}_{entry}")).collect();
            let registered = entries.map(register).concat() + &register("check");
            let source = format!("#!lua name={name}\n{statements}{registered}");
            Self { calls: Calls::Functions, source, name, functions }
        })
    }

    /// Without `REPLACE`. Scripts are sent by `EVAL` instead.
    pub(in crate::store::redis) fn load_command(calls: Calls) -> Option<Cmd> {
        match calls {
            Calls::Scripts => None,
            Calls::Functions => Some(cmd("FUNCTION").arg("LOAD").arg(&Self::library().source).take()),
        }
    }

    pub(in crate::store::redis) fn check_command(&self) -> Cmd {
        cmd("FCALL").arg(format!("{}_check", self.name)).arg(0).take()
    }

    pub(super) fn call(&self, entry: &'static str, is_missing: bool) -> [&[u8]; 2] {
        match self.calls {
            Calls::Scripts if is_missing => [b"EVAL", self.source.as_bytes()],
            Calls::Scripts => [b"EVALSHA", self.name.as_bytes()],
            Calls::Functions => [b"FCALL", self.function(entry).as_bytes()],
        }
    }

    fn function(&self, entry: &str) -> &str {
        let of = |function: &&String| function.strip_prefix(&*self.name).is_some_and(|end| &end[1..] == entry);
        self.functions.iter().find(of).expect("the library has every entry")
    }
}

pub(super) fn count_of(keys: usize) -> &'static [u8] {
    static DIGITS: LazyLock<Vec<String>> = LazyLock::new(|| (0..=255).map(|count: u8| count.to_string()).collect());
    DIGITS[keys].as_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::source::FILES;

    #[test]
    fn every_lua_file_is_part_of_a_script() {
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).expect("the crate has Lua files") {
            let name = entry.expect("it can be read").file_name().into_string().expect("its name is ASCII");
            // The other script only checks if a server's Lua calculates like the Lua of Redis.
            let Some(name) = name.strip_suffix(".lua").filter(|name| *name != "check") else { continue };
            assert!(FILES.iter().any(|(known, _)| *known == name), "FILES has not {name}");
        }
    }
}
