//! What policies can be limited by ratios, and how several of them are.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::Quota;
use tollgate::policy::{Calendar, PolicyName};
use tollgate::store::{Change, Check, Mode, Requirement, Settles, Store};
use tollgate_ratio::{CounterId, MemoryTally, RatioStore};

use super::{LIMIT, Steps, Switch, TICK, all, counter, decide, load};

#[tokio::test]
async fn a_later_policy_is_offered_what_the_earlier_ones_pass() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    let later = counter("later", "all", Quota::per_second(LIMIT / 2));
    let shadow = Check::new(counter("shadow", "all", Quota::per_second(1)), 1).mode(Mode::Shadow);
    let checks = [shadow, Check::new(all(), 1), Check::new(later.clone(), 1)];
    let (mut admitted, mut passed) = (0_u64, 0_u64);
    let mut steps = Steps::new();
    for step in 0..14 * 50 {
        for _ in 0..20 {
            let decision = decide(&stores[0], &checks);
            if step >= 4 * 50 {
                admitted += u64::from(decision.is_allowed());
                passed += u64::from(decision.outcomes()[1].is_allowed());
            }
        }
        steps.next().await;
    }
    assert!(
        passed.abs_diff(10 * LIMIT) <= LIMIT / 2 && admitted.abs_diff(5 * LIMIT) <= LIMIT / 4,
        "{passed}, {admitted}"
    );
    let last = tally.reports().pop().expect("there were reports");
    let offered = |id: CounterId| last.counters.iter().find(|one| one.id == id).map(|one| one.critical);
    assert_eq!(offered(CounterId::new(&all())), Some(1_000), "whatever shadow mode would refuse");
    let passed = offered(CounterId::new(&later)).expect("it is reported");
    assert!(passed.abs_diff(LIMIT) <= LIMIT / 10, "{passed}");
}

#[tokio::test]
async fn a_cost_that_never_fits_is_not_offered_and_a_look_takes_nothing() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    // More than half of the limit, so that it is reported exactly.
    load(&stores, &Check::new(all(), 1), 250, 4).await;
    let before = tally.reports().len();
    let mut remaining = Vec::new();
    for _ in 0..100 {
        let refused = decide(&stores[0], &[Check::new(all(), LIMIT + 1)]);
        assert!(!refused.is_allowed() && refused.retry_after().is_none());
        assert!(!decide(&stores[0], &[Check::new(all(), 1).floor(LIMIT)]).is_allowed());
        let look = decide(&stores[0], &[Check::new(all(), 0)]);
        assert!(look.is_allowed());
        remaining.push(look.outcomes()[0].remaining());
    }
    remaining.dedup();
    assert!(remaining.len() == 1 && (1..LIMIT - 250).contains(&remaining[0]), "{remaining:?}");
    sleep(2 * TICK).await;
    let later = &tally.reports()[before + 1..];
    assert!(later.iter().flat_map(|report| &report.counters).all(|one| one.ordinary + one.critical == 0));
}

#[tokio::test]
async fn a_changed_limit_holds_from_the_next_tick_on() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    load(&stores, &Check::new(all(), 1), 500, 5).await;
    let raised = counter("all", "all", Quota::per_second(2 * LIMIT));
    let admitted = load(&stores, &Check::new(raised, 1), 500, 10).await;
    let mean = admitted[2..].iter().sum::<u64>() / 8;
    assert!(mean.abs_diff(2 * LIMIT) * 20 <= 2 * LIMIT, "{admitted:?}");
}

#[tokio::test]
async fn a_limit_of_a_minute_is_a_rate() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    let minute = counter("all", "all", Quota::per_minute(60 * LIMIT).burst(LIMIT));
    let admitted = load(&stores, &Check::new(minute, 1), 1_000, 13).await;
    let mean = admitted[3..].iter().sum::<u64>() / 10;
    assert!(mean.abs_diff(LIMIT) * 20 <= LIMIT, "{admitted:?}");
}

#[tokio::test]
async fn counters_cannot_be_changed_and_a_reset_is_one_of_this_process() {
    let tally = Switch::new();
    let stores = tally.stores(2);
    load(&stores, &Check::new(all(), 1), 1_000, 5).await;
    let error = stores[0].adjust(&all(), Change::Charge(1)).wait().await.expect_err("there is no counter");
    assert!(error.is_invalid() && error.to_string().contains("\"all\""), "{error}");
    stores[0].adjust(&all(), Change::Reset).wait().await.expect("it is forgotten");
    assert_eq!(stores[0].ratio(&all()), None);
    assert!(stores[1].ratio(&all()).is_some());
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
        refused(Requirement::new(&name, &quota), "give a longer tick, or use another store");
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
        (builder().tick(Duration::ZERO), "a tick of 0ns is not allowed: give 100ms to 60s"),
        (builder().tick(ms(99)), "a tick of 99ms"),
        (builder().tick(ms(60_001)), "a tick of 60.001s"),
        (builder().tick(Duration::from_micros(100_500)), "in whole milliseconds"),
        (builder().ttl(ms(1_000)), "a ttl of 1s is shorter than two ticks of 1s: give 2s to 600s"),
        (builder().ttl(ms(600_001)), "a ttl of 600.001s is longer than 600 ticks of 1s"),
        (builder().report(0), "a report of 0 counters is not allowed: give 1 to 512"),
        (builder().report(513), "a report of 513 counters"),
        (builder().shards(0), "0 shards are not allowed: give 1 to 16"),
        (builder().shards(17), "17 shards"),
        (builder().fair("no name!", "user"), "no name!"),
    ] {
        let error = builder.try_build().expect_err(text);
        assert!(error.is_invalid() && error.to_string().contains(text), "{error}");
    }
    assert!(builder().tick(ms(100)).ttl(ms(200)).report(512).shards(16).try_build().is_ok());
    assert!(builder().tick(ms(60_000)).try_build().is_ok());
}

#[tokio::test]
async fn tiers_of_one_key_are_each_limited_by_their_own_quota() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    let of = |limit| Check::new(counter("all", "all", Quota::per_second(limit)), 1);
    let (small, large) = (of(10), of(1_000));
    let (mut admitted, mut steps) = ([0; 2], Steps::new());
    for step in 0..10 * 50 {
        for _ in 0..4 {
            let is_allowed = decide(&stores[0], std::slice::from_ref(&large)).is_allowed();
            admitted[1] += u64::from(is_allowed && step >= 200);
        }
        admitted[0] += u64::from(decide(&stores[0], std::slice::from_ref(&small)).is_allowed() && step >= 200);
        steps.next().await;
    }
    assert_eq!(admitted[1], 6 * 200, "all are offered a quarter of the large limit");
    assert!(admitted[0] <= 6 * 40, "25 times the small one: {admitted:?}");
}

#[tokio::test]
async fn a_tier_that_has_no_ratio_is_an_error() {
    let tally = Switch::new();
    let stores = tally.stores(1);
    load(&stores, &Check::new(all(), 1), 100, 2).await;
    for quota in
        [Quota::concurrency(5), Quota::fixed_window(10, Duration::from_secs(3_600)), Quota::leaky_bucket(5, TICK)]
    {
        let check = Check::new(counter("all", "tier", quota), 1);
        let tollgate::store::MaybeFuture::Ready(decided) = stores[0].decide(&[check], tollgate::store::Ask::default())
        else {
            panic!("a request waits")
        };
        assert!(decided.is_err(), "{quota}");
    }
}

#[test]
fn build_panics_with_the_sentence_of_the_error() {
    let builder = || RatioStore::builder(MemoryTally::new()).tick(TICK / 20);
    let error = builder().try_build().expect_err("it is too short").to_string();
    assert_eq!(error, "a tick of 50ms is not allowed: give 100ms to 60s, in whole milliseconds");
    let panic = catch_unwind(AssertUnwindSafe(|| builder().build())).expect_err("it panics");
    assert_eq!(panic.downcast_ref::<String>(), Some(&error));
}
