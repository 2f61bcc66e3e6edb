//! Requests through a service whose limits redis-cell keeps.

use std::time::Duration;

use tollgate::{Decision, Quota, Source};

use super::rig::{THREE, app, by_user, line, send, server};

#[tokio::test]
async fn a_burst_is_admitted_and_then_refused_with_a_true_wait() {
    let server = server();
    let app = app(&server, by_user(THREE)).await;
    for left in ["2", "1", "0"] {
        let response = send(&app, "ada").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.extensions().get::<Decision>().unwrap().source(), Source::Store);
        assert_eq!(line(&response, "x-ratelimit-limit"), "3");
        assert_eq!(line(&response, "x-ratelimit-remaining"), left);
        assert_eq!(line(&response, "ratelimit-policy"), r#""user";q=3;w=3600"#);
    }
    let response = send(&app, "ada").await;
    assert_eq!(response.status(), 429);
    assert_eq!(line(&response, "x-ratelimit-remaining"), "0");
    let wait: u64 = line(&response, "retry-after").parse().unwrap();
    assert!((1_190..=1_200).contains(&wait), "{wait}");
    assert_eq!(send(&app, "bob").await.status(), 200, "somebody else has a bucket of his own");
}

#[tokio::test]
async fn who_waits_as_long_as_told_is_admitted_and_is_never_told_0() {
    let server = server();
    let app = app(&server, by_user(Quota::token_bucket(2, Duration::from_secs(1)).burst(1))).await;
    assert_eq!(send(&app, "ada").await.status(), 200);
    let response = send(&app, "ada").await;
    assert_eq!((response.status().as_u16(), line(&response, "retry-after")), (429, "1"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(send(&app, "ada").await.status(), 200);
}

#[tokio::test]
async fn a_cost_from_outside_never_takes_more_than_is_there_nor_gives_any() {
    let server = server();
    let policy = by_user(THREE).cost_by(|parts| match parts.headers["x-user"].to_str() {
        Ok("most") => u64::MAX,
        Ok("minus") => u64::MAX - 5,
        Ok("least") => 1 << 63,
        // Times the nanoseconds between two units: far below nothing in 64 bits.
        Ok("wrapping") => (1 << 63) / 1_200_000_000_000 + 1,
        _ => 4,
    });
    let app = app(&server, policy).await;
    for user in ["most", "minus", "least", "wrapping", "four"] {
        let response = send(&app, user).await;
        assert_eq!(response.extensions().get::<Decision>().unwrap().source(), Source::Store, "{user}");
        assert_eq!((response.status().as_u16(), line(&response, "retry-after")), (429, ""), "{user}");
        assert_eq!(line(&response, "x-ratelimit-remaining"), "3", "{user}");
    }
    server.assert_every_key_expires();
}
