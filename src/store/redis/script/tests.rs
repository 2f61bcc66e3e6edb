//! The Lua files, and the algorithms that they are of.

use std::fs;

use crate::core::algorithm::Algorithm;
use crate::store::redis::source::FILES;

#[track_caller]
fn file(name: &str) -> &'static str {
    let found = FILES.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("lua/{name}.lua is not in FILES of src/store/redis/source.rs")).1
}

#[test]
fn every_lua_file_is_part_of_a_script() {
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).expect("the crate has Lua files") {
        let path = entry.expect("it can be read").path();
        // The one that only tells whether a server's Lua is that of Redis.
        if path.extension().is_some_and(|extension| extension == "lua") && !path.ends_with("check.lua") {
            file(path.file_stem().and_then(|name| name.to_str()).expect("its name is ASCII"));
        }
    }
}

#[test]
fn every_function_of_an_algorithm_has_its_line_in_the_tables_of_the_wire() {
    let tables: Vec<_> = file("wire").split("\nlocal ").collect();
    for algorithm in Algorithm::EACH {
        let (name, number) = (algorithm.name(), algorithm.facts().number);
        for (table, suffix, may_lack) in
            [("ALGORITHMS", "", false), ("ADJUSTMENTS", "_adjust", false), ("ROOMS", "_room", true)]
        {
            if may_lack && !file(name).contains(&format!("local function {name}{suffix}(")) {
                continue;
            }
            let line = format!("  [{number}] = {name}{suffix},");
            let table = tables.iter().find(|found| found.starts_with(table)).expect(table);
            assert!(table.lines().any(|found| found == line), "lua/wire.lua lacks this line: {line}");
        }
    }
}
