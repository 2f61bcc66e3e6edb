//! The table `[ratios]`: the store that is made of it, and the error of every mistake in it.

#![cfg(feature = "config")]

use tollgate_ratio::{MemoryTally, RatioConfig, RatioStore};

fn config(lines: &str) -> RatioConfig {
    let file = format!("[[policy]]\nname = \"all\"\n[ratios]\n{lines}\n[server]\n");
    RatioConfig::from_toml(&file).unwrap_or_else(|error| panic!("{error:#}")).expect("the file has the table")
}

#[track_caller]
fn refused(text: &str, line: usize, fragments: &[&str]) {
    let error = RatioConfig::from_toml(text).expect_err(text);
    assert!(error.is_invalid());
    let message = error.to_string();
    assert!(message.starts_with(&format!("line {line}: ")), "{message}");
    assert!(fragments.iter().all(|fragment| message.contains(fragment)), "{message}: {fragments:?}");
}

#[test]
fn a_file_without_ratios_has_none() {
    assert_eq!(RatioConfig::from_toml("[[policy]]\nname = \"all\"").expect("it is TOML"), None);
    let none = RatioConfig::from_file("no such file").expect_err("it is not there");
    let none = format!("{none:#}");
    assert!(none.starts_with("cannot read the config file no such file: "), "{none}");
}

#[tokio::test]
async fn the_table_sets_the_store() {
    let store =
        |lines: &str| -> RatioStore { config(lines).builder(MemoryTally::new()).try_build().expect("it works") };
    let shown = |lines: &str| format!("{:?}", store(lines));
    assert!(shown("").contains("tick: 1s, ttl: 10s, report: 256, shards: 1"), "{}", shown(""));
    let given = "tick = \"200ms\"\nttl = \"1m\"\nreport = 512\nkeys = 10_000_000\nshards = 16\n\
        fair = { policy = \"all\", by = \"user\" }";
    assert!(shown(given).contains("tick: 200ms, ttl: 60s, report: 512, shards: 16"), "{}", shown(given));
    assert!(shown("tick = \"60s\"").contains("ttl: 600s"), "the default life is 10 ticks");
}

#[test]
fn every_mistake_in_ratios_names_its_line() {
    let fair = "a table such as { policy = \"global\", by = \"caller\" }";
    for (lines, line, fragments) in [
        ("colour = 1", 2, &["unknown field `colour`", "`tick`, `ttl`, `report`, `keys`, `shards`, `fair`"][..]),
        ("tick = \"0s\"", 2, &["a tick of 0ns is not allowed: use 100ms to 60s, in whole milliseconds"]),
        ("tick = 1", 2, &["ratios.tick: expected a duration in quotes"]),
        ("tick = \"day\"", 2, &["ratios.tick: \"day\" is not a duration"]),
        ("\nttl = \"1s\"", 3, &["a ttl of 1s is shorter than two ticks of 1s: use 2s to 600s"]),
        ("tick = \"10s\"\nttl = \"19s\"", 3, &["a ttl of 19s is shorter than two ticks of 10s: use 20s to 6000s"]),
        ("ttl = \"19s\"\ntick = \"10s\"", 2, &["shorter than two ticks of 10s"]),
        ("ttl = \"601s\"", 2, &["a ttl of 601s is longer than 600 ticks of 1s"]),
        ("report = 0", 2, &["a report of 0 counters is not allowed: use 1 to 512"]),
        ("report = -1", 2, &["`-1`"]),
        ("keys = 0", 2, &["keys 0 is not allowed: use 1 to 10000000"]),
        ("shards = 0", 2, &["0 shards are not allowed: use 1 to 16"]),
        ("shards = 257", 2, &["257 shards are not allowed"]),
        ("fair = \"user\"", 2, &[fair]),
        ("fair = { policy = \"all\" }", 2, &["ratios.fair: missing field `by`"]),
        ("fair = { by = \"all\" }", 2, &["ratios.fair: missing field `policy`"]),
        ("fair = { policy = \"all\", by = \"user\", of = 1 }", 2, &["unknown field `of`"]),
        ("fair = { policy = \"a b\", by = \"user\" }", 2, &["\"a b\"", "(column 19)"]),
        ("fair = { policy = \"all\", by = \"all\" }", 2, &["callers of \"all\" are its own keys"]),
    ] {
        refused(&format!("[ratios]\n{lines}\n"), line, fragments);
    }
    refused("ratios = 3", 1, &["ratios: invalid type: integer `3`, expected a table, under [ratios]"]);
}
