//! What policies can be limited by ratios, and how several of them are.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Quota;
use tollgate::policy::{Calendar, PolicyName};
use tollgate::store::{Ask, Change, Check, Mode, Requirement, Settles, Store};
use tollgate_ratio::{CounterId, MemoryTally, RatioStore};

use super::{Fleet, LIMIT, Switch, TICK, admits, all, counter, decide, load, offered};
use crate::support::panics::assert_panics;

#[tokio::test]
async fn a_later_policy_is_offered_what_the_earlier_ones_pass() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    let later = counter("later", "all", Quota::per_second(LIMIT / 2));
    let shadow = Check::new(counter("shadow", "all", Quota::per_second(1)), 1).mode(Mode::Shadow);
    let checks = [shadow, Check::new(all(), 1), Check::new(later.clone(), 1)];
    let [passed, admitted] = offered(4..14, |_| {
        let mut passed = [0; 2];
        for _ in 0..20 {
            let decision = decide(&stores[0], &checks);
            passed[0] += u64::from(decision.outcomes()[1].is_allowed());
            passed[1] += u64::from(decision.is_allowed());
        }
        passed
    })
    .await;
    assert!(passed.abs_diff(10 * LIMIT) <= LIMIT / 2, "{passed}");
    assert!(admitted.abs_diff(5 * LIMIT) <= LIMIT / 4, "{admitted}");
    let last = tally.reports().pop().expect("there were reports");
    let offered = |id: CounterId| last.counters.iter().find(|one| one.id == id).map(|one| one.critical);
    assert_eq!(offered(CounterId::new(&all())), Some(1_000), "whatever shadow mode would refuse");
    let passed = offered(CounterId::new(&later)).expect("it is reported");
    assert!(passed.abs_diff(LIMIT) <= LIMIT / 10, "{passed}");
}

#[tokio::test]
async fn a_cost_that_never_fits_is_not_offered_and_a_look_takes_nothing() {
    let fleet = Fleet::new(1);
    // More than half of the limit, so that it is reported exactly.
    fleet.load(250, 4).await;
    let before = fleet.tally.reports().len();
    let mut remaining = Vec::new();
    for _ in 0..100 {
        let refused = decide(&fleet.stores[0], &[Check::new(all(), LIMIT + 1)]);
        assert!(!refused.is_allowed() && refused.retry_after().is_none());
        assert!(!decide(&fleet.stores[0], &[Check::new(all(), 1).floor(LIMIT)]).is_allowed());
        let look = decide(&fleet.stores[0], &[Check::new(all(), 0)]);
        assert!(look.is_allowed());
        remaining.push(look.outcomes()[0].remaining());
    }
    remaining.dedup();
    assert!(remaining.len() == 1 && (1..LIMIT - 250).contains(&remaining[0]), "{remaining:?}");
    sleep(2 * TICK).await;
    let later = &fleet.tally.reports()[before + 1..];
    assert!(later.iter().flat_map(|report| &report.counters).all(|one| one.ordinary + one.critical == 0));
}

#[tokio::test]
async fn counters_cannot_be_changed_and_a_reset_is_one_of_this_process() {
    let fleet = Fleet::new(2);
    fleet.load(1_000, 5).await;
    let error = fleet.stores[0].adjust(&all(), Change::Charge(1)).wait().await.expect_err("there is no counter");
    assert!(error.is_invalid() && error.to_string().contains("\"all\""), "{error}");
    fleet.stores[0].adjust(&all(), Change::Reset).wait().await.expect("it is forgotten");
    assert_eq!(fleet.ratio(), None);
    assert!(fleet.stores[1].ratio(&all()).is_some());
}

#[test]
fn a_policy_that_has_no_ratio_is_refused_when_the_layer_is_built() {
    let (store, second) = (RatioStore::new(MemoryTally::new()), Duration::from_secs(1));
    let name = PolicyName::try_from("mail").expect("a valid name");
    let refused = |requirement: Requirement<'_>, reason: &str| {
        let error = store.capabilities(&[requirement]).expect_err(reason).to_string();
        assert!(error.contains("\"mail\"") && error.contains(reason), "{error}");
    };
    let window = Quota::per_second(10);
    for quota in [window, Quota::fixed_window(10, second), Quota::sliding_window(600, 60 * second)] {
        assert!(store.capabilities(&[Requirement::new(&name, &quota).reserves()]).is_ok(), "{quota}");
    }
    for quota in [Quota::sliding_log(10, second), Quota::leaky_bucket(10, second), Quota::concurrency(10)] {
        refused(Requirement::new(&name, &quota), "has no ratio");
    }
    refused(Requirement::new(&name, &Quota::per_hour(10)), "window of 3600s");
    for quota in [Quota::per_second(9), Quota::per_minute(599)] {
        refused(Requirement::new(&name, &quota), "fewer than 10 units in a tick of 1s");
        refused(Requirement::new(&name, &quota), "use a longer tick, or use another store");
    }
    assert!(store.capabilities(&[Requirement::new(&name, &Quota::per_minute(600))]).is_ok());
    let daily = Calendar::daily("UTC").expect("a zone");
    refused(Requirement::new(&name, &Quota::calendar_window(1_000_000, daily)), "window of 86400s");
    refused(Requirement::new(&name, &window).settles(Settles::ByOutcome), "settles units by the outcome");
    refused(Requirement::new(&name, &window).bans(), "has a ban");
    let fair = RatioStore::builder(MemoryTally::new()).fair("mail", "user").build();
    let error = fair.capabilities(&[Requirement::new(&name, &window)]).expect_err("there is no such policy");
    assert!(error.to_string().contains("\"user\""), "{error}");
    let user = PolicyName::try_from("user").expect("a valid name");
    assert!(fair.capabilities(&[Requirement::new(&name, &window), Requirement::new(&user, &window)]).is_ok());
    assert!(fair.capabilities(&[Requirement::new(&user, &window)]).is_ok(), "another layer, without the policy");
}

#[test]
fn settings_outside_of_their_bounds_are_errors() {
    let builder = || RatioStore::builder(MemoryTally::new());
    let ms = Duration::from_millis;
    for (builder, text) in [
        (builder().tick(ms(99)), "a tick of 99ms is not allowed: use 100ms to 60s"),
        (builder().tick(ms(60_001)), "a tick of 60.001s"),
        (builder().tick(Duration::from_micros(100_500)), "in whole milliseconds"),
        (builder().ttl(ms(600_001)), "a ttl of 600.001s is longer than 600 ticks of 1s"),
        (builder().report(513), "a report of 513 counters"),
        (builder().shards(17), "17 shards"),
        (builder().fair("no name!", "user"), "no name!"),
    ] {
        let error = builder.try_build().expect_err(text);
        assert!(error.is_invalid() && error.to_string().contains(text), "{error}");
    }
    assert!(builder().tick(ms(100)).ttl(ms(200)).report(512).shards(16).try_build().is_ok());
    assert_panics(|| builder().report(0).build(), builder().report(0).try_build());
}

#[tokio::test]
async fn tiers_of_one_key_are_each_limited_by_their_own_quota() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    let of = |limit| Check::new(counter("all", "all", Quota::per_second(limit)), 1);
    let (small, large) = (of(10), of(1_000));
    let admitted = offered(4..10, |_| {
        let of_large = (0..4).map(|_| admits(&stores[0], std::slice::from_ref(&large))).sum();
        [admits(&stores[0], std::slice::from_ref(&small)), of_large]
    })
    .await;
    assert_eq!(admitted[1], 6 * 200, "all are offered a quarter of the large limit");
    assert!(admitted[0] <= 6 * 40, "25 times the small one: {admitted:?}");
}

#[tokio::test]
async fn a_tier_that_has_no_ratio_is_an_error() {
    let fleet = Fleet::new(1);
    fleet.load(100, 2).await;
    for quota in
        [Quota::concurrency(5), Quota::fixed_window(10, Duration::from_secs(3_600)), Quota::leaky_bucket(5, TICK)]
    {
        let check = Check::new(counter("all", "tier", quota), 1);
        assert!(fleet.stores[0].decide(&[check], Ask::default()).wait().await.is_err(), "{quota}");
    }
}

#[tokio::test]
async fn a_changed_limit_holds_from_the_next_tick_on_and_one_of_a_minute_is_a_rate() {
    let minute = Quota::per_minute(60 * LIMIT).burst(LIMIT);
    for (quota, limit) in [(Quota::per_second(2 * LIMIT), 2 * LIMIT), (minute, LIMIT)] {
        let fleet = Fleet::new(2);
        fleet.load(500, 5).await;
        let admitted = load(&fleet.stores, &Check::new(counter("all", "all", quota), 1), 500, 12).await;
        let mean = admitted[2..].iter().sum::<u64>() / 10;
        assert!(mean.abs_diff(limit) * 20 <= limit, "{quota}: {admitted:?}");
    }
}
