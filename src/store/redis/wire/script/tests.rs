//! The Lua files, and the algorithms that they are of.

use std::fs;

use super::{Calls, Program};
use crate::core::algorithm::{Algorithm, Layout};
use crate::store::redis::wire::needs::Needs;
use crate::store::redis::wire::source::FILES;

fn file(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, file)| *file)
}

#[test]
fn every_lua_file_is_part_of_a_script() {
    let mut lost = Vec::new();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).expect("the crate has Lua files") {
        let name = entry.expect("it can be read").file_name().into_string().expect("its name is ASCII");
        // The other one only checks whether a server's Lua is that of Redis.
        if name.strip_suffix(".lua").is_some_and(|name| name != "check" && file(name).is_none()) {
            lost.push(name);
        }
    }
    assert_eq!(lost, [""; 0], "FILES in src/store/redis/wire/source.rs has all files of lua/");
}

#[test]
fn every_algorithm_has_its_lua_file_and_each_function_there_its_line_in_a_table_of_the_wire() {
    let wire = file("wire").expect("every script needs it");
    let tables: Vec<_> = wire.split("\nlocal ").collect();
    let mut missing = Vec::new();
    for algorithm in Algorithm::WITH_BAN {
        let (name, number) = (algorithm.name(), algorithm.facts().number);
        let code = file(name).unwrap_or_default();
        for (table, suffix, may_lack) in
            [("ALGORITHMS", "", false), ("ADJUSTMENTS", "_adjust", false), ("ROOMS", "_room", true)]
        {
            let function = format!("local function {name}{suffix}(");
            if !code.contains(&function) {
                missing.extend((!may_lack).then(|| format!("lua/{name}.lua, in FILES of source.rs: {function}")));
                if may_lack {
                    continue;
                }
            }
            let line = format!("  [{number}] = {name}{suffix},");
            let lines = tables.iter().find(|found| found.starts_with(table)).expect(table);
            if !lines.lines().any(|found| found == line) {
                missing.push(format!("lua/wire.lua, in {table}: {line}"));
            }
        }
    }
    missing.extend(missing_wide(&tables));
    assert_eq!(missing, [""; 0], "each of these is missing");
}

/// The lines that wire.lua lacks of what decides large levels: those of each algorithm whose state is a falling level.
fn missing_wide(tables: &[&str]) -> Vec<String> {
    let code = file("wide").expect("it is a file of lua/");
    let mut missing = Vec::new();
    for algorithm in Algorithm::EACH.iter().filter(|algorithm| algorithm.facts().layout == Layout::Falling) {
        for (table, suffix) in [("ALGORITHMS", ""), ("ADJUSTMENTS", "_adjust")] {
            let (function, number) = (format!("wide_{}{suffix}", algorithm.name()), algorithm.facts().number + 16);
            let line = format!("  [{number}] = {function},");
            let lines = tables.iter().find(|found| found.starts_with(table)).expect(table);
            if !code.contains(&format!("local function {function}(")) || !lines.lines().any(|found| found == line) {
                missing.push(format!("lua/wide.lua, and in {table} of lua/wire.lua: {line}"));
            }
        }
    }
    missing
}

#[test]
fn the_usual_case_of_one_check_stands_before_all_other_functions() {
    let script = |needs: Needs| &*Program::of(Calls::Scripts, needs).source;
    for (algorithm, lone) in [
        (Algorithm::TokenBucket, "lone_level"),
        (Algorithm::LeakyBucket, "lone_level"),
        (Algorithm::FixedWindow, "lone_count"),
    ] {
        let (usual, others) = script(Needs::of(algorithm).singles(1)).split_once("  return usual\n").expect(lone);
        assert!(usual.contains(&format!("local usual = {lone}(KEYS, ARGV)\n")), "{usual}");
        assert_eq!((usual.matches("function").count(), others.matches("lone").count()), (1, 0), "{usual}{others}");
    }
    let bucket = Needs::of(Algorithm::TokenBucket);
    let large = Needs::of_wide(Algorithm::TokenBucket);
    let calendar = Needs::of_calendars();
    let log = Needs::of(Algorithm::SlidingLog);
    for needs in [bucket, bucket.singles(2), bucket.bans(), large.singles(1), calendar.singles(1), log.singles(1)] {
        assert!(!script(needs).contains("lone"), "{needs:?}");
    }
}
