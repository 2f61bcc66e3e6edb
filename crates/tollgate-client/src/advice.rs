//! What the headers of a response say about the next request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use sfv::{BareItem, List, ListEntry, Parser};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// From this number on, a reset is Unix time, because no window is that many seconds long.
const UNIX_TIME: u64 = 1_000_000_000;

/// What a denial says about a retry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Advice {
    /// Retry after this time, which is not zero.
    After(Duration),
    /// It says nothing that can be read.
    Unsaid,
    Never,
}

/// Returns the advice of a denial, and `None` for other responses.
pub(crate) fn of_denial<B>(response: &Response<B>) -> Option<Advice> {
    let headers = response.headers();
    let is_denied = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
        || values(headers, GRPC_STATUS).any(|status| matches!(status, "8" | "14"));
    is_denied.then(|| advice(headers))
}

fn advice(headers: &HeaderMap) -> Advice {
    // The server's clock, because ours may differ.
    let now = values(headers, DATE).find_map(date).unwrap_or_else(SystemTime::now);
    let pushback: Option<Vec<_>> =
        values(headers, PUSHBACK).map(|value| number(value).map(Duration::from_millis)).collect();
    // In gRPC, a value that is not a number forbids retries.
    let Some(pushback) = pushback else { return Advice::Never };
    let since = |time: SystemTime| time.duration_since(now).unwrap_or_default();
    let seconds = |value| number(value).map(Duration::from_secs).or_else(|| date(value).map(since));
    let used_up = remaining(headers).into_iter().filter_map(|(left, reset)| (left == 0).then_some(reset));
    let wait = pushback.into_iter().chain(values(headers, RETRY_AFTER).filter_map(seconds)).chain(used_up).max();
    let wait = wait.or_else(|| {
        let has_left = values(headers, REMAINING).filter_map(number).any(|left| left > 0);
        let resets = values(headers, RESET).filter_map(number).filter(|_| !has_left);
        let unix = |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).map_or(Duration::MAX, since);
        resets.map(|reset| if reset < UNIX_TIME { Duration::from_secs(reset) } else { unix(reset) }).max()
    });
    wait.filter(|wait| !wait.is_zero()).map_or(Advice::Unsaid, Advice::After)
}

/// Returns the requests that are left, and the time until there are more, of each policy in `RateLimit`.
pub(crate) fn remaining(headers: &HeaderMap) -> Vec<(u64, Duration)> {
    let lines: Vec<_> = headers.get_all(RATELIMIT).iter().map(HeaderValue::as_bytes).collect();
    let list: List = Parser::new(&lines.join(&b", "[..])).parse().unwrap_or_default();
    let items = list.iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(&item.params),
        ListEntry::InnerList(_) => None,
    });
    let read = |value: Option<&BareItem>| u64::try_from(i64::from(value?.as_integer()?)).ok();
    items.filter_map(|params| Some((read(params.get("r"))?, Duration::from_secs(read(params.get("t"))?)))).collect()
}

fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().filter_map(|value| Some(value.to_str().ok()?.trim()))
}

/// Reads digits alone. What exceeds `u64` is its largest value.
fn number(value: &str) -> Option<u64> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().unwrap_or(u64::MAX))
}

fn date(value: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(value).ok()
}
