//! The table `[ratios]`: the store that is made of it, and the error of every mistake in it.

use std::time::Duration;

use tollgate::config::Config;
use tollgate::ratio::{MemoryTally, RatioStore};
use tollgate::store::{Ask, Check, Counter, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Key, MemoryStore, Quota, Source};
use tollgate_shed::FleetConfig;

use super::{policy, refused};

/// Two policies; the table begins on line 9.
const POLICIES: &str = "[[policy]]\nname = \"all\"\nlimit = 400\nwindow = \"1s\"\n\
    [[policy]]\nname = \"user\"\nlimit = 100\nwindow = \"1s\"\n";

fn file(lines: &str) -> String {
    format!("{POLICIES}[ratios]\n{lines}\n")
}

#[track_caller]
fn store(lines: &str) -> RatioStore {
    let config = Config::from_toml(&file(lines)).unwrap_or_else(|error| panic!("{error:#}"));
    let store = config.ratio_store(MemoryTally::with_clock(ManualClock::paused())).expect("valid settings");
    let store = store.expect("the file has ratios");
    drop(config.layer(store.clone()).expect("it supports the policies of the file"));
    store
}

#[test]
fn a_file_without_ratios_has_no_ratio_store() {
    assert!(Config::from_toml(POLICIES).unwrap().ratio_store(MemoryTally::new()).unwrap().is_none());
}

#[tokio::test]
async fn the_table_sets_the_store() {
    let shown = |lines: &str| format!("{:?}", store(lines));
    assert!(shown("").contains("tick: 1s, ttl: 10s"), "{}", shown(""));
    let given = "tick = \"200ms\"\nttl = \"1m\"\nreport = 512\nkeys = 10_000_000\nshards = 16\n\
        fair = { policy = \"all\", by = \"user\" }";
    assert!(shown(given).contains("tick: 200ms, ttl: 60s"), "{}", shown(given));
    assert!(shown("tick = \"60s\"").contains("ttl: 600s"), "the default life is 10 ticks");
}

/// Before the tally has replied, each process admits its share.
#[tokio::test]
async fn instances_are_those_of_the_server() {
    let store = store("[server]\ninstances = 4");
    let counter = Counter::new("all".try_into().unwrap(), Key::new("k", "all"), Quota::per_second(400));
    let check = [Check::new(counter, 1)];
    let mut admitted = 0;
    for _ in 0..1_000 {
        let MaybeFuture::Ready(decided) = store.decide(&check, Ask::default()) else { panic!("a request waits") };
        let decision = decided.expect("it decides").decision;
        assert_eq!(decision.source(), Source::Fallback);
        admitted += u32::from(decision.is_allowed());
    }
    assert_eq!(admitted, 100);
}

#[tokio::test]
async fn with_keys_set_further_ones_have_the_share_of_the_process() {
    let store = store("keys = 1");
    let of = |key: &str| Counter::new("all".try_into().unwrap(), Key::new("k", key), Quota::per_second(400));
    for _ in 0..4 {
        for key in ["a"; 300].into_iter().chain(["b", "c"]) {
            drop(store.decide(&[Check::new(of(key), 1)], Ask::default()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let known = ["a", "b", "c"].map(|key| store.ratio(&of(key)).is_some());
    assert_eq!(known, [true, false, false]);
}

#[test]
fn two_files_with_the_same_ratios_differ_from_those_with_another() {
    let config = |lines: &str| Config::from_toml(&file(lines)).unwrap();
    let running = config("tick = \"2s\"\nreport = 9");
    assert!(running.has_ratios_of(&config("report = 9\ntick = \"2000ms\"\n[server]\ninstances = 3")));
    for other in ["tick = \"1s\"\nreport = 9", "tick = \"2s\"", "tick = \"2s\"\nreport = 9\nkeys = 5"] {
        assert!(!running.has_ratios_of(&config(other)), "{other}");
    }
    assert!(!running.has_ratios_of(&Config::default()));
    assert!(Config::default().has_ratios_of(&Config::from_toml(POLICIES).unwrap()));
}

#[test]
fn every_mistake_in_ratios_names_its_line() {
    let fair = "a table such as { policy = \"global\", by = \"caller\" }";
    for (lines, line, fragments) in [
        ("colour = 1", 10, &["unknown field `colour`", "`tick`, `ttl`, `report`, `keys`, `shards`, `fair`"][..]),
        ("instances = 3", 10, &["unknown field `instances`"]),
        ("tick = \"0s\"", 10, &["a tick of 0ns is not allowed: give 100ms to 60s, in whole milliseconds"]),
        ("tick = \"99ms\"", 10, &["a tick of 99ms is not allowed"]),
        ("tick = \"61s\"", 10, &["a tick of 61s is not allowed"]),
        ("tick = \"1500us\"", 10, &["a tick of 1.5ms is not allowed"]),
        ("tick = \"200100us\"", 10, &["a tick of 200.1ms is not allowed"]),
        ("tick = 1", 10, &["ratios.tick: expected a duration in quotes"]),
        ("tick = \"day\"", 10, &["ratios.tick: \"day\" is not a duration"]),
        ("tick = \"soon\"", 10, &["ratios.tick: \"soon\" is not a duration"]),
        ("\nttl = \"1s\"", 11, &["a ttl of 1s is shorter than two ticks of 1s: give 2s to 600s"]),
        ("tick = \"10s\"\nttl = \"19s\"", 11, &["a ttl of 19s is shorter than two ticks of 10s: give 20s to 6000s"]),
        ("ttl = \"19s\"\ntick = \"10s\"", 10, &["shorter than two ticks of 10s"]),
        ("ttl = \"601s\"", 10, &["a ttl of 601s is longer than 600 ticks of 1s"]),
        ("report = 0", 10, &["a report of 0 counters is not allowed: give 1 to 512"]),
        ("report = 513", 10, &["a report of 513 counters"]),
        ("report = -1", 10, &["`-1`"]),
        ("keys = 0", 10, &["keys 0 is not allowed: give 1 to 10000000"]),
        ("keys = 10_000_001", 10, &["keys 10000001 is not allowed"]),
        ("shards = 0", 10, &["0 shards are not allowed: give 1 to 16"]),
        ("shards = 17", 10, &["17 shards are not allowed"]),
        ("shards = 257", 10, &["257 shards are not allowed"]),
        ("fair = \"user\"", 10, &[fair]),
        ("fair = { policy = \"all\" }", 10, &["ratios.fair: missing field `by`"]),
        ("fair = { by = \"all\" }", 10, &["ratios.fair: missing field `policy`"]),
        ("fair = { policy = \"all\", by = \"user\", of = 1 }", 10, &["unknown field `of`"]),
        ("fair = { policy = \"al\", by = \"user\" }", 10, &["fair names \"al\", which is no policy of the file"]),
        ("fair = { policy = \"all\", by = \"users\" }", 10, &["fair names \"users\"", "(column 31)"]),
        ("fair = { policy = \"all\", by = \"all\" }", 10, &["callers of \"all\" are its own keys"]),
        ("fair = { policy = \"all\", by = 7 }", 10, &["integer `7`"]),
    ] {
        refused(&file(lines), line, fragments);
    }
    refused("ratios = 3", 1, &["ratios: invalid type: integer `3`, expected a table, under [ratios]"]);
}

#[test]
fn a_policy_that_has_no_ratio_is_an_error_at_the_line_of_its_name() {
    for (lines, text) in [
        ("algorithm = \"sliding_log\"", "policy \"a\" counts by a sliding_log, which has no ratio"),
        ("# no window\nalgorithm = \"concurrency\"", "counts by a concurrency"),
        ("algorithm = \"leaky_bucket\"", "counts by a leaky_bucket"),
        ("window = \"61s\"", "policy \"a\" has a window of 61s, and ratios are of rates: give at most 60s"),
        ("window = \"59s\"", "policy \"a\" admits fewer than 10 units in a tick of 1s"),
        ("count = \"failures\"", "policy \"a\" settles units by the outcome, and a ratio refunds none"),
        ("metered = true", "settles units by the outcome"),
        ("refund_dropped = true", "settles units by the outcome"),
        ("key = \"peer_ip\"\nban = { after = 9, within = \"1m\", duration = \"1m\" }", "policy \"a\" has a ban"),
    ] {
        let file = policy(lines);
        let name = file.lines().position(|line| line.starts_with("name")).expect("a name") + 1;
        Config::from_toml(&file).unwrap_or_else(|error| panic!("without ratios it is good: {error:#}"));
        refused(&format!("{file}[ratios]\n"), name, &[text]);
    }
    #[cfg(feature = "calendar")]
    refused(
        &format!("{}[ratios]\n", policy("algorithm = \"fixed_window\"\nwindow = \"day\"")),
        5,
        &["give at most 60s"],
    );
}

/// A store for slots is another than the one with ratios.
#[tokio::test]
async fn a_fleet_and_ratios_are_in_one_file() {
    let lines = "[fleet]\nlimit = 4\nreserve = 0.5\ncritical = { header = \"x-priority\", value = \"high\" }";
    let config = Config::from_toml(&file(lines)).expect("a good file");
    assert!(config.ratio_store(MemoryTally::new()).expect("valid settings").is_some());
    assert!(FleetConfig::from_toml(&file(lines)).expect("a good file").is_some());
}

#[tokio::test]
async fn a_layer_is_an_error_until_the_ratio_store_of_the_file_was_made() {
    let config = Config::from_toml(&file("tick = \"1s\"")).expect("a good file");
    let error = config.layer(MemoryStore::new()).expect_err("the table has no effect").to_string();
    assert!(error.starts_with("line 9: this table has no effect without Config::ratio_store: call it "), "{error}");
    let store = config.ratio_store(MemoryTally::new()).expect("valid settings").expect("the file has ratios");
    assert!(config.layer(store).is_ok());
}
