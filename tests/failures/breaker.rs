//! When a store that fails is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use tokio::time::{Instant, advance};
use tollgate::store::{Ask, BreakerState, Check, MaybeFuture, Store, StoreDecision};
use tollgate::{Decision, Error, MemoryStore, Quota, RateLimitLayer, Source};

use super::rig::{MANY, Mood, Moody, decided_by, layer, ms, per_user};
use crate::support::doubles::passes_on;

/// Failures in a row after which a store is not asked.
const MOST: u64 = 5;

/// A layer whose store just failed too often.
async fn broken(store: &Moody) -> RateLimitLayer {
    let layer = layer(store, MANY);
    store.becomes(Mood::Fails);
    for _ in 0..MOST {
        assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed);
        assert_eq!(decided_by(&layer).await, Source::Fallback);
    }
    assert_eq!((layer.clone().live().breaker_state(), store.asked()), (BreakerState::Open, MOST));
    layer
}

#[tokio::test(start_paused = true)]
async fn failures_with_answers_in_between_do_not_stop_it_from_being_asked() {
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, MANY);
    for _ in 0..20 {
        store.becomes(Mood::Fails);
        for _ in 1..MOST {
            decided_by(&layer).await;
        }
        store.becomes(Mood::Decides);
        assert_eq!(decided_by(&layer).await, Source::Store);
        advance(ms(1_000)).await;
    }
    assert_eq!((layer.clone().live().breaker_state(), store.asked()), (BreakerState::Closed, 20 * MOST));
}

/// Asks for decisions of which every `nth` fails, `step` ms apart; how many it takes until the store
/// is not asked, if that comes.
async fn opens_after(nth: u64, step: u64) -> Option<u64> {
    let store = Moody::new(Mood::Decides);
    let layer = layer(&store, Quota::per_hour(10_000));
    for decision in 1..=2_000 {
        let (mood, source) = match decision % nth {
            0 => (Mood::Fails, Source::Fallback),
            _ => (Mood::Decides, Source::Store),
        };
        store.becomes(mood);
        assert_eq!((decided_by(&layer).await, store.asked()), (source, decision));
        if layer.clone().live().breaker_state() == BreakerState::Open {
            return Some(decision);
        }
        advance(ms(step)).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_every_second_time_is_not_asked_after_ten_failures_in_a_second() {
    for (nth, step, most) in
        [(2, 0, Some(20)), (2, 50, Some(20)), (2, 100, None), (3, 1, None), (10, 0, None), (10, 1, None)]
    {
        assert_eq!(opens_after(nth, step).await, most, "every {nth}th fails, every {step} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_at_a_time_asks_whether_it_is_back_at_most_500_ms_apart() {
    let store = Moody::new(Mood::Fails);
    let layer = broken(&store).await;
    for (probe, wait) in [50, 100, 200, 400, 500, 500, 500].into_iter().enumerate() {
        advance(ms(wait - 1)).await;
        decided_by(&layer).await;
        assert_eq!(store.asked(), MOST + probe as u64, "it is too early");
        advance(ms(1)).await;
        for _ in 0..10 {
            assert_eq!(decided_by(&layer).await, Source::Fallback);
        }
        assert_eq!(store.asked(), MOST + probe as u64 + 1);
    }
    store.becomes(Mood::Decides);
    advance(ms(500)).await;
    assert_eq!(decided_by(&layer).await, Source::Store);
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed);
    assert_eq!(decided_by(&layer).await, Source::Store);
}

#[tokio::test(start_paused = true)]
async fn others_do_not_wait_for_the_probe() {
    let store = Moody::new(Mood::Fails);
    let layer = broken(&store).await;
    store.becomes(Mood::DecidesIn(ms(30)));
    advance(ms(50)).await;
    let start = Instant::now();
    let probe = decided_by(&layer);
    let others = async {
        tokio::task::yield_now().await;
        assert_eq!(layer.clone().live().breaker_state(), BreakerState::HalfOpen);
        for _ in 0..10 {
            assert_eq!(decided_by(&layer).await, Source::Fallback);
        }
        assert_eq!(start.elapsed(), ms(0));
    };
    assert_eq!(futures::join!(probe, others).0, Source::Store);
    assert_eq!(start.elapsed(), ms(30));
    assert_eq!((layer.clone().live().breaker_state(), store.asked()), (BreakerState::Closed, MOST + 1));
}

#[tokio::test(start_paused = true)]
async fn late_answers_to_earlier_questions_do_not_make_it_be_asked_again() {
    let store = Moody::new(Mood::DecidesIn(ms(60)));
    let layer = layer(&store, MANY).timeout(ms(90));
    let late = join_all((0..3).map(|_| decided_by(&layer)));
    let others = async {
        tokio::task::yield_now().await;
        store.becomes(Mood::Fails);
        for _ in 0..MOST {
            decided_by(&layer).await;
        }
        assert_eq!(layer.clone().live().breaker_state(), BreakerState::Open);
    };
    let (late, ()) = futures::join!(late, others);
    assert_eq!(late, [Source::Store; 3], "they had their answers in time");
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Open);
    assert_eq!(decided_by(&layer).await, Source::Fallback);
}

#[tokio::test(start_paused = true)]
async fn questions_that_can_never_be_answered_say_nothing_of_the_store() {
    let store = Moody::new(Mood::Refuses);
    let layer = layer(&store, MANY);
    for _ in 0..3 * MOST {
        assert_eq!(decided_by(&layer).await, Source::Fallback);
    }
    assert_eq!((layer.clone().live().breaker_state(), store.asked()), (BreakerState::Closed, 3 * MOST));

    store.becomes(Mood::Fails);
    for _ in 0..MOST {
        decided_by(&layer).await;
    }
    advance(ms(50)).await;
    for mood in [Mood::Refuses, Mood::Refuses, Mood::Decides] {
        assert_eq!(layer.clone().live().breaker_state(), BreakerState::Open);
        store.becomes(mood);
        decided_by(&layer).await;
    }
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed, "the next request could tell");
}

/// A store that can say that it asked nobody; the source of a `StoreFn` stays what it is.
struct Remembering {
    memory: MemoryStore,
    remembers: Arc<AtomicBool>,
}

impl Store for Remembering {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let MaybeFuture::Ready(Ok(StoreDecision { decision, receipt, .. })) = self.memory.decide(checks, ask) else {
            panic!("memory decides")
        };
        let source = if self.remembers.load(Ordering::SeqCst) { Source::DenyCache } else { Source::Store };
        let decision = Decision::new(decision.outcomes().iter().cloned(), source);
        MaybeFuture::Ready(Ok(StoreDecision::new(decision, receipt)))
    }

    passes_on!(memory: settle, adjust);
}

#[tokio::test(start_paused = true)]
async fn what_the_process_remembers_of_the_store_says_nothing_of_the_store() {
    let remembers = Arc::new(AtomicBool::new(true));
    let inner = Remembering { memory: MemoryStore::new(), remembers: Arc::clone(&remembers) };
    let store = Moody::around(Mood::Fails, inner);
    let layer = layer(&store, MANY);
    for _ in 0..MOST {
        store.becomes(Mood::Decides);
        assert_eq!(decided_by(&layer).await, Source::DenyCache);
        store.becomes(Mood::Fails);
        assert_eq!(decided_by(&layer).await, Source::Fallback);
    }
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Open);
    advance(ms(50)).await;
    store.becomes(Mood::Decides);
    for source in [Source::DenyCache, Source::DenyCache, Source::Store] {
        assert_eq!(layer.clone().live().breaker_state(), BreakerState::Open);
        remembers.store(source == Source::DenyCache, Ordering::SeqCst);
        assert_eq!(decided_by(&layer).await, source);
    }
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed, "the next request could tell");
}

#[tokio::test(start_paused = true)]
async fn a_layer_and_what_is_made_of_it_ask_by_one_breaker_and_other_layers_by_their_own() {
    let store = Moody::new(Mood::Fails);
    let layer = broken(&store).await;
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Open);
    let asked = store.asked();
    let _ = layer
        .clone()
        .live()
        .limiter()
        .check(&tollgate::Key::hashed("header x-user", "ada"))
        .await
        .expect("the fallback decides");
    assert_eq!(store.asked(), asked);
    let other = RateLimitLayer::new(store.store(), per_user(MANY));
    assert_eq!(other.clone().live().breaker_state(), BreakerState::Closed);
    decided_by(&other).await;
    assert_eq!(store.asked(), asked + 1);
}
