//! How long a client waits for each form of each header.

use std::time::{Duration, SystemTime};

use http::{Response, StatusCode};
use tollgate_client::RetryLayer;

use super::rig::{Api, denial, exact, get, send};

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The wait after a denial with these headers, in milliseconds, if it is retried.
async fn wait_with(layer: RetryLayer, response: Response<String>) -> Option<u128> {
    let (status, calls) = send(&layer, &Api::new([response]), get()).await;
    assert_eq!(status == StatusCode::OK, calls.len() == 2);
    // tokio's timers tick in milliseconds.
    calls.get(1).map(|(at, ..)| at.as_millis())
}

async fn wait(status: u16, headers: &[(&str, &str)]) -> Option<u128> {
    wait_with(exact().max_wait(Duration::from_secs(100_000)), denial(status, headers)).await
}

#[tokio::test(start_paused = true)]
async fn each_header_says_when_to_retry() {
    let date = ("date", DATE);
    let rows: &[(&[(&str, &str)], u128)] = &[
        (&[("retry-after", "7")], 7_000),
        (&[("retry-after", " 7 ")], 7_000),
        (&[("retry-after", "0007")], 7_000),
        // The three forms of dates.
        (&[date, ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], 30_000),
        (&[date, ("retry-after", "Sunday, 06-Nov-94 08:50:07 GMT")], 30_000),
        (&[date, ("retry-after", "Sun Nov  6 08:50:07 1994")], 30_000),
        (&[("ratelimit", r#""api";r=0;t=6"#)], 6_000),
        (&[("ratelimit", r#""a";r=0;t=6, "b";r=0;t=9"#)], 9_000),
        (&[("ratelimit", r#""a";r=0;t=6"#), ("ratelimit", r#""b";r=0;t=9"#)], 9_000),
        // A policy with requests left did not deny.
        (&[("ratelimit", r#""day";r=400;t=80000, "second";r=0;t=2"#)], 2_000),
        (&[("x-ratelimit-reset", "12")], 12_000),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "12")], 12_000),
        (&[("grpc-retry-pushback-ms", "250")], 250),
    ];
    for (headers, expected) in rows {
        for status in [429, 503] {
            assert_eq!(wait(status, headers).await, Some(*expected), "{status} {headers:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_in_unix_time_counts_from_the_date_of_the_response() {
    let headers = [("date", "Sat, 28 Nov 2026 03:00:00 GMT"), ("x-ratelimit-reset", "1795834815")];
    assert_eq!(wait(429, &headers).await, Some(15_000));
    let past = [("date", "Sat, 28 Nov 2026 03:00:00 GMT"), ("x-ratelimit-reset", "1795834700")];
    assert_eq!(wait(429, &past).await, Some(100), "it is over, so the back-off counts");
}

#[tokio::test(start_paused = true)]
async fn without_a_date_of_the_response_our_own_clock_counts() {
    let at = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
    let waited = wait(429, &[("retry-after", &at)]).await.expect("it is retried");
    assert!((50_000..=60_001).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn of_several_waits_the_longest_counts() {
    let rows: &[(&[(&str, &str)], u128)] = &[
        (&[("retry-after", "3"), ("retry-after", "8")], 8_000),
        (&[("retry-after", "3"), ("ratelimit", r#""api";r=0;t=6"#)], 6_000),
        (&[("retry-after", "9"), ("ratelimit", r#""api";r=0;t=6"#)], 9_000),
        (&[("retry-after", "1"), ("grpc-retry-pushback-ms", "1500")], 1_500),
        (&[("grpc-retry-pushback-ms", "10"), ("grpc-retry-pushback-ms", "20")], 20),
        (&[("retry-after", "soon"), ("retry-after", "2")], 2_000),
        // The reset is the time until the whole limit is there, so it counts only alone.
        (&[("retry-after", "6"), ("x-ratelimit-reset", "60")], 6_000),
        (&[("ratelimit", r#""api";r=0;t=6"#), ("x-ratelimit-reset", "60")], 6_000),
    ];
    for (headers, expected) in rows {
        assert_eq!(wait(429, headers).await, Some(*expected), "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_ignored_and_the_back_off_counts() {
    let past = "Sun, 06 Nov 1994 08:49:36 GMT";
    let rows: &[&[(&str, &str)]] = &[
        &[],
        &[("retry-after", "")],
        &[("retry-after", "0")],
        &[("retry-after", "-5")],
        &[("retry-after", "+5")],
        &[("retry-after", "1.5")],
        &[("retry-after", "1e3")],
        &[("retry-after", "5, 6")],
        &[("retry-after", "٣")],
        &[("retry-after", "Sun, 99 Nov 1994 08:49:36 GMT")],
        &[("retry-after", past)],
        &[("date", DATE), ("retry-after", past)],
        &[("date", "now"), ("retry-after", past)],
        &[("ratelimit", "")],
        &[("ratelimit", r#""api";r=0;t=-6"#)],
        &[("ratelimit", r#""api";r=0;t=6.5"#)],
        &[("ratelimit", r#""api";r=0;t=99999999999999999999"#)],
        &[("ratelimit", r#""api";t=6"#)],
        &[("ratelimit", r#"("api");r=0;t=6"#)],
        &[("ratelimit", "limit=10, remaining=0, reset=7")],
        &[("ratelimit", r#""api";r=5;t=6"#)],
        &[("x-ratelimit-reset", "-1")],
        &[("x-ratelimit-reset", "tomorrow")],
        &[("x-ratelimit-reset", "1000000000")],
        &[("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "60")],
        &[("grpc-retry-pushback-ms", "0")],
    ];
    for headers in rows {
        assert_eq!(wait(503, headers).await, Some(100), "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn huge_waits_are_passed_on_and_nothing_overflows() {
    let rows: &[(&str, &str)] = &[
        ("retry-after", "18446744073709551615"),
        ("retry-after", "99999999999999999999999999999999"),
        ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"),
        ("ratelimit", r#""api";r=0;t=999999999999999"#),
        ("x-ratelimit-reset", "18446744073709551615"),
        ("x-ratelimit-reset", "9223372036854775807"),
        ("grpc-retry-pushback-ms", "18446744073709551615"),
    ];
    for header in rows {
        assert_eq!(wait(429, &[*header]).await, None, "{header:?}");
        let jitter = RetryLayer::new().jitter(Duration::MAX).max_wait(Duration::from_secs(1));
        assert_eq!(wait_with(jitter, denial(429, &[*header])).await, None, "{header:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_back_that_is_no_number_forbids_the_retry() {
    for pushback in ["-1", "", "soon", "1.5"] {
        let headers = [("grpc-status", "8"), ("grpc-retry-pushback-ms", pushback), ("retry-after", "1")];
        assert_eq!(wait(429, &headers).await, None, "{pushback:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn grpc_calls_are_denied_by_their_status() {
    for (status, expected) in [("8", Some(250)), ("14", Some(250)), ("0", None), ("4", None)] {
        let response = denial(200, &[("grpc-status", status), ("grpc-retry-pushback-ms", "250")]);
        let api = Api::new([response]);
        let (_, calls) = send(&exact(), &api, get()).await;
        assert_eq!(calls.get(1).map(|(at, ..)| at.as_millis()), expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_other_status_is_retried() {
    for status in [200, 204, 301, 400, 403, 408, 425, 500, 502, 504] {
        let (seen, calls) = send(&exact(), &Api::new([denial(status, &[("retry-after", "1")])]), get()).await;
        assert_eq!((seen.as_u16(), calls.len()), (status, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_back_off_doubles_until_a_response_says_more() {
    let denials = [denial(503, &[]), denial(503, &[]), denial(429, &[("retry-after", "5")]), denial(503, &[])];
    let (status, calls) = send(&exact().max_retries(4), &Api::new(denials), get()).await;
    let times: Vec<_> = calls.iter().map(|(at, ..)| at.as_millis()).collect();
    assert_eq!((status, times), (StatusCode::OK, vec![0, 100, 300, 5_300, 6_100]));
}

#[tokio::test(start_paused = true)]
async fn jitter_is_added_and_never_taken_away() {
    let mut waits = Vec::new();
    for _ in 0..200 {
        let layer = RetryLayer::new().jitter(Duration::from_secs(3));
        waits.push(wait_with(layer, denial(429, &[("retry-after", "10")])).await.expect("it is retried"));
    }
    let (least, most) = (*waits.iter().min().expect("some"), *waits.iter().max().expect("some"));
    assert!(least >= 10_000 && most <= 13_001, "{least} to {most}");
    assert!(most - least > 2_000, "200 draws are not this close: {least} to {most}");
}
