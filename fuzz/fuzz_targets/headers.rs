//! Heads of requests, and of responses inside of a layer: keys are harmless, a denial says when to come back, nothing
//! that an inner service sends is lost, and what is sent promises no more than the stricter limit.
#![no_main]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::any;
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use sfv::{List, ListEntry, Parser};
use tollgate::key::KeyExtractor;
use tollgate::policy::{AccessList, Count, MissingKey};
use tollgate::test_util::ManualClock;
use tollgate::{MemoryStore, Policy, Quota, RateLimitHandle, RateLimitHeaders, RateLimitLayer};
use tower::ServiceExt;

#[path = "../../tests/keys/one_client/check/choices.rs"]
#[allow(dead_code, reason = "keys are made of more of it")]
mod choices;
#[path = "../../tests/http/hostile/keys.rs"]
mod keys;

use choices::Choices;
use keys::{KEYED, LONG, SHORT, assert_harmless, every_key};

const HOUR: Duration = Duration::from_secs(3_600);
const QUOTAS: [Quota; 6] = [
    Quota::token_bucket(2, HOUR),
    Quota::fixed_window(2, HOUR),
    Quota::sliding_window(2, HOUR),
    Quota::sliding_log(2, HOUR),
    Quota::leaky_bucket(2, HOUR).queue(0),
    Quota::concurrency(2),
];

/// Names of lines inside, separated by spaces.
const NAMES: &str = "ratelimit ratelimit-policy ratelimit ratelimit-policy ratelimit-remaining x-ratelimit-remaining \
                     ratelimit-limit ratelimit-reset x-ratelimit-limit x-ratelimit-reset x-rate-limit-remaining-minute \
                     x-ratelimit retry-after grpc-status cache-control range";
/// What such lines are made of, separated by `|`.
const WORDS: &str = "\"a\"|\"b\"|\"p1\"|;r=1|;q=9|;t=7|;w=60|; r=0|;pk=:YWJj:|, |,|;|=|0|1|3|900|-1|limit=9|remaining=1|\
                     reset=7|\t| |(|)|?1|1.5|1900000000|999999999999999|99999999999999999999|*|a";
const HEADERS: [fn() -> RateLimitHeaders; 4] =
    [RateLimitHeaders::both, RateLimitHeaders::ietf, RateLimitHeaders::legacy, RateLimitHeaders::none];

/// What the inner service sends: in the extensions of a request, and with what was left, in those of its response.
#[derive(Clone)]
struct Inner(HeaderMap, u16);
#[derive(Clone)]
struct Served(u64);

static CLOCK: LazyLock<ManualClock> = LazyLock::new(ManualClock::new);
static APPS: LazyLock<[Router; 4]> = LazyLock::new(|| HEADERS.map(|headers| app(headers().used().resource())));

fn app(headers: RateLimitHeaders) -> Router {
    let keys = every_key().into_iter().zip(QUOTAS.iter().cycle()).enumerate();
    let policies = keys.map(|(number, (key, quota))| {
        let key = Arc::<dyn KeyExtractor>::from(key);
        let rule = [MissingKey::Share, MissingKey::Skip, MissingKey::Deny][if number == 7 { 2 } else { number % 2 }];
        Policy::new(&format!("p{number}"), *quota).key(key).missing_key(rule)
    });
    let refused = AccessList::parse(["203.0.113.9", "::1"]).expect("entries");
    let failing = Policy::new("failing", Quota::per_hour(2)).count(Count::failures()).unadvertised().deny(refused);
    let respond = async |request: Request| {
        let Inner(headers, status) = request.extensions().get().cloned().expect("it is sent");
        let left = request.extensions().get::<RateLimitHandle>().expect("a layer is around").decision();
        let left =
            left.outcomes().iter().filter(|outcome| outcome.policy() != "failing").map(|outcome| outcome.remaining());
        let mut response = Response::new(Body::from("hello"));
        *response.status_mut() = status.try_into().expect("a status");
        *response.headers_mut() = headers;
        response.extensions_mut().insert(Served(left.min().unwrap_or(u64::MAX)));
        response
    };
    let store = MemoryStore::builder().clock(CLOCK.clone()).build();
    ["/", "/users/{id}", "/files/{*rest}"]
        .into_iter()
        .fold(Router::new(), |app, route| app.route(route, any(respond)))
        .fallback(respond)
        .layer(RateLimitLayer::composite(store).policies(policies.chain([failing])).headers(headers))
}

fn bytes(choices: &mut Choices<'_>, words: &[&[u8]]) -> Vec<u8> {
    let word = |choices: &mut Choices<'_>| match choices.below(5) {
        0 => vec![u8::try_from(choices.below(256)).expect("a byte")],
        _ => choices.pick(words).to_vec(),
    };
    (0..choices.below(10)).flat_map(|_| word(choices)).collect()
}

fn lines(
    choices: &mut Choices<'_>,
    names: &[&'static str],
    value: impl Fn(&mut Choices<'_>, &str) -> Vec<u8>,
) -> HeaderMap {
    let count = choices.below(7);
    let line = |_| {
        let name = choices.pick(names);
        Some((HeaderName::from_static(name), HeaderValue::from_bytes(&value(choices, name)).ok()?))
    };
    (0..count).filter_map(line).collect()
}

/// A value of a line inside, most often one that can be read.
fn inner(choices: &mut Choices<'_>, name: &str) -> Vec<u8> {
    let (policy, number) = (choices.pick(&["\"a\"", "\"b\"", "\"p1\""]), choices.pick(&["0", "1", "3", "900"]));
    match name {
        _ if choices.one_in(3) => bytes(choices, &WORDS.split('|').map(str::as_bytes).collect::<Vec<_>>()),
        "ratelimit" => format!("{policy};r={number};t=7").into(),
        "ratelimit-policy" => format!("{policy};q={number};w=60").into(),
        _ => number.into(),
    }
}

fn request(choices: &mut Choices<'_>) -> Request {
    let words: Vec<&[u8]> = SHORT.into_iter().chain(LONG.split(' ').map(str::as_bytes)).collect();
    let start = choices.pick(&["/", "/users/", "/files/", "/?q=", "/users/7?q=", "*", "http://a.example/", "//"]);
    let target = [start.as_bytes(), &bytes(choices, &words)].concat();
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = target[..].try_into().unwrap_or_default();
    *request.method_mut() = choices.pick(&["GET", "POST", "POST", "OPTIONS", "BREW"]).parse().expect("a method");
    *request.headers_mut() = lines(choices, &KEYED, |choices, _| bytes(choices, &words));
    let kinds = [
        "application/grpc",
        "application/grpc-web+proto",
        "application/grpc-web-text",
        "text/plain",
        "application/grpcx",
    ];
    request.headers_mut().insert("content-type", HeaderValue::from_static(choices.pick(&kinds)));
    let peers = ["10.0.0.1", "203.0.113.9", "fc00::9", "2001:db8::9", "::ffff:10.0.0.1"];
    let peer = choices.pick(&peers).parse::<IpAddr>().expect("an address");
    request.extensions_mut().insert(SocketAddr::new(peer, 4_711));
    let inner = lines(choices, &NAMES.split(' ').collect::<Vec<_>>(), inner);
    request.extensions_mut().insert(Inner(inner, choices.pick(&[200, 200, 429, 404, 500, 304])));
    request
}

fn list(headers: &HeaderMap, name: &str) -> Option<List> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    Parser::new(&lines.join(&b","[..])).parse().ok()
}

/// The names of policies, and the units that each has left; `None` if that is not of this draft.
fn members(headers: &HeaderMap, name: &str, units: &str) -> Option<Vec<(String, i64)>> {
    let whole = |value: &sfv::BareItem| value.as_integer().map(i64::from).filter(|number| *number >= 0);
    let member = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { return None };
        let are_whole = ["t", "w"].iter().all(|name| item.params.get(*name).is_none_or(|value| whole(value).is_some()));
        Some((item.bare_item.as_string()?.to_string(), whole(item.params.get(units)?).filter(|_| are_whole)?))
    };
    list(headers, name)?.iter().map(member).collect()
}

/// The fewest units that are said to be left, the largest number if none are; `None` if some cannot be read.
fn left(headers: &HeaderMap) -> Option<u64> {
    let of_lists = members(headers, "ratelimit", "r")?.into_iter().map(|(_, left)| left.unsigned_abs());
    let others = headers.iter().filter(|(name, _)| name.as_str().contains("remaining"));
    let others: Option<Vec<u64>> = others.map(|(_, value)| value.to_str().ok()?.trim().parse().ok()).collect();
    Some(of_lists.chain(others?).min().unwrap_or(u64::MAX))
}

fn is_limit(name: &str) -> bool {
    ["ratelimit", "x-ratelimit", "x-rate-limit"].iter().any(|prefix| name.starts_with(prefix))
}

fn check(which: usize, inner: &HeaderMap, response: &Response) {
    let sent = response.headers();
    let lines = |headers: &HeaderMap, name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    let Some(Served(ours)) = response.extensions().get() else {
        for name in ["ratelimit", "ratelimit-policy"] {
            assert!(list(sent, name).is_some(), "{sent:?}");
        }
        let wait =
            |name: &str| sent.get(name).map(|wait| wait.to_str().expect("text").parse::<i64>().expect("a number"));
        assert!(wait("retry-after").is_none_or(|wait| (1..=7_200).contains(&wait)), "{sent:?}");
        assert!(wait("grpc-retry-pushback-ms").is_none_or(|wait| wait == -1 || wait > 0), "{sent:?}");
        let statuses = if sent.contains_key("grpc-status") { &[200][..] } else { &[400, 403, 429] };
        assert!(statuses.contains(&response.status().as_u16()), "{response:?}");
        return;
    };
    for name in inner.keys().map(HeaderName::as_str).filter(|name| which == 3 || !is_limit(name)) {
        assert_eq!(lines(inner, name), lines(sent, name), "{name}");
    }
    if which == 3 {
        return;
    }
    let both = [("ratelimit", "r"), ("ratelimit-policy", "q")];
    let theirs: Option<Vec<_>> = both.iter().map(|(name, units)| members(inner, name, units)).collect();
    let are_lists = theirs.as_ref().is_some_and(|all| all.iter().flatten().all(|(name, _)| !name.starts_with('p')));
    for (name, units) in both.into_iter().filter(|(name, _)| lines(inner, name) != lines(sent, name)) {
        assert!(
            list(sent, name).is_some() || cfg!(not(feature = "merge-headers")),
            "{name}: {inner:?} became {sent:?}"
        );
        if are_lists && which < 2 {
            let (before, after) =
                (members(inner, name, units).expect("a list"), members(sent, name, units).expect("a list"));
            assert!(before.iter().all(|member| after.contains(member)), "{name}: {inner:?} became {sent:?}");
        }
    }
    // A number that cannot be compared stands for the strictest: such lines are kept as they are.
    let others = || inner.iter().filter(|(name, _)| is_limit(name.as_str()) && *name != "ratelimit");
    let has_others = others().any(|(name, _)| name != "ratelimit-policy");
    let can_compare = theirs.is_some()
        && others().all(|(_, value)| !value.as_bytes().contains(&b'r'))
        && (!has_others || others().any(|(name, _)| name.as_str().contains("remaining")));
    if response.status() != 429
        && can_compare
        && let Some(theirs) = left(inner)
    {
        let said = left(sent).unwrap_or_else(|| panic!("{inner:?} became {sent:?}"));
        assert!(said == u64::MAX || said <= theirs.min(*ours), "{inner:?} became {sent:?} with {ours} left");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    CLOCK.advance(3 * HOUR);
    let which = choices.below(APPS.len());
    for _ in 0..5 {
        let (parts, body) = request(&mut choices).into_parts();
        assert_harmless(&parts);
        let Inner(inner, _) = parts.extensions.get().cloned().expect("it was set");
        let sent = APPS[which].clone().oneshot(Request::from_parts(parts, body));
        check(which, &inner, &sent.now_or_never().expect("it does not wait").expect("infallible"));
        if choices.is_empty() {
            break;
        }
    }
});
