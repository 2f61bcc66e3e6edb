//! When a store that fails is asked.

use futures::future::join_all;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};
use tollgate::store::{BreakerState, DenyCache};
use tollgate::{Key, MemoryStore, Quota, Source};

use super::rig::{MANY, MOST, Mood, Moody, ask, broken, decided_by, layer, ms, source, state};

#[tokio::test(start_paused = true)]
async fn one_request_at_a_time_asks_whether_it_is_back_at_most_500_ms_apart() {
    let store = Moody::new(Mood::Fails);
    let layer = broken(&store, |layer| layer).await;
    for (probe, wait) in [50, 100, 200, 400, 500, 500, 500].into_iter().enumerate() {
        advance(ms(wait - 1)).await;
        decided_by(&layer).await;
        assert_eq!(store.asked(), MOST + probe, "it is too early");
        advance(ms(1)).await;
        for _ in 0..10 {
            assert_eq!(decided_by(&layer).await, Source::Fallback);
        }
        assert_eq!(store.asked(), MOST + probe + 1);
    }
    store.becomes(Mood::Decides);
    advance(ms(500)).await;
    assert_eq!(decided_by(&layer).await, Source::Store);
    assert_eq!((state(&layer), decided_by(&layer).await), (BreakerState::Closed, Source::Store));
}

#[tokio::test(start_paused = true)]
async fn others_do_not_wait_for_the_probe() {
    let store = Moody::new(Mood::Fails);
    let layer = broken(&store, |layer| layer).await;
    store.becomes(Mood::DecidesIn(ms(30)));
    advance(ms(50)).await;
    let start = Instant::now();
    let others = async {
        yield_now().await;
        assert_eq!(state(&layer), BreakerState::HalfOpen);
        for _ in 0..10 {
            assert_eq!((decided_by(&layer).await, start.elapsed()), (Source::Fallback, ms(0)));
        }
    };
    assert_eq!(futures::join!(decided_by(&layer), others).0, Source::Store);
    assert_eq!((start.elapsed(), state(&layer), store.asked()), (ms(30), BreakerState::Closed, MOST + 1));
}

#[tokio::test(start_paused = true)]
async fn late_answers_to_earlier_questions_do_not_make_it_be_asked_again() {
    let store = Moody::new(Mood::DecidesIn(ms(60)));
    let layer = layer(&store, MANY).timeout(ms(90));
    let others = async {
        yield_now().await;
        store.becomes(Mood::Fails);
        for _ in 0..MOST {
            decided_by(&layer).await;
        }
        assert_eq!(state(&layer), BreakerState::Open);
    };
    let (late, ()) = futures::join!(join_all((0..3).map(|_| decided_by(&layer))), others);
    assert_eq!(late, [Source::Store; 3], "they had their answers in time");
    assert_eq!((state(&layer), decided_by(&layer).await), (BreakerState::Open, Source::Fallback));
}

#[tokio::test(start_paused = true)]
async fn questions_that_can_never_be_answered_say_nothing_of_the_store() {
    let store = Moody::new(Mood::Refuses);
    let layer = layer(&store, MANY);
    for _ in 0..3 * MOST {
        assert_eq!(decided_by(&layer).await, Source::Fallback);
    }
    assert_eq!((state(&layer), store.asked()), (BreakerState::Closed, 3 * MOST));

    store.becomes(Mood::Fails);
    for _ in 0..MOST {
        decided_by(&layer).await;
    }
    advance(ms(50)).await;
    for mood in [Mood::Refuses, Mood::Refuses, Mood::Decides] {
        assert_eq!(state(&layer), BreakerState::Open);
        store.becomes(mood);
        decided_by(&layer).await;
    }
    assert_eq!(state(&layer), BreakerState::Closed, "the next request could tell");
}

#[tokio::test(start_paused = true)]
async fn what_the_process_remembers_of_the_store_says_nothing_of_the_store() {
    let store = Moody::around(Mood::Decides, DenyCache::new(MemoryStore::new()));
    let layer = layer(&store, Quota::per_hour(1));
    let decided_for = async |user| source(&ask(&layer, user).await);
    // The second refusal is remembered.
    assert_eq!([decided_for("ada").await, decided_for("ada").await], [Source::Store; 2]);
    for failing in ["1", "2", "3", "4", "5"] {
        store.becomes(Mood::Decides);
        assert_eq!(decided_for("ada").await, Source::DenyCache);
        store.becomes(Mood::Fails);
        assert_eq!(decided_for(failing).await, Source::Fallback);
    }
    assert_eq!(state(&layer), BreakerState::Open);
    advance(ms(50)).await;
    store.becomes(Mood::Decides);
    assert_eq!(decided_for("ada").await, Source::Store, "a probe asks the store itself");
    assert_eq!(state(&layer), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_layer_and_what_is_made_of_it_ask_by_one_breaker_and_other_layers_by_their_own() {
    let store = Moody::new(Mood::Fails);
    let first = broken(&store, |layer| layer).await;
    let ada = Key::hashed("header x-user", "ada");
    let _ = first.live().limiter().check(&ada).await.expect("the fallback decides");
    assert_eq!(store.asked(), MOST);
    let other = layer(&store, MANY);
    assert_eq!(state(&other), BreakerState::Closed);
    decided_by(&other).await;
    assert_eq!(store.asked(), MOST + 1);
}
