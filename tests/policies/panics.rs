//! What can be wrong only in code panics where it is written, and says what its fallible version says.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use tollgate::policy::Calendar;
use tollgate::store::{DenyCache, LeaseStore};
use tollgate::{Ban, Error, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, key};

use crate::support::panics::assert_panics;

const HOUR: Duration = Duration::from_secs(3_600);
const HOURLY: Quota = Quota::per_hour(1);
const FOUR: NonZeroU32 = NonZeroU32::new(4).expect("it is not zero");

/// A function, and the check that a call of it panics with the error of its fallible version.
type Row = (&'static str, Box<dyn FnOnce()>);

fn row<T: 'static, E: 'static>(
    function: &'static str,
    call: impl FnOnce() -> T + 'static,
    fallible: Result<E, Error>,
) -> Row {
    (function, Box::new(move || assert_panics(call, fallible)))
}

fn layer() -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new())
}

fn policy() -> Policy {
    Policy::new("a", HOURLY).key(key::peer_ip())
}

fn month() -> Calendar {
    Calendar::monthly("UTC").expect("UTC is known")
}

fn quotas() -> Vec<Row> {
    let (huge, window) = (1 << 60, HOUR + Duration::from_nanos(1_500));
    let (queue, fixed) = (Quota::leaky_bucket(1, HOUR), Quota::fixed_window(1, HOUR));
    let (calendar, long) = (Quota::try_calendar_window(0, month()), Quota::try_long_sliding_log(huge, HOUR));
    vec![
        row("Quota::per_second", || Quota::per_second(0), Quota::try_per_second(0)),
        row("Quota::per_minute", || Quota::per_minute(0), Quota::try_per_minute(0)),
        row("Quota::per_hour", || Quota::per_hour(0), Quota::try_per_hour(0)),
        row("Quota::per_day", || Quota::per_day(0), Quota::try_per_day(0)),
        row("Quota::gcra", || Quota::gcra(0, HOUR), Quota::try_gcra(0, HOUR)),
        row("Quota::token_bucket", || Quota::token_bucket(0, HOUR), Quota::try_token_bucket(0, HOUR)),
        row("Quota::fixed_window", || Quota::fixed_window(0, HOUR), Quota::try_fixed_window(0, HOUR)),
        row("Quota::calendar_window", || Quota::calendar_window(0, month()), calendar),
        row("Quota::sliding_log", move || Quota::sliding_log(huge, HOUR), Quota::try_sliding_log(huge, HOUR)),
        row("Quota::long_sliding_log", move || Quota::long_sliding_log(huge, HOUR), long),
        row("Quota::sliding_window", move || Quota::sliding_window(1, window), Quota::try_sliding_window(1, window)),
        row("Quota::leaky_bucket", || Quota::leaky_bucket(0, HOUR), Quota::try_leaky_bucket(0, HOUR)),
        row("Quota::concurrency", move || Quota::concurrency(huge), Quota::try_concurrency(huge)),
        row("Quota::slot_ttl", || HOURLY.slot_ttl(HOUR), HOURLY.try_slot_ttl(HOUR)),
        row("Quota::max_hold", || HOURLY.max_hold(HOUR), HOURLY.try_max_hold(HOUR)),
        row("Quota::queue", || HOURLY.queue(3), HOURLY.try_queue(3)),
        row("Quota::nodelay", move || queue.nodelay(3), queue.try_nodelay(3)),
        row("Quota::burst", move || fixed.burst(3), fixed.try_burst(3)),
        row("Quota::share", || HOURLY.share(0, FOUR), HOURLY.try_share(0, FOUR)),
        row("Calendar::anchor", || month().anchor(32), month().try_anchor(32)),
    ]
}

fn policies_and_stores() -> Vec<Row> {
    let (twice, unmatched) = (|| [policy(), policy()], || policy().routes(["b"]));
    let rules = || [Rule::new("a", HOURLY), Rule::new("a", HOURLY)];
    let limiter = Limiter::try_new(MemoryStore::new(), rules());
    let routed = RateLimitLayer::try_new(MemoryStore::new(), unmatched());
    let own = || layer().policy(policy().key(key::client_ip().trusted_hops(1)));
    let (behind, proxies) = (|| key::client_ip().trusted_hops(2), ["proxy"]);
    let (ip, user) = (|| layer().ip(HOURLY), || layer().user(HOURLY, key::bearer()));
    let (route, global) = (|| layer().route(HOURLY), || layer().global(HOURLY));
    let (one, ban) = (|| layer().policy(policy()), || Ban::new(1, HOUR, HOUR));
    let header = || key::client_ip().try_header("x ip");
    let caching = || DenyCache::builder(MemoryStore::new()).capacity(0);
    let leasing = || LeaseStore::builder(MemoryStore::new()).max_share(1.5);
    vec![
        row("Policy::new", || Policy::new("a name", HOURLY), Policy::try_new("a name", HOURLY)),
        row("Policy::reserve", || policy().reserve(1.0, |_| true), policy().try_reserve(1.0, |_| true)),
        row("Rule::new", || Rule::new("a name", HOURLY), Rule::try_new("a name", HOURLY)),
        row("Ban::new", || Ban::new(0, HOUR, HOUR), Ban::try_new(0, HOUR, HOUR)),
        row("Ban::backoff", move || ban().backoff(0.5, HOUR), ban().try_backoff(0.5, HOUR)),
        row("Limiter::new", move || Limiter::new(MemoryStore::new(), rules()), limiter),
        row("RateLimitLayer::new", move || RateLimitLayer::new(MemoryStore::new(), unmatched()), routed),
        row("RateLimitLayer::client", move || own().client(behind()), own().try_client(behind())),
        row("RateLimitLayer::policy", move || one().policy(policy()), one().try_policy(policy())),
        row("RateLimitLayer::policies", move || layer().policies(twice()), layer().try_policies(twice())),
        row("RateLimitLayer::ip", move || ip().ip(HOURLY), ip().try_ip(HOURLY)),
        row("RateLimitLayer::user", move || user().user(HOURLY, key::host()), user().try_user(HOURLY, key::host())),
        row("RateLimitLayer::route", move || route().route(HOURLY), route().try_route(HOURLY)),
        row("RateLimitLayer::global", move || global().global(HOURLY), global().try_global(HOURLY)),
        row(
            "ClientIp::trusted_proxies",
            move || key::client_ip().trusted_proxies(proxies),
            key::client_ip().try_trusted_proxies(proxies),
        ),
        row("key::header", || key::header("x ip"), key::try_header("x ip")),
        row("ClientIp::header", || key::client_ip().header("x ip"), header()),
        row("DenyCacheBuilder::build", move || caching().build(), caching().try_build()),
        row("LeaseStoreBuilder::build", move || leasing().build(), leasing().try_build()),
    ]
}

fn rows() -> impl Iterator<Item = Row> {
    quotas().into_iter().chain(policies_and_stores())
}

#[test]
fn a_constructor_panics_where_it_is_called_with_the_sentence_of_its_error() {
    for (_, panics) in rows() {
        panics();
    }
    // What was given, and what is allowed.
    let nodelay = Quota::leaky_bucket(1, HOUR).try_nodelay(3).expect_err("it is too much").to_string();
    assert!(nodelay.contains("nodelay 3 is more than the queue holds: it must be at most 1"), "{nodelay}");
}

#[test]
fn each_function_with_a_fallible_version_is_in_the_table() {
    let api = include_str!("../../docs/api.txt");
    let functions = api.lines().filter_map(|line| {
        let (path, rest) = line.strip_prefix("pub ")?.split_once('(')?;
        let path = path.trim_start_matches("const ").strip_prefix("fn tollgate::")?;
        let (owner, function) = path.rsplit_once("::")?;
        let owner = owner.rsplit("::").next()?.split('<').next()?;
        Some((format!("{owner}::{}", function.split('<').next()?), rest))
    });
    let functions: Vec<_> = functions.collect();
    let names: BTreeSet<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
    let twins = functions.iter().filter(|(_, rest)| rest.contains("-> core::result::Result<"));
    let twins = twins.filter(|(name, _)| name.contains("::try_")).map(|(name, _)| name.replace("::try_", "::"));
    let with_twins: BTreeSet<String> = twins.filter(|name| names.contains(name.as_str())).collect();
    assert_eq!(with_twins, rows().map(|(function, _)| function.to_owned()).collect());
}
