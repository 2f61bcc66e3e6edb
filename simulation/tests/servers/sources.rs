//! The crate's scripts, put together by its own file, which it keeps to itself.

#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "it is a file of the crate")]
#[path = "../../../src/store/redis/wire/source.rs"]
mod source;

use source::{Needs, algorithm_of};

/// What tells whether a server's Lua is that of Redis.
const CHECK: &str = include_str!("../../../lua/check.lua");

/// A script, what it does, and the numbers of its algorithms.
pub(crate) struct Script {
    pub(crate) hash: String,
    pub(crate) source: String,
    pub(crate) entry: &'static str,
    pub(crate) algorithms: Vec<u8>,
}

impl Script {
    fn new(needs: Needs, algorithms: Vec<u8>) -> Self {
        let source = source::script_for(needs, needs.entry());
        Self { hash: hash(&source), source, entry: needs.entry(), algorithms }
    }
}

/// The same algorithms with each of the entries but that for bans: batch, single, singles.
fn each_entry(needs: Needs) -> [Needs; 3] {
    [needs, needs.singles(1), needs.singles(2)]
}

/// The scripts of each algorithm alone, and of all.
pub(crate) fn scripts() -> Vec<Script> {
    let each = (1..=5)
        .flat_map(|number| each_entry(Needs::of(algorithm_of(number))))
        .enumerate()
        .map(|(place, needs)| (needs, vec![u8::try_from(place / 3 + 1).unwrap()]));
    let all = each_entry(Needs::all()).map(|needs| (needs, (1..=6).collect()));
    each.chain(all).map(|(needs, algorithms)| Script::new(needs, algorithms)).collect()
}

/// The script that adds reports to a tally.
pub(crate) fn ratio() -> String {
    include_str!("../../../crates/tollgate-ratio/lua/ratio.lua").to_owned()
}

/// The script that checks a server's Lua.
pub(crate) fn check() -> String {
    format!("{CHECK}\nreturn check()\n")
}

/// The library of all functions, by a name of the tests' own.
pub(crate) fn library(name: &str) -> String {
    let entries = each_entry(Needs::all()).map(Needs::entry);
    let statements = source::statements_for(Needs::all(), &entries);
    let register = |entry| format!("redis.register_function('{name}_{entry}', {entry})\n");
    let registered = entries.map(register).concat() + &register("check");
    format!("#!lua name={name}\n{statements}{CHECK}{registered}")
}

/// The SHA-1 of a script, as `EVALSHA` wants it.
pub(crate) fn hash(source: &str) -> String {
    sha1_smol::Sha1::from(source).digest().to_string()
}
