//! Overrides that an operator sets while a layer serves.

use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;
use http::Request;
use tollgate::overrides::{Effect, Override};
use tollgate::policy::{AccessList, Algorithm};
use tollgate::store::Mode;
use tollgate::test_util::FailingStore;
use tollgate::{
    Ban, Counters, Decision, Key, Limiter, LiveLayer, MemoryStore, OnFailure, Outcome, Policy, Quota, RateLimitLayer,
    Rule, Source, key,
};

use crate::rig::{HOUR, Rig, Service, Text, expect, line, send, with};

const MINUTE: Duration = Duration::from_secs(60);

/// Ten an hour of each user, and a hundred of all.
fn layer(rig: &Rig) -> LiveLayer {
    rig.layer([user(10), Policy::new("all", Quota::fixed_window(100, HOUR))]).live()
}

fn user(limit: u64) -> Policy {
    Policy::new("user", Quota::fixed_window(limit, HOUR)).key(key::header("x-user").plain())
}

fn service(layer: &LiveLayer) -> Service {
    use tower::{Layer, service_fn};
    let inner =
        service_fn(async |_: Request<Text>| Ok::<_, std::convert::Infallible>(http::Response::new(Text::default())));
    Service::new(layer.layer(inner))
}

fn by(user: &str) -> Request<Text> {
    with("x-user", user)
}

fn ada() -> Key {
    Key::new("header x-user", "ada")
}

fn decision(service: &Service, user: &str) -> Decision {
    send(service, by(user)).extensions().get::<Decision>().expect("it is exposed").clone()
}

fn outcome(service: &Service, name: &str) -> Option<Outcome> {
    decision(service, "ada").outcomes().iter().find(|outcome| outcome.policy() == name).cloned()
}

fn why(layer: &LiveLayer) -> Option<String> {
    let (parts, _) = by("ada").into_parts();
    layer.explain(&parts).policies()[0].why().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn an_exempt_key_is_not_counted_until_the_time_is_over() {
    let rig = Rig::new();
    let layer = layer(&rig);
    let service = service(&layer);
    layer.overrides().set(Override::exempt(MINUTE).policy("user").expect("a name").key(ada())).expect("there is one");
    expect(&service, (0..20).map(|_| (by("ada"), 200)));
    assert!(outcome(&service, "user").is_none() && outcome(&service, "all").is_some());
    assert!(why(&layer).is_some_and(|why| why.contains("override")));
    expect(&service, (0..11).map(|number| (by("bob"), if number < 10 { 200 } else { 429 })));
    tokio::time::advance(MINUTE).await;
    assert_eq!((layer.overrides().list(), why(&layer)), (Vec::new(), None));
    expect(&service, (0..11).map(|number| (by("ada"), if number < 10 { 200 } else { 429 })));
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_takes_nothing_and_is_told_when_it_ends_also_without_a_store() {
    let rig = Rig::new();
    let layer = layer(&rig);
    let denied = service(&layer);
    layer.overrides().set(Override::deny(MINUTE).key(ada())).expect("a policy makes it");
    tokio::time::advance(Duration::from_millis(500)).await;
    let response = send(&denied, by("ada"));
    assert_eq!((response.status().as_u16(), line(&response, "retry-after")), (429, "60"));
    assert_eq!((decision(&denied, "ada").source(), rig.store.recorded().len()), (Source::Override, 0));
    assert!(outcome(&denied, "user").is_some_and(|outcome| outcome.is_overridden() && outcome.key() == &ada()));
    expect(&denied, [(by("bob"), 200)]);
    let limiter = layer.limiter();
    assert_eq!(limiter.check(&ada()).await.expect("it decides").source(), Source::Override);
    tokio::time::advance(MINUTE).await;
    expect(&denied, [(by("ada"), 200)]);

    let down = FailingStore::new(MemoryStore::new());
    down.fail();
    let layer = RateLimitLayer::new(down, user(10)).on_failure(OnFailure::Deny).live();
    layer.overrides().set(Override::deny(MINUTE).key(ada())).expect("a policy makes it");
    expect(&service(&layer), [(by("ada"), 429), (by("bob"), 503)]);
}

#[tokio::test(start_paused = true)]
async fn a_scaled_quota_keeps_the_units_used_and_shows_in_headers() {
    let rig = Rig::new();
    let layer = layer(&rig);
    let service = service(&layer);
    expect(&service, (0..8).map(|_| (by("ada"), 200)));
    layer.overrides().set(Override::scale(2.0, MINUTE).expect("a factor").key(ada())).expect("a policy makes it");
    let response = send(&service, by("ada"));
    assert_eq!([line(&response, "x-ratelimit-limit"), line(&response, "x-ratelimit-remaining")], ["20", "11"]);
    assert!(line(&response, "ratelimit-policy").contains("\"user\";q=20;"), "{response:?}");
    layer.overrides().set(Override::scale(0.5, MINUTE).expect("a factor").key(ada())).expect("it replaces the other");
    expect(&service, [(by("ada"), 429), (by("bob"), 200)]);
    assert_eq!(layer.overrides().list().len(), 1);
    tokio::time::advance(MINUTE).await;
    expect(&service, [(by("ada"), 200), (by("ada"), 429)]);
}

#[test]
fn every_quota_can_be_scaled_and_stays_valid() {
    let all = [
        Quota::per_second(1).burst(1),
        Quota::token_bucket(10, 720 * HOUR).burst(8_000),
        Quota::per_hour(1_000_000_000),
        Quota::token_bucket(10, HOUR).burst(7),
        Quota::leaky_bucket(10, HOUR).queue(20).nodelay(5),
        Quota::sliding_log(9_999, HOUR),
        Quota::sliding_window(1 << 46, HOUR),
        Quota::concurrency(1_000_000),
    ];
    for quota in all {
        for factor in [1e-9, 0.1, 0.14, 1.0, 1.5, 1_000.0] {
            let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("user", quota)).live();
            layer.overrides().set(Override::scale(factor, HOUR).expect("a factor")).expect("for all");
            let (parts, ()) = Request::new(()).into_parts();
            let scaled = *layer.explain(&parts).policies()[0].quota();
            assert!(scaled.limit() >= 1 && scaled.capacity() >= 1, "{quota} times {factor}: {scaled}");
            assert_eq!((scaled.algorithm(), scaled.window()), (quota.algorithm(), quota.window()));
            // The same numbers can be written by hand, unless they are the quota's own.
            let written = Quota::try_new(scaled.algorithm(), scaled.limit(), scaled.window());
            let is_valid = written.is_ok_and(|quota| match quota.algorithm() {
                Algorithm::TokenBucket => quota.try_burst(scaled.capacity()).is_ok(),
                Algorithm::LeakyBucket => quota.try_queue(scaled.capacity() - 1).is_ok(),
                _ => true,
            });
            assert!(is_valid, "{quota} times {factor}: {scaled}");
        }
    }
}

#[test]
fn a_policy_is_switched_off_with_its_lists_put_in_shadow_or_enforced() {
    let rig = Rig::new();
    let denies = user(1).deny(AccessList::parse(["eve"]).expect("a value"));
    let layer = rig.layer([denies, Policy::new("test", Quota::fixed_window(2, HOUR)).shadow()]).live();
    let service = service(&layer);
    let named = |one: Override, name: &str| one.policy(name).expect("a name");
    expect(&service, [(by("eve"), 403), (by("ada"), 200), (by("ada"), 429)]);
    layer.overrides().set(named(Override::off(), "user")).expect("there is one");
    expect(&service, [(by("eve"), 200), (by("ada"), 200)]);
    assert!(outcome(&service, "user").is_none());

    layer.overrides().set(named(Override::shadow(), "user")).expect("it replaces the other");
    let response = send(&service, by("ada"));
    assert_eq!((response.status().as_u16(), line(&response, "ratelimit-policy")), (200, ""));
    assert!(
        outcome(&service, "user").is_some_and(|user| !user.is_allowed() && user.is_shadow() && user.is_overridden())
    );
    expect(&service, [(by("eve"), 200)]);

    layer.overrides().set(named(Override::enforce(), "test")).expect("there is one");
    let response = send(&service, by("bob"));
    assert_eq!(response.status().as_u16(), 429, "its units are taken");
    assert!(line(&response, "ratelimit-policy").contains("\"test\""));
    assert!(layer.overrides().remove(&named(Override::shadow(), "test")), "one of the same kind");
    expect(&service, [(by("bob"), 200)]);
    layer.replace_policies([user(1)]).expect("it is valid");
    expect(&service, [(by("ada"), 200)]);
    assert!(layer.overrides().remove(&named(Override::off(), "user")));
    expect(&service, [(by("ada"), 429)]);
}

#[test]
fn a_share_of_keys_is_the_same_everywhere_and_part_of_a_larger_share() {
    let enforced = |share: f64| -> HashSet<u32> {
        let layer = RateLimitLayer::new(MemoryStore::new(), user(10)).expose_decisions().live();
        layer.overrides().set(Override::enforce_share(share).expect("a share")).expect("for all");
        let service = service(&layer);
        let mode = |number: &u32| decision(&service, &number.to_string()).outcomes()[0].mode() == Mode::Enforce;
        (0..2_000).filter(mode).collect()
    };
    let [none, tenth, half, again, all] = [0.0, 0.1, 0.5, 0.5, 1.0].map(enforced);
    assert_eq!((none.len(), all.len(), &half), (0, 2_000, &again));
    assert!((150..250).contains(&tenth.len()) && (900..1_100).contains(&half.len()), "{} {}", tenth.len(), half.len());
    assert!(tenth.is_subset(&half));
}

/// Of each kind, the override of the most specific target that was set last.
#[test]
fn the_most_specific_override_of_each_kind_wins() {
    let mut rng = Rng::new();
    for _ in 0..300 {
        let seed = rng.get_seed();
        let layer = RateLimitLayer::new(MemoryStore::new(), user(10)).expose_decisions().live();
        let mut expected: [Option<(u8, Effect)>; 3] = [None; 3];
        for _ in 0..rng.usize(..12) {
            let one = match rng.u8(..5) {
                0 => Override::exempt(HOUR),
                1 => Override::deny(HOUR),
                2 => Override::scale(f64::from(rng.u8(1..9)), HOUR).expect("a factor"),
                3 => Override::shadow(),
                _ => Override::off(),
            };
            let (of_policy, of_key) = (rng.bool(), rng.bool());
            let one = if of_policy { one.policy("user").expect("a name") } else { one };
            let one = if of_key { one.key(ada()) } else { one };
            let (rank, effect) = (u8::from(of_policy) + 2 * u8::from(of_key), one.effect());
            let kind = match effect {
                Effect::Exempt | Effect::Deny => 0,
                Effect::Scale(_) => 1,
                _ => 2,
            };
            let is_set = layer.overrides().set(one).is_ok();
            assert_eq!(is_set, kind < 2 || !of_key);
            if is_set && expected[kind].is_none_or(|(other, _)| other <= rank) {
                expected[kind] = Some((rank, effect));
            }
        }
        let [access, quota, mode] = expected.map(|found| found.map(|(_, effect)| effect));
        let response = send(&service(&layer), by("ada"));
        let outcomes = response.extensions().get::<Decision>().expect("it is exposed").outcomes();
        let is_skipped = mode == Some(Effect::Off) || access == Some(Effect::Exempt);
        assert_eq!(outcomes.is_empty(), is_skipped, "{seed}: {expected:?}");
        let is_denied = !is_skipped && access == Some(Effect::Deny);
        assert_eq!(response.status().as_u16(), if is_denied { 429 } else { 200 }, "{seed}: {expected:?}");
        let Some(Effect::Scale(factor)) = quota.filter(|_| !is_skipped) else { continue };
        assert_eq!(outcomes[0].limit().to_string(), (10.0 * factor).to_string(), "{seed}: {expected:?}");
    }
}

#[test]
fn a_mistake_is_an_error_that_names_what_there_is() {
    let layer = layer(&Rig::new());
    let overrides = layer.overrides();
    let text = |one: Override| overrides.set(one).expect_err("it is one").to_string();
    let unknown = text(Override::off().policy("users").expect("a name"));
    assert!(unknown.contains("users") && unknown.contains("user") && unknown.contains("all"), "{unknown}");
    let key = text(Override::exempt(HOUR).policy("user").expect("a name").key(Key::new("user", "ada")));
    assert!(key.contains("user:ada") && key.contains("header x-user"), "{key}");
    assert!(text(Override::off().key(ada())).contains("exempt"));
    assert!(Override::off().policy("no name").is_err());
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(Override::enforce_share(share).is_err(), "{share}");
    }
    for factor in [0.0, -1.0, 1_001.0, f64::NAN] {
        assert!(Override::scale(factor, HOUR).is_err(), "{factor}");
    }
    let of = |number: usize| Override::exempt(HOUR).key(Key::new("header x-user", number.to_string()));
    overrides.replace((0..20_000).map(of).chain([Override::off()]));
    assert_eq!(overrides.list().len(), 10_000);
    assert!(text(of(10_000)).contains("10000"));
    assert!(overrides.set(of(0)).is_ok(), "it replaces one");
    overrides.replace([Override::off().policy("users").expect("a name"), Override::shadow()]);
    assert_eq!(overrides.list(), [Override::shadow()]);
}

#[tokio::test(start_paused = true)]
async fn permits_follow_overrides_that_begin_and_end_while_work_goes_on() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("bytes", Quota::fixed_window(100, HOUR))]);
    let key = Key::new("user", "ada");
    let allows = async |counters: &Counters, units: u64| {
        let (decision, permit) = counters.permit(units).await.expect("memory never fails");
        drop(permit);
        decision.is_allowed()
    };
    let scaled = || Override::scale(10.0, MINUTE).expect("a factor");
    let all: [(fn() -> Override, u64); 2] = [(|| Override::deny(MINUTE), 1), (|| Override::exempt(MINUTE), 1_000)];
    for (one, units) in all.into_iter().chain([(scaled as fn() -> Override, 500)]) {
        let (one, before) = (one(), limiter.counters(&key).await.expect("they have units"));
        limiter.overrides().set(one.clone()).expect("for all");
        let during = limiter.counters(&key).await.expect("they have units");
        let is_allowed = one.effect() != Effect::Deny;
        assert_eq!([allows(&before, units).await, allows(&during, units).await], [is_allowed; 2], "{one:?}");
        tokio::time::advance(2 * MINUTE).await;
        assert_eq!([allows(&before, units).await, allows(&during, units).await], [!is_allowed; 2], "{one:?}");
    }
}

#[tokio::test]
async fn a_scaled_reserve_is_a_share_of_the_scaled_quota() {
    let layer = RateLimitLayer::new(MemoryStore::new(), user(10).reserve(0.5, |_| false)).live();
    layer.overrides().set(Override::scale(0.4, HOUR).expect("a factor")).expect("for all");
    expect(&service(&layer), [(by("ada"), 200), (by("ada"), 200), (by("ada"), 429)]);
}

#[tokio::test]
async fn a_denied_key_does_not_pass_as_one_of_two_and_a_ban_of_an_enforced_policy_holds_everywhere() {
    let layer = RateLimitLayer::new(MemoryStore::new(), user(10)).live();
    let two = || {
        let mut request = by("ada");
        request.headers_mut().append("x-user", "other".parse().expect("a value"));
        request
    };
    expect(&service(&layer), [(two(), 200)]);
    layer.overrides().set(Override::deny(MINUTE).key(ada())).expect("a policy makes it");
    expect(&service(&layer), [(two(), 400)]);

    let ban = Ban::new(1, HOUR, HOUR).of_verified_keys().whole_layer();
    let login = user(1).shadow().ban(ban).when(|parts| parts.uri.path() == "/login");
    let layer = RateLimitLayer::new(MemoryStore::new(), login).live();
    layer.overrides().set(Override::enforce()).expect("for all");
    let to = |path: &'static str| {
        let mut request = by("ada");
        *request.uri_mut() = http::Uri::from_static(path);
        request
    };
    expect(&service(&layer), [(to("/login"), 200), (to("/login"), 429), (to("/other"), 429)]);
}

#[cfg(feature = "lookup")]
#[tokio::test]
async fn a_policy_whose_tiers_fail_can_be_switched_off_in_a_limiter() {
    use tollgate::policy::{TierLookup, UnknownTier};

    let failing = TierLookup::new(|_: key::Lookup| async { Err::<Option<Quota>, _>(std::io::Error::other("down")) });
    let rule = Rule::new("mail", Quota::per_hour(10)).tier_lookup(failing.on_unknown(UnknownTier::Deny));
    let limiter = Limiter::new(MemoryStore::new(), [rule]);
    assert!(limiter.check(&ada()).await.is_err());
    for one in [Override::shadow(), Override::off(), Override::exempt(MINUTE)] {
        limiter.overrides().set(one.clone()).expect("for all");
        assert!(limiter.check(&ada()).await.is_ok_and(|decision| decision.is_allowed()), "{one:?}");
        assert!(limiter.overrides().remove(&one));
    }
}

#[test]
fn layers_that_begin_alike_have_overrides_of_their_own_and_clones_share_them() {
    let base = RateLimitLayer::new(MemoryStore::new(), user(1));
    let (one, other) = (base.clone().without_handle().live(), base.live());
    one.clone().overrides().set(Override::exempt(HOUR)).expect("for all");
    expect(&service(&one), (0..3).map(|_| (by("ada"), 200)));
    expect(&service(&other), [(by("ada"), 200), (by("ada"), 429)]);
    one.replace_policies([user(1)]).expect("it is valid");
    expect(&service(&one), (0..3).map(|_| (by("ada"), 200)));
}
