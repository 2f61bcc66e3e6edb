//! What is called in Redis: a script, or a function of a library.
//!
//! The needs of a call come in; a program, and the command that calls it, go out. Programs are made
//! when they are first needed and kept as long as the process lives: there are at most
//! [`Needs::SETS`] scripts and one library. Both are named by a hash of their source, so that
//! different versions of this crate can share a server without changing each other's code.

use std::sync::{LazyLock, OnceLock};

use deadpool_redis::redis::{Cmd, Script, cmd};

use super::source::{Needs, script_for, statements_for};

/// The source of `lua/check.lua`, whose result shows whether a server's Lua works with numbers as
/// that of Redis does.
pub(in crate::store::redis) const CHECK: &str = include_str!("../../../../lua/check.lua");

/// How the Lua files are called.
///
/// Set once for a store, by [`functions`](crate::store::RedisStoreBuilder::functions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) enum Calls {
    /// `EVALSHA`: one script for each set of needs, which has only the statements that a call
    /// needs.
    #[default]
    Scripts,
    /// `FCALL`: one library that has everything.
    Functions,
}

/// How a call is sent to a node. Jobs that differ in it share no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::redis) enum Way {
    /// As it is: to the server that has the slot of its keys.
    Plain,
    /// After `ASKING`: to the node of a Cluster to which the slot of its keys is being moved.
    #[cfg(feature = "cluster")]
    Asking,
}

/// A script and its hash, or a library and its name.
#[derive(Debug)]
pub(in crate::store::redis) struct Program {
    /// Which of the two it is.
    calls: Calls,
    /// The source, as `EVAL` or `FUNCTION LOAD` takes it.
    source: String,
    /// The SHA-1 of a script in hexadecimal digits, or the name of a library.
    name: String,
    /// The functions of a library, but for the check.
    functions: Vec<String>,
}

impl Program {
    /// Returns the program that does all that a call needs. It is made by the first call that needs
    /// it; of those that need it at the same time, one makes it and the others wait.
    pub(super) fn of(calls: Calls, needs: Needs) -> &'static Self {
        static SCRIPTS: [OnceLock<Program>; Needs::SETS] = [const { OnceLock::new() }; Needs::SETS];
        match calls {
            Calls::Scripts => SCRIPTS[needs.set()].get_or_init(|| Self::script(needs, needs.entry())),
            Calls::Functions => Self::library(),
        }
    }

    /// Makes the script for some needs.
    fn script(needs: Needs, entry: &str) -> Self {
        let source = script_for(needs, entry);
        let name = Script::new(&source).get_hash().to_owned();
        Self { calls: Calls::Scripts, source, name, functions: Vec::new() }
    }

    /// Returns the library, which has every algorithm and entry, and the check of the server's Lua.
    ///
    /// It is named `tollgate_` and the first 16 digits of its hash; its functions are named by
    /// that, `_` and the entry: those of different versions do not collide.
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

    /// Returns the command that loads the library, without `REPLACE`. Scripts need none: they are sent by `EVAL`.
    pub(in crate::store::redis) fn load_command(calls: Calls) -> Option<Cmd> {
        match calls {
            Calls::Scripts => None,
            Calls::Functions => Some(cmd("FUNCTION").arg("LOAD").arg(&Self::library().source).take()),
        }
    }

    /// Returns the call of the library's check, which shows whether the server's Lua is that of
    /// Redis. Only a library has one.
    pub(in crate::store::redis) fn check_command(&self) -> Cmd {
        cmd("FCALL").arg(format!("{}_check", self.name)).arg(0).take()
    }

    /// Returns the first arguments of the call of an entry: the command, and what is called. If the server does not have
    /// a script, its source is sent.
    pub(super) fn call(&self, entry: &'static str, is_missing: bool) -> [&[u8]; 2] {
        match self.calls {
            Calls::Scripts if is_missing => [b"EVAL", self.source.as_bytes()],
            Calls::Scripts => [b"EVALSHA", self.name.as_bytes()],
            Calls::Functions => [b"FCALL", self.function(entry).as_bytes()],
        }
    }

    /// Returns the name of the function of an entry in the library.
    fn function(&self, entry: &str) -> &str {
        let of = |function: &&String| function.strip_prefix(&*self.name).is_some_and(|end| &end[1..] == entry);
        self.functions.iter().find(of).expect("the library has every entry")
    }
}

/// Returns a number of keys as the argument that it is: there are at most 255.
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
            // The other one only checks whether a server's Lua is that of Redis.
            let Some(name) = name.strip_suffix(".lua").filter(|name| *name != "check") else { continue };
            assert!(FILES.iter().any(|(known, _)| *known == name), "FILES has not {name}");
        }
    }
}
