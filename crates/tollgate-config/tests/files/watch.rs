//! A layer that follows a file.

use std::fs;
use std::time::{Duration, Instant};

use tollgate::{LiveLayer, MemoryStore, Policy, Quota};
use tollgate_config::Config;
use tracing::Level;

use super::{TempFile, policy};
use crate::log::Log;

const INTERVAL: Duration = Duration::from_millis(5);

async fn wait(what: &str, is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn limit_becomes(layer: &LiveLayer, limit: u64) {
    let is_there = || layer.find_policy("a").is_some_and(|policy| policy.quota().limit() == limit);
    wait(&format!("the limit does not become {limit}"), is_there).await;
}

#[tokio::test]
async fn a_layer_follows_its_file_and_keeps_its_policies_while_the_file_is_not_valid() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let file = TempFile::new("watch", policy("limit = 1").as_bytes());
    // In one step: a file that is half written would be refused, too.
    let write = |text: &str| {
        let next = file.path().with_extension("next");
        fs::write(&next, text).and_then(|()| fs::rename(next, file.path())).expect("it can be written");
    };
    let read = |path: &std::path::Path| {
        let add = |policies: Vec<Policy>| policies.into_iter().chain([Policy::new("added", Quota::per_hour(9))]);
        Ok(Config::from_file(path)?.with_policies(|policies| add(policies).collect()))
    };
    let layer = read(&file.path()).and_then(|config| config.layer(MemoryStore::new())).expect("it is valid").live();
    let watch = tokio::spawn(Config::watch(file.path(), INTERVAL, layer.clone(), read));

    write(&policy("limit = 2"));
    limit_becomes(&layer, 2).await;
    write(&policy("limit = 0"));
    wait("the file is not refused", || log.count("line 3: limit 0 admits nothing") == 1).await;
    fs::remove_file(file.path()).expect("it is there");
    wait("the file is there", || log.count("cannot read the config file") == 1).await;
    tokio::time::sleep(10 * INTERVAL).await;
    assert_eq!(log.count("code=\"file_invalid\""), 2, "each is told once: {}", log.text());
    limit_becomes(&layer, 2).await;

    write(&policy("limit = 3"));
    limit_becomes(&layer, 3).await;
    assert!(layer.find_policy("added").is_some());
    watch.abort();
}

#[test]
fn a_table_of_another_crate_is_an_error_unless_the_file_is_read_without_it() {
    let file = policy("limit = 1") + "[fleet]\nlimit = 500\n[[ratios]]\ntick = \"1s\"\n";
    for (without, refused) in [(&[][..], "fleet"), (&["fleet"], "ratios"), (&["ratios", "polices"], "fleet")] {
        let error = Config::from_toml_without(&file, without).expect_err("nobody reads the table").to_string();
        let line = file.lines().position(|line| line.contains(&format!("[{refused}]"))).expect("it is there") + 1;
        let told = format!("line {line}: unknown field `{refused}`, expected `policy` or `server`: correct it");
        assert!(error.starts_with(&told), "{error}");
    }
    let read = Config::from_toml_without(&file, &["ratios", "fleet"]).expect("others read the tables");
    assert_eq!(read.policies().len(), 1);
    let kept = TempFile::new("tables", file.as_bytes());
    assert!(Config::from_file_without(kept.path(), &["ratios", "fleet"]).is_ok());
    // What is left out is read as TOML all the same.
    Config::from_toml_without("[fleet]\nlimit = \n", &["fleet"]).expect_err("it has no value");
}
