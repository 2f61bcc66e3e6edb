//! What a layer does without its store.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::advance;
use tollgate::{OnFailure, Policy, Quota, RateLimitLayer, Source};

use super::rig::{MOST, Mood, Moody, ask, decided_by, header, layer, ms, source, told};

const ONE: Quota = Quota::per_hour(1);

fn allowing(store: &Moody) -> RateLimitLayer {
    layer(store, ONE).on_failure(OnFailure::Allow)
}

#[tokio::test(start_paused = true)]
async fn all_is_admitted_for_a_minute_and_then_a_local_store_limits() {
    let store = Moody::new(Mood::Fails);
    let layer = allowing(&store);
    for _ in 0..60 {
        for _ in 0..10 {
            assert_eq!(decided_by(&layer).await, Source::FailOpen);
        }
        advance(Duration::from_secs(1)).await;
    }
    for status in [200, 429] {
        assert_eq!(told(&ask(&layer, "ada").await), (status, Source::Fallback));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_counts_from_the_first_failure_of_an_outage() {
    let store = Moody::new(Mood::Fails);
    let layer = allowing(&store).allow_for(ms(2_000));
    for outage in 0..3 {
        store.becomes(Mood::Fails);
        for (times, later) in [(1, 1_000), (5, 999), (1, 1)] {
            for _ in 0..times {
                assert_eq!(decided_by(&layer).await, Source::FailOpen, "outage {outage}");
            }
            advance(ms(later)).await;
        }
        assert_eq!(source(&ask(&layer, "ada").await), Source::Fallback, "outage {outage}");
        store.becomes(Mood::Decides);
        advance(ms(500)).await;
        assert_eq!(source(&ask(&layer, "ada").await), Source::Store);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_with_answers_in_between_are_no_outage() {
    let store = Moody::new(Mood::Fails);
    let layer = allowing(&store).allow_for(ms(2_000));
    for _ in 0..5 {
        store.becomes(Mood::Fails);
        assert_eq!(decided_by(&layer).await, Source::FailOpen);
        advance(ms(1_999)).await;
        store.becomes(Mood::Decides);
        assert_eq!(source(&ask(&layer, "ada").await), Source::Store);
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_store_can_decide_is_limited_even_where_all_is_admitted() {
    let layer = allowing(&Moody::new(Mood::Refuses));
    assert_eq!(decided_by(&layer).await, Source::Fallback);
    assert_eq!(ask(&layer, "ada").await.status(), 429);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_denies_says_when_the_store_is_asked_again() {
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, ONE).on_failure(OnFailure::Deny);
    for _ in 0..20 {
        let response = ask(&layer, "ada").await;
        assert_eq!((response.status().as_u16(), header(&response, "retry-after").as_str()), (503, "1"));
        assert_eq!(header(&response, "content-type"), "application/problem+json");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body = std::str::from_utf8(&body).expect("text");
        assert!(body.contains("#temporary-reduced-capacity\"") && body.contains("Retry in 1 second."), "{body}");
    }
    assert_eq!(store.asked(), MOST);
    store.becomes(Mood::Decides);
    advance(ms(1_000)).await;
    assert_eq!(decided_by(&layer).await, Source::Store, "and so it is");
}

#[tokio::test(start_paused = true)]
async fn clients_are_not_told_which_rule_decided() {
    let names = async |mood, rule| {
        let layer = layer(&Moody::new(mood), ONE).on_failure(rule);
        ask(&layer, "ada").await.headers().keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    let usual = names(Mood::Decides, OnFailure::Fallback).await;
    for rule in [OnFailure::Fallback, OnFailure::Allow] {
        assert_eq!(names(Mood::Fails, rule).await, usual, "{rule:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shadows_alone_are_never_denied() {
    let store = Moody::new(Mood::Fails);
    let shadow = Policy::new("tried", ONE).shadow();
    let layer = RateLimitLayer::new(store.store(), shadow).on_failure(OnFailure::Deny);
    for _ in 0..20 {
        assert_eq!(ask(&layer, "ada").await.status(), 200);
    }
    assert_eq!(store.asked(), MOST);
}
