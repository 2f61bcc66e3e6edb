//! What is called: a script, or a function of a library.

use std::sync::OnceLock;

use deadpool_redis::redis::{Cmd, Script, cmd};

use super::needs::Needs;
use super::source::statements_for;

#[cfg(test)]
mod tests;

/// What tells whether a server's Lua is that of Redis.
pub(in crate::store::redis) const CHECK: &str = include_str!("../../../../lua/check.lua");

/// Bytes of what is called, and of how many keys there are.
const ROOM: usize = 64;

/// How the Lua files are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) enum Calls {
    /// `EVALSHA`: scripts that have only what a call needs.
    #[default]
    Scripts,
    /// `FCALL`: one library that has everything.
    Functions,
}

/// How a call is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::redis) enum Way {
    Plain,
    /// To a node of a Cluster that the slot of the keys is on its way to.
    #[cfg(feature = "cluster")]
    Asking,
}

/// A script and its hash, or a library and its name.
#[derive(Debug)]
pub(in crate::store::redis) struct Program {
    calls: Calls,
    source: String,
    name: String,
}

impl Program {
    /// What does all that a call needs.
    pub(super) fn of(calls: Calls, needs: Needs) -> &'static Self {
        static SCRIPTS: [OnceLock<Program>; Needs::SETS] = [const { OnceLock::new() }; Needs::SETS];
        match calls {
            Calls::Scripts => SCRIPTS[needs.set()].get_or_init(|| Self::script(needs)),
            Calls::Functions => Self::library(),
        }
    }

    /// The scripts for each algorithm alone.
    pub(in crate::store::redis) fn each_script() -> impl Iterator<Item = &'static Self> {
        Needs::each().map(|needs| Self::of(Calls::Scripts, needs))
    }

    fn script(needs: Needs) -> Self {
        let source = format!("{}return {}(KEYS, ARGV)\n", statements_for(needs, &[needs.entry()]), needs.entry());
        let name = Script::new(&source).get_hash().to_owned();
        Self { calls: Calls::Scripts, source, name }
    }

    /// The library, which is named by its content, as are its functions: those of different versions do
    /// not meet.
    pub(in crate::store::redis) fn library() -> &'static Self {
        static LIBRARY: OnceLock<Program> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            let entries = Needs::all().entries().map(Needs::entry);
            let statements = statements_for(Needs::all(), &entries);
            let statements = format!("{statements}{CHECK}");
            let name = format!("tollgate_{}", &Script::new(&statements).get_hash()[..16]);
            let register = |entry| format!("redis.register_function('{name}_{entry}', {entry})\n");
            let registered = entries.map(register).concat() + &register("check");
            let source = format!("#!lua name={name}\n{statements}{registered}");
            Self { calls: Calls::Functions, source, name }
        })
    }

    /// The command that loads it.
    pub(in crate::store::redis) fn load_command(&self) -> Cmd {
        let command = match self.calls {
            Calls::Scripts => "SCRIPT",
            Calls::Functions => "FUNCTION",
        };
        cmd(command).arg("LOAD").arg(&self.source).take()
    }

    /// The call of what tells whether the server's Lua is that of Redis: of a library only.
    pub(in crate::store::redis) fn check_command(&self) -> Cmd {
        cmd("FCALL").arg(format!("{}_check", self.name)).arg(0).take()
    }

    /// The call that does all that is needed, but for its keys and arguments: there is room for so
    /// many, of so many bytes.
    pub(super) fn command(&self, needs: Needs, args: usize, bytes: usize) -> Cmd {
        let mut call = Cmd::with_capacity(args + 2, bytes + ROOM);
        match self.calls {
            Calls::Scripts => call.arg("EVALSHA").arg(&self.name),
            Calls::Functions => call.arg("FCALL").arg(format!("{}_{}", self.name, needs.entry())),
        };
        call
    }
}
