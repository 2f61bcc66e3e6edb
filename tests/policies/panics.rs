//! What can be wrong only in code panics where it is written, and says what its fallible version says.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::time::Duration;

use tollgate::policy::Calendar;
use tollgate::store::{DenyCache, LeaseStore};
use tollgate::{Ban, Error, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, key};

const HOUR: Duration = Duration::from_secs(3_600);
const HOURLY: Quota = Quota::per_hour(1);
const FOUR: NonZeroU32 = NonZeroU32::new(4).expect("it is not zero");

/// A function, part of the sentence with which it panics, a call that does, and the error of its fallible twin.
type Row = (&'static str, &'static str, Box<dyn FnOnce()>, Error);

fn row<T: 'static, E>(
    function: &'static str,
    part: &'static str,
    call: impl FnOnce() -> T + 'static,
    twin: Result<E, Error>,
) -> Row {
    (function, part, Box::new(move || drop(call())), twin.err().expect(function))
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
    let zero = "limit 0 admits nothing: give at least 1";
    let (huge, window) = (1 << 60, HOUR + Duration::from_nanos(1_500));
    let queue = Quota::leaky_bucket(1, HOUR);
    vec![
        row("Quota::per_second", zero, || Quota::per_second(0), Quota::try_per_second(0)),
        row("Quota::per_minute", zero, || Quota::per_minute(0), Quota::try_per_minute(0)),
        row("Quota::per_hour", zero, || Quota::per_hour(0), Quota::try_per_hour(0)),
        row("Quota::per_day", zero, || Quota::per_day(0), Quota::try_per_day(0)),
        row("Quota::gcra", zero, || Quota::gcra(0, HOUR), Quota::try_gcra(0, HOUR)),
        row("Quota::token_bucket", zero, || Quota::token_bucket(0, HOUR), Quota::try_token_bucket(0, HOUR)),
        row("Quota::fixed_window", zero, || Quota::fixed_window(0, HOUR), Quota::try_fixed_window(0, HOUR)),
        row(
            "Quota::calendar_window",
            zero,
            || Quota::calendar_window(0, month()),
            Quota::try_calendar_window(0, month()),
        ),
        row(
            "Quota::sliding_log",
            "at most 10000",
            move || Quota::sliding_log(huge, HOUR),
            Quota::try_sliding_log(huge, HOUR),
        ),
        row(
            "Quota::long_sliding_log",
            "at most 1000000",
            move || Quota::long_sliding_log(huge, HOUR),
            Quota::try_long_sliding_log(huge, HOUR),
        ),
        row(
            "Quota::sliding_window",
            "window 3600.0000015s is not a whole number of ticks",
            move || Quota::sliding_window(1, window),
            Quota::try_sliding_window(1, window),
        ),
        row("Quota::leaky_bucket", zero, || Quota::leaky_bucket(0, HOUR), Quota::try_leaky_bucket(0, HOUR)),
        row("Quota::concurrency", "at most 1000000", move || Quota::concurrency(huge), Quota::try_concurrency(huge)),
        row("Quota::slot_ttl", "slot_ttl 3600s is for", || HOURLY.slot_ttl(HOUR), HOURLY.try_slot_ttl(HOUR)),
        row("Quota::max_hold", "max_hold 3600s is for", || HOURLY.max_hold(HOUR), HOURLY.try_max_hold(HOUR)),
        row("Quota::queue", "queue 3 is for", || HOURLY.queue(3), HOURLY.try_queue(3)),
        row(
            "Quota::nodelay",
            "nodelay 3 is more than the queue holds: give at most 1",
            move || queue.nodelay(3),
            queue.try_nodelay(3),
        ),
        row(
            "Quota::burst",
            "burst 3 is for",
            || Quota::fixed_window(1, HOUR).burst(3),
            Quota::fixed_window(1, HOUR).try_burst(3),
        ),
        row("Quota::share", "some of 4 parts empty", || HOURLY.share(0, FOUR), HOURLY.try_share(0, FOUR)),
        row("Calendar::anchor", "anchor 32 is no day", || month().anchor(32), month().try_anchor(32)),
        row("Ban::new", "after must be from 1", || Ban::new(0, HOUR, HOUR), Ban::try_new(0, HOUR, HOUR)),
        row(
            "Ban::backoff",
            "backoff must be from 1 to 100, not 0.5",
            || Ban::new(1, HOUR, HOUR).backoff(0.5, HOUR),
            Ban::new(1, HOUR, HOUR).try_backoff(0.5, HOUR),
        ),
    ]
}

fn policies() -> Vec<Row> {
    let (name, header) = ("policy name \"a name\" is not allowed", "\"x ip\" is not a header name");
    let twice = || [policy(), policy()];
    let rules = || [Rule::new("a", HOURLY), Rule::new("a", HOURLY)];
    let limited = |rules| Limiter::try_new(MemoryStore::new(), rules);
    let unmatched = || policy().routes(["b"]);
    let own = || layer().policy(policy().key(key::client_ip().trusted_hops(1)));
    let behind = || key::client_ip().trusted_hops(2);
    let users = || layer().user(HOURLY, key::bearer());
    vec![
        row("Policy::new", name, || Policy::new("a name", HOURLY), Policy::try_new("a name", HOURLY)),
        row("Policy::reserve", "reserve 1 is", || policy().reserve(1.0, |_| true), policy().try_reserve(1.0, |_| true)),
        row("Rule::new", name, || Rule::new("a name", HOURLY), Rule::try_new("a name", HOURLY)),
        row("Limiter::new", "\"a\"", move || Limiter::new(MemoryStore::new(), rules()), limited(rules())),
        row(
            "RateLimitLayer::new",
            "policy \"a\": route \"b\" can never match",
            move || RateLimitLayer::new(MemoryStore::new(), unmatched()),
            RateLimitLayer::try_new(MemoryStore::new(), unmatched()),
        ),
        row("RateLimitLayer::client", "trusts other", move || own().client(behind()), own().try_client(behind())),
        row(
            "RateLimitLayer::policy",
            "\"a\"",
            || layer().policy(policy()).policy(policy()),
            layer().policy(policy()).try_policy(policy()),
        ),
        row("RateLimitLayer::policies", "\"a\"", move || layer().policies(twice()), layer().try_policies(twice())),
        row("RateLimitLayer::ip", "\"ip\"", || layer().ip(HOURLY).ip(HOURLY), layer().ip(HOURLY).try_ip(HOURLY)),
        row(
            "RateLimitLayer::user",
            "\"user\"",
            move || users().user(HOURLY, key::host()),
            users().try_user(HOURLY, key::host()),
        ),
        row(
            "RateLimitLayer::route",
            "\"route\"",
            || layer().route(HOURLY).route(HOURLY),
            layer().route(HOURLY).try_route(HOURLY),
        ),
        row(
            "RateLimitLayer::global",
            "\"global\"",
            || layer().global(HOURLY).global(HOURLY),
            layer().global(HOURLY).try_global(HOURLY),
        ),
        row(
            "ClientIp::trusted_proxies",
            "trusted proxy \"proxy\" is not a network",
            || key::client_ip().trusted_proxies(["proxy"]),
            key::client_ip().try_trusted_proxies(["proxy"]),
        ),
        row("key::header", header, || key::header("x ip"), key::try_header("x ip")),
        row("ClientIp::header", header, || key::client_ip().header("x ip"), key::client_ip().try_header("x ip")),
    ]
}

fn stores() -> Vec<Row> {
    let caching = || DenyCache::builder(MemoryStore::new()).capacity(0);
    let leasing = || LeaseStore::builder(MemoryStore::new()).max_share(1.5);
    vec![
        row("DenyCacheBuilder::build", "0 refusals", move || caching().build(), caching().try_build()),
        row("LeaseStoreBuilder::build", "a share of 1.5", move || leasing().build(), leasing().try_build()),
    ]
}

fn rows() -> impl Iterator<Item = Row> {
    quotas().into_iter().chain(policies()).chain(stores())
}

thread_local! {
    /// Where and with what message this thread panicked last.
    static PANIC: RefCell<(String, String)> = RefCell::default();
}

/// Calls what panics; returns the file of its location, and its message.
fn panicked(call: Box<dyn FnOnce()>) -> (String, String) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let payload = panic.payload();
            let text = payload.downcast_ref::<String>().cloned();
            let message = text.or_else(|| payload.downcast_ref().map(|text: &&str| (*text).to_owned()));
            let file = panic.location().map(|location| location.file().to_owned());
            PANIC.set((file.unwrap_or_default(), message.unwrap_or_default()));
            usual(panic);
        }));
    });
    catch_unwind(AssertUnwindSafe(call)).expect_err("it panics");
    PANIC.take()
}

#[test]
fn a_constructor_panics_where_it_is_called_with_the_sentence_of_its_error() {
    for (function, part, call, error) in rows() {
        assert!(error.to_string().contains(part), "{function}: {error}");
        assert_eq!(panicked(call), (file!().to_owned(), format!("{error:#}")), "{function}");
    }
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
    assert_eq!(with_twins, rows().map(|(function, ..)| function.to_owned()).collect());
}
