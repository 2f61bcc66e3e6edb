//! Which responses count, and what becomes of requests that get none.

use std::future::pending;

use futures::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::policy::Count;
use tollgate::{Policy, Quota};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{HOUR, Rig, Text, as_told, background, get, line, on_each_store, send, statuses, with};

const FIVE: Quota = Quota::fixed_window(5, HOUR);
const QUOTAS: [Quota; 4] =
    [FIVE, Quota::token_bucket(5, HOUR), Quota::sliding_window(5, HOUR), Quota::sliding_log(5, HOUR)];

fn policy(count: Count) -> Policy {
    Policy::new("policy", FIVE).count(count)
}

/// What is left of five units after one request that is answered with a status.
async fn left_after(rig: &Rig, count: &Count, status: u16) -> u64 {
    let name = format!("policy-{status}");
    let service = as_told(&rig.layer([Policy::new(&name, FIVE).count(count.clone())]));
    let response = send(&service, with("x-status", &status.to_string())).await;
    let left = rig.left_of_all(&name, FIVE).await;
    assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{}: the headers are true", rig.name);
    left
}

/// Each status, and whether it counts.
async fn table(count: Count, rows: &[(u16, bool)]) {
    on_each_store(async |rig| {
        for (status, counts) in rows {
            assert_eq!(left_after(rig, &count, *status).await, 5 - u64::from(*counts), "{}: {status}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn failures_are_client_and_server_errors() {
    let rows = [(200, false), (204, false), (304, false), (399, false), (400, true), (401, true), (404, true)];
    table(Count::failures(), &rows).await;
    table(Count::failures(), &[(500, true), (599, true), (600, false)]).await;
}

#[tokio::test]
async fn successes_are_all_the_rest() {
    table(Count::successes(), &[(200, true), (304, true), (400, false), (429, false), (500, false)]).await;
}

#[tokio::test]
async fn statuses_are_those_of_a_list() {
    let count = Count::statuses([StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN]);
    table(count, &[(401, true), (403, true), (200, false), (404, false), (500, false)]).await;
}

#[tokio::test]
async fn a_closure_says_which_responses_count() {
    let count = Count::when(|response| response.status != StatusCode::NOT_MODIFIED);
    table(count, &[(304, false), (200, true), (500, true)]).await;
    table(Count::all(), &[(200, true), (500, true)]).await;
}

#[tokio::test]
async fn guessing_passwords_ends_after_five_failures_and_logging_in_does_not_count() {
    on_each_store(async |rig| {
        let service = as_told(&rig.layer([policy(Count::failures())]));
        let attempts = ["200", "401", "401", "200", "401", "200", "401", "401", "200", "401"];
        let sent = attempts.map(|status| with("x-status", status));
        let expected = [200, 401, 401, 200, 401, 200, 401, 401, 429, 429];
        assert_eq!(statuses(&service, sent).await, expected, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn what_does_not_count_is_taken_while_the_request_is_under_way() {
    let rig = Rig::memory();
    let inner = service_fn(|_: Request<Text>| pending::<Result<Response<Text>, std::io::Error>>());
    let service = rig.layer([policy(Count::failures())]).layer(inner);
    let mut under_way: Vec<_> = (0..5).map(|_| Box::pin(service.clone().oneshot(get()))).collect();
    assert!(under_way.iter_mut().all(|response| response.now_or_never().is_none()));
    let sixth = service.oneshot(get()).now_or_never().expect("a refusal at once").unwrap();
    assert_eq!(sixth.status(), 429);
}

#[tokio::test]
async fn an_error_of_the_service_is_a_failure_and_no_success() {
    let counts = [
        (Count::all(), 4),
        (Count::failures(), 4),
        (Count::when(|_| false), 4),
        (Count::successes(), 5),
        (Count::statuses([StatusCode::OK]), 5),
    ];
    on_each_store(async |rig| {
        for (place, (count, left)) in counts.iter().enumerate() {
            let name = format!("policy-{place}");
            let broken = service_fn(async |_: Request<Text>| Err::<Response<Text>, _>(std::io::Error::other("broken")));
            let service = rig.layer([Policy::new(&name, FIVE).count(count.clone())]).layer(broken);
            let error = service.oneshot(get()).await.expect_err("the service is broken");
            assert_eq!(error.to_string(), "broken");
            background().await;
            assert_eq!(rig.left_of_all(&name, FIVE).await, *left, "{}: {place}", rig.name);
        }
    })
    .await;
}

/// What is left after a request whose client goes away before there is a response.
async fn left_after_drop(rig: &Rig, policy: Policy) -> u64 {
    let (name, quota) = (policy.name().to_owned(), *policy.quota());
    let inner = service_fn(|_: Request<Text>| pending::<Result<Response<Text>, std::io::Error>>());
    let service = rig.layer([policy]).layer(inner);
    let response = tokio::spawn(service.oneshot(get()));
    for _ in 0..1_000 {
        background().await;
        if rig.left_of_all(&name, quota).await < 5 {
            break;
        }
    }
    assert_eq!(rig.left_of_all(&name, quota).await, 3, "{}: it is under way", rig.name);
    response.abort();
    assert!(response.await.expect_err("it was dropped").is_cancelled());
    background().await;
    rig.left_of_all(&name, quota).await
}

#[tokio::test]
async fn a_request_that_is_dropped_keeps_its_units() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            let policy = Policy::new("kept", quota).cost(2);
            assert_eq!(left_after_drop(rig, policy).await, 3, "{}: {quota}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_dropped_gives_its_units_back_if_the_policy_says_so() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            let policy = Policy::new("given-back", quota).cost(2).refund_dropped();
            assert_eq!(left_after_drop(rig, policy).await, 5, "{}: {quota}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn only_the_policies_that_say_so_give_back() {
    on_each_store(async |rig| {
        let kept = Policy::new("other", FIVE);
        let service = as_told(&rig.layer([policy(Count::failures()), kept]));
        let response = send(&service, get()).await;
        assert_eq!(line(&response, "ratelimit"), r#""other";r=4;t=3600, "policy";r=5;t=3600"#, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_response_that_came_gives_nothing_back_when_its_body_is_dropped() {
    on_each_store(async |rig| {
        let service = as_told(&rig.layer([Policy::new("policy", FIVE).refund_dropped()]));
        drop(send(&service, get()).await);
        background().await;
        assert_eq!(rig.left_of_all("policy", FIVE).await, 4, "{}", rig.name);
    })
    .await;
}
