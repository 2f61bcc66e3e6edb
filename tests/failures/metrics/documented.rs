//! The documents name what there is.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Request;
use metrics_util::MetricKind;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_bandwidth::Flow;
use tollgate_ratio::{MemoryTally, RatioStore};
use tollgate_shed::{FleetShedLayer, WorkerShedLayer};
use tollgate_test::send;

use super::watch::Watch;
use crate::rig::{MANY, ask, per_user};

/// Every series that two policies have after the first request, the first flow and the first report, through a shedder of
/// each kind too.
async fn first_seen() -> Vec<(String, &'static str, String)> {
    let watch = Watch::start();
    let ban = Ban::new(1, Duration::from_secs(60), Duration::from_secs(60)).of_verified_keys();
    let trial = Policy::new("trial", MANY).key(key::header("x-user")).shadow();
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies([per_user(MANY).ban(ban), trial.ban(ban)]);
    ask(&layer, "ada").await;
    let ada = Key::hashed("header x-user", "ada");
    drop(Flow::of(&layer.live().limiter(), &ada).await.expect("memory never fails"));
    let request = |_| Request::new(String::new());
    send(&FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(10), 0.2), 1, request).await;
    send(&WorkerShedLayer::measured("worker", || 0.5), 1, request).await;
    let ratios = RatioStore::builder(MemoryTally::new()).tick(Duration::from_millis(100)).build();
    let by_ratio = RateLimitLayer::new(ratios, per_user(Quota::per_second(100)));
    ask(&by_ratio, "ada").await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let kind = |kind| match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let unit = |text: String| text.split_once(':').expect("a unit and a text").0.to_owned();
    watch.all().into_iter().map(|(series, of, text, _)| (series, kind(of), unit(text))).collect()
}

/// The rows of a document's table of metrics: name, type, unit, and each label with its values.
fn rows(document: &str) -> Vec<Vec<&str>> {
    let rows =
        document.lines().map(|line| line.trim_start_matches("//! ")).filter(|line| line.starts_with("| `tollgate_"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The names of metrics in a text, without what Prometheus puts behind those of a histogram.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("tollgate_")).map(|word| word.trim_end_matches("_bucket")).collect()
}

/// What stands in backticks.
fn words(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A metric's labels, each with the values it takes, in the order in which they are made.
fn labels_of(found: &[(String, &str, String)], name: &str) -> String {
    let mut labels: Vec<(&str, Vec<&str>)> = Vec::new();
    for (series, ..) in found {
        let Some((_, pairs)) = series.split_once('{').filter(|(found, _)| *found == name) else { continue };
        for (label, value) in pairs.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('=')) {
            if labels.iter().all(|(known, _)| *known != label) {
                labels.push((label, vec![label]));
            }
            let values = labels.iter_mut().find(|(known, _)| *known == label).map(|(_, values)| values);
            values
                .filter(|values| label != "policy" && !values.contains(&value))
                .into_iter()
                .for_each(|values| values.push(value));
        }
    }
    labels.into_iter().flat_map(|(_, values)| values).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn the_table_of_metrics_is_complete() {
    let found = first_seen().await;
    let name_of = |series: &str| series.split('{').next().expect("a name").to_owned();
    let seen = found.iter().map(|(series, kind, unit)| {
        let name = name_of(series);
        let labels = labels_of(&found, &name);
        (name, (*kind).to_owned(), unit.clone(), labels)
    });
    let document = include_str!("../../../docs/metrics.md");
    let told = rows(document).into_iter().map(|row| {
        let [name, kind, unit, labels, ..] = row[..] else { panic!("{row:?}") };
        (words(name)[0].to_owned(), kind.to_owned(), unit.to_owned(), words(labels).join(" "))
    });
    assert_eq!(seen.collect::<BTreeSet<_>>(), told.collect());

    let (_, alerts) = document.split_once("## To alert on").expect("alerts");
    for name in names(alerts) {
        assert!(found.iter().any(|(series, ..)| name_of(series) == name), "{name}");
    }
    for selector in alerts.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(selector, _)| selector) {
        let (label, values) = selector.split_once('=').expect("a label and its values");
        for value in values.trim_matches(['~', '"']).split('|') {
            let pair = format!("{label}={value}");
            assert!(found.iter().any(|(series, ..)| series.contains(&pair)), "{selector}");
        }
    }
}
