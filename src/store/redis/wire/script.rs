//! What is called in Redis: a script, or a function of a library.
//!
//! The needs of a call come in; a program, and the command that calls it, go out. Programs are made
//! when they are first needed and kept as long as the process lives: there are at most
//! [`Needs::SETS`] scripts and one library. Both are named by a hash of their source, so that
//! different versions of this crate can share a server without changing each other's code.

use std::sync::OnceLock;

use deadpool_redis::redis::{Cmd, Script, cmd};

use super::needs::Needs;
use super::source::{script_for, statements_for};

#[cfg(test)]
mod tests;

/// The source of `lua/check.lua`, whose result shows whether a server's Lua works with numbers as
/// that of Redis does.
pub(in crate::store::redis) const CHECK: &str = include_str!("../../../../lua/check.lua");

/// The entry that adds reports to a tally: the only one that is no decision.
const RATIO: &str = "ratio";

/// Bytes to reserve in a command for the name of what is called, and for the number of keys.
const ROOM: usize = 64;

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
    /// The source, as `SCRIPT LOAD` or `FUNCTION LOAD` takes it.
    source: String,
    /// The SHA-1 of a script in hexadecimal digits, or the name of a library.
    name: String,
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

    /// Returns the program that adds reports to a tally. Its script is loaded by the first report.
    pub(super) fn ratio(calls: Calls) -> &'static Self {
        static SCRIPT: OnceLock<Program> = OnceLock::new();
        match calls {
            Calls::Scripts => SCRIPT.get_or_init(|| Self::script(Needs::default(), RATIO)),
            Calls::Functions => Self::library(),
        }
    }

    /// Returns the scripts for each algorithm alone, which are those that most calls need: they are
    /// loaded in advance, the others when they are first called.
    pub(in crate::store::redis) fn each_script() -> impl Iterator<Item = &'static Self> {
        Needs::each().map(|needs| Self::of(Calls::Scripts, needs))
    }

    /// Makes the script for some needs.
    fn script(needs: Needs, entry: &str) -> Self {
        let source = script_for(needs, entry);
        let name = Script::new(&source).get_hash().to_owned();
        Self { calls: Calls::Scripts, source, name }
    }

    /// Returns the library, which has every algorithm and entry, and the check of the server's Lua.
    ///
    /// It is named `tollgate_` and the first 16 digits of its hash; its functions are named by
    /// that, `_` and the entry: those of different versions do not collide.
    pub(in crate::store::redis) fn library() -> &'static Self {
        static LIBRARY: OnceLock<Program> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            let [batch, single, singles] = Needs::all().entries().map(Needs::entry);
            let entries = [batch, Needs::all().bans().entry(), single, singles, RATIO];
            let statements = statements_for(Needs::all().bans(), &entries);
            let statements = format!("{statements}{CHECK}");
            let name = format!("tollgate_{}", &Script::new(&statements).get_hash()[..16]);
            let register = |entry| format!("redis.register_function('{name}_{entry}', {entry})\n");
            let registered = entries.map(register).concat() + &register("check");
            let source = format!("#!lua name={name}\n{statements}{registered}");
            Self { calls: Calls::Functions, source, name }
        })
    }

    /// Returns the command that loads it: `SCRIPT LOAD` or `FUNCTION LOAD`, without `REPLACE`.
    pub(in crate::store::redis) fn load_command(&self) -> Cmd {
        let command = match self.calls {
            Calls::Scripts => "SCRIPT",
            Calls::Functions => "FUNCTION",
        };
        cmd(command).arg("LOAD").arg(&self.source).take()
    }

    /// Returns the call of the library's check, which shows whether the server's Lua is that of
    /// Redis. Only a library has one.
    pub(in crate::store::redis) fn check_command(&self) -> Cmd {
        cmd("FCALL").arg(format!("{}_check", self.name)).arg(0).take()
    }

    /// Begins the call of an entry. Its keys and arguments are added by the
    /// caller; there is room for `args` of them, of together so many `bytes`.
    pub(super) fn command(&self, entry: &str, args: usize, bytes: usize) -> Cmd {
        let mut call = Cmd::with_capacity(args + 2, bytes + ROOM);
        match self.calls {
            Calls::Scripts => call.arg("EVALSHA").arg(&self.name),
            Calls::Functions => call.arg("FCALL").arg(format!("{}_{entry}", self.name)),
        };
        call
    }
}
