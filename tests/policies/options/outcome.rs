//! Which responses count, and what becomes of requests that get none.

use std::future::pending;
use std::io;

use futures::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::policy::Count;
use tollgate::{Policy, Quota};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{HOUR, Rig, Text, as_told, background, get, line, on_each_store, send, statuses, with};

const FIVE: Quota = Quota::fixed_window(5, HOUR);
const QUOTAS: [Quota; 4] =
    [FIVE, Quota::token_bucket(5, HOUR), Quota::sliding_window(5, HOUR), Quota::sliding_log(5, HOUR)];

/// Which statuses count, and which do not: what is taken of five units, and what the headers tell of it.
async fn table(count: Count, counting: &[u16], others: &[u16]) {
    on_each_store(async |rig| {
        for (status, left) in counting.iter().map(|status| (status, 4)).chain(others.iter().map(|status| (status, 5))) {
            let name = format!("policy-{status}");
            let service = as_told(&rig.layer([Policy::new(&name, FIVE).count(count.clone())]));
            let response = send(&service, with("x-status", &status.to_string())).await;
            assert_eq!(rig.left_of_all(&name, FIVE).await, left, "{}: {status}", rig.name);
            assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{}: {status}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn failures_are_client_and_server_errors() {
    table(Count::failures(), &[400, 401, 404, 500, 599], &[200, 204, 304, 399, 600]).await;
}

#[tokio::test]
async fn successes_are_all_the_rest() {
    table(Count::successes(), &[200, 304], &[400, 429, 500]).await;
}

#[tokio::test]
async fn statuses_are_those_of_a_list() {
    table(Count::statuses([StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN]), &[401, 403], &[200, 404, 500]).await;
}

#[tokio::test]
async fn a_closure_says_which_responses_count() {
    table(Count::when(|response| response.status != StatusCode::NOT_MODIFIED), &[200, 500], &[304]).await;
    table(Count::all(), &[200, 500], &[]).await;
}

#[tokio::test]
async fn guessing_passwords_ends_after_five_failures_and_logging_in_does_not_count() {
    on_each_store(async |rig| {
        let (login, other) = (Policy::new("login", FIVE).count(Count::failures()), Policy::new("other", FIVE));
        let service = as_told(&rig.layer([login]));
        let attempts = ["200", "401", "401", "200", "401", "200", "401", "401", "200", "401"];
        let sent = attempts.map(|status| with("x-status", status));
        let expected = [200, 401, 401, 200, 401, 200, 401, 401, 429, 429];
        assert_eq!(statuses(&service, sent).await, expected, "{}", rig.name);
        let both = as_told(&rig.layer([Policy::new("fresh", FIVE).count(Count::failures()), other]));
        let told = send(&both, get()).await;
        assert_eq!(line(&told, "ratelimit"), r#""other";r=4;t=3600, "fresh";r=5;t=3600"#, "{}", rig.name);
    })
    .await;
}

#[test]
fn what_does_not_count_is_taken_while_the_request_is_under_way() {
    let inner = service_fn(|_: Request<Text>| pending::<Result<Response<Text>, io::Error>>());
    let service = Rig::memory().layer([Policy::new("policy", FIVE).count(Count::failures())]).layer(inner);
    let mut under_way: Vec<_> = (0..5).map(|_| Box::pin(service.clone().oneshot(get()))).collect();
    assert!(under_way.iter_mut().all(|response| response.now_or_never().is_none()));
    let sixth = service.oneshot(get()).now_or_never().expect("a refusal at once").expect("it does not fail");
    assert_eq!(sixth.status(), 429);
}

#[tokio::test]
async fn an_error_of_the_service_is_a_failure_and_no_success() {
    on_each_store(async |rig| {
        for (name, count, left) in [
            ("all", Count::all(), 4),
            ("failures", Count::failures(), 4),
            ("when", Count::when(|_| false), 4),
            ("served", Count::served(), 4),
            ("successes", Count::successes(), 5),
            ("statuses", Count::statuses([StatusCode::OK]), 5),
        ] {
            let broken = service_fn(async |_: Request<Text>| Err::<Response<Text>, _>(io::Error::other("broken")));
            let service = rig.layer([Policy::new(name, FIVE).count(count)]).layer(broken);
            let error = service.oneshot(get()).await.expect_err("the service is broken");
            assert_eq!(error.to_string(), "broken");
            background().await;
            assert_eq!(rig.left_of_all(name, FIVE).await, left, "{}: {name}", rig.name);
        }
    })
    .await;
}

/// What is left after a request whose client goes away before there is a response.
async fn left_after_drop(rig: &Rig, policy: Policy) -> u64 {
    let (name, quota) = (policy.name().to_owned(), *policy.quota());
    let inner = service_fn(|_: Request<Text>| pending::<Result<Response<Text>, io::Error>>());
    let response = tokio::spawn(rig.layer([policy.cost(2)]).layer(inner).oneshot(get()));
    rig.until_left_of_all(&name, quota, 3).await;
    response.abort();
    assert!(response.await.expect_err("it was dropped").is_cancelled());
    background().await;
    rig.left_of_all(&name, quota).await
}

#[tokio::test]
async fn a_request_that_is_dropped_keeps_its_units() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            assert_eq!(left_after_drop(rig, Policy::new("kept", quota)).await, 3, "{}: {quota}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_dropped_gives_its_units_back_if_the_policy_says_so() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            let policy = Policy::new("given-back", quota).refund_dropped();
            assert_eq!(left_after_drop(rig, policy).await, 5, "{}: {quota}", rig.name);
        }
        // What was answered is given back no more, although nobody reads the body.
        let service = as_told(&rig.layer([Policy::new("answered", FIVE).refund_dropped()]));
        drop(send(&service, get()).await);
        background().await;
        assert_eq!(rig.left_of_all("answered", FIVE).await, 4, "{}", rig.name);
    })
    .await;
}
