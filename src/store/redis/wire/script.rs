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
    /// The entries, and the first two arguments of a call of each, as they are sent. A script has one entry.
    entries: Vec<(&'static str, Vec<u8>)>,
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

    fn script(needs: Needs, entry: &'static str) -> Self {
        let source = script_for(needs, entry);
        let name = Script::new(&source).get_hash().to_owned();
        let entries = vec![(entry, arguments(["EVALSHA", &name]))];
        Self { calls: Calls::Scripts, source, name, entries }
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
            let registered = entries.map(register).concat() + &register("check");
            let source = format!("#!lua name={name}\n{statements}{registered}");
            let entries = entries.map(|entry| (entry, arguments(["FCALL", &format!("{name}_{entry}")])));
            Self { calls: Calls::Functions, source, name, entries: entries.into() }
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

    /// Appends the first two arguments of a call.
    pub(super) fn push_call(&self, entry: &str, is_missing: bool, out: &mut Vec<u8>) {
        if is_missing && self.calls == Calls::Scripts {
            out.extend_from_slice(&arguments(["EVAL", &self.source]));
            return;
        }
        let call = match &*self.entries {
            [only] => Some(only),
            entries => entries.iter().find(|(known, _)| *known == entry),
        };
        out.extend_from_slice(&call.expect("the library has every entry").1);
    }
}

fn arguments(arguments: [&str; 2]) -> Vec<u8> {
    let mut out = Vec::new();
    for argument in arguments {
        push_argument(&mut out, argument.as_bytes());
    }
    out
}

#[inline]
pub(super) fn push_argument(out: &mut Vec<u8>, argument: &[u8]) {
    push_head(out, b'$', argument.len());
    out.extend_from_slice(argument);
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub(super) fn push_head(out: &mut Vec<u8>, kind: u8, length: usize) {
    let digit = |number: usize| b"0123456789"[number % 10];
    match length {
        0..10 => out.extend_from_slice(&[kind, digit(length), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, digit(length / 10), digit(length), b'\r', b'\n']),
        _ => out.extend_from_slice(format!("{}{length}\r\n", char::from(kind)).as_bytes()),
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
