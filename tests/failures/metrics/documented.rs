//! The documents name what there is.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use metrics_util::MetricKind;
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_bandwidth::Flow;
use tollgate_ratio::{MemoryTally, RatioStore};
use tollgate_shed::{FleetShedLayer, WorkerShedLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::watch::Watch;
use crate::rig::{MANY, ask, per_user};

/// Every series that two policies have after the first request and the first flow.
async fn first_seen() -> Vec<(String, MetricKind, String)> {
    let watch = Watch::start();
    let ban = Ban::new(1, Duration::from_secs(60), Duration::from_secs(60)).of_verified_keys();
    let trial = Policy::new("trial", MANY).key(key::header("x-user")).shadow();
    let policies = [per_user(MANY).ban(ban), trial.ban(ban)];
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies(policies);
    ask(&layer, "ada").await;
    shed_by_both().await;
    drop_by_ratio().await;
    drop(
        Flow::of(&layer.clone().live().limiter(), &Key::hashed("header x-user", "ada"))
            .await
            .expect("memory never fails"),
    );
    watch.all().into_iter().map(|(series, kind, text, _)| (series, kind, text)).collect()
}

/// Sends a request through a shedder of each kind.
async fn shed_by_both() {
    let inner = || service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let fleet = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(10), 0.2);
    fleet.layer(inner()).oneshot(Request::default()).await.expect("a response");
    let worker = WorkerShedLayer::measured("worker", || 0.5);
    worker.layer(inner()).oneshot(Request::default()).await.expect("a response");
}

/// Sends a request through a layer with ratios, and waits for the first report.
async fn drop_by_ratio() {
    let ticks = RatioStore::builder(MemoryTally::new()).tick(Duration::from_millis(100)).build();
    let layer = RateLimitLayer::new(ticks, per_user(Quota::per_second(100)));
    ask(&layer, "ada").await;
    tokio::time::sleep(Duration::from_millis(250)).await;
}

/// The rows of a document's table of metrics: name, type, unit, and each label with its values.
fn rows(document: &str) -> Vec<Vec<&str>> {
    let rows =
        document.lines().map(|line| line.trim_start_matches("//! ")).filter(|line| line.starts_with("| `tollgate_"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
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

#[tokio::test]
async fn the_table_of_metrics_is_complete() {
    let document = include_str!("../../../docs/metrics.md");
    let mut told = BTreeSet::new();
    for row in rows(document) {
        let [name, kind, unit, labels, ..] = row[..] else { panic!("{row:?}") };
        told.insert((words(name)[0].to_owned(), kind.to_owned(), unit.to_owned(), words(labels).join(" ")));
    }
    let found = first_seen().await;
    let of_name = found.iter().map(|(series, found_kind, text)| {
        let (name, _) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels_of(&found, name);
        let unit = text.split_once(':').expect("a unit and a text").0;
        (name.to_owned(), kind(*found_kind).to_owned(), unit.to_owned(), labels)
    });
    assert_eq!(of_name.collect::<BTreeSet<_>>(), told);
}

#[tokio::test]
async fn alerts_are_on_what_there_is() {
    let found = first_seen().await;
    let document = include_str!("../../../docs/metrics.md");
    let (_, alerts) = document.split_once("## To alert on").expect("alerts");
    for name in names(alerts) {
        assert!(found.iter().any(|(series, ..)| series.split('{').next() == Some(name)), "{name}");
    }
    for selector in alerts.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(selector, _)| selector) {
        let (label, values) = selector.split_once('=').expect("a label and its values");
        for value in values.trim_matches(['~', '"']).split('|') {
            let pair = format!("{label}={value}");
            assert!(found.iter().any(|(series, ..)| series.contains(&pair)), "{selector}");
        }
    }
}

/// A metric's labels, each with the values it takes, in the order in which they are made.
fn labels_of(found: &[(String, MetricKind, String)], name: &str) -> String {
    let mut labels: Vec<(&str, Vec<&str>)> = Vec::new();
    for (series, ..) in found {
        let Some((_, pairs)) = series.split_once('{').filter(|(found, _)| *found == name) else { continue };
        for (label, value) in pairs.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('=')) {
            let place = labels.iter().position(|(known, _)| *known == label).unwrap_or_else(|| {
                labels.push((label, Vec::new()));
                labels.len() - 1
            });
            if label != "policy" && !labels[place].1.contains(&value) {
                labels[place].1.push(value);
            }
        }
    }
    labels
        .iter()
        .flat_map(|(label, values)| std::iter::once(label).chain(values))
        .copied()
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test]
async fn the_crates_name_the_same_metrics() {
    let found: BTreeSet<_> = first_seen()
        .await
        .into_iter()
        .map(|(series, found_kind, _)| {
            let name = series.split('{').next().expect("a name").to_owned();
            (name, kind(found_kind).to_owned())
        })
        .collect();
    let of_flows = include_str!("../../../crates/tollgate-bandwidth/docs/bandwidth.md");
    let of_ratios = include_str!("../../../crates/tollgate-ratio/docs/ratios.md");
    let of_shedders = include_str!("../../../crates/tollgate-shed/docs/shedding.md");
    let told = [include_str!("../../../src/lib.rs"), of_flows, of_ratios, of_shedders].map(rows).concat();
    let told: BTreeSet<_> = told.iter().map(|row| (words(row[0])[0].to_owned(), row[1].to_owned())).collect();
    assert_eq!(found, told);
}
