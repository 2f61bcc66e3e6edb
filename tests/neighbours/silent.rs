//! Connections that end, or on which nothing or something else comes back while new ones work.

use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::store::{Ask, Store};

use crate::others::{Tally, ask};
use crate::rig::{AMPLE, check, connect, give_back, left, ms, take, turn, workers};
use crate::sieve::Sieve;
use crate::support::server::RedisServer;

const OTHERS: u32 = 20;
/// Clients that ask at once, and how often each does.
const CLIENTS: u64 = 16;
const LOOKS: u32 = 300;
/// The first ones notice it; a busy machine may cost a few more.
const MOST_FAILED: usize = 4;
/// How long a settlement waits for a connection, and a little.
const PATIENCE: Duration = ms(9_000);

/// Decides, one after the other.
async fn ask_in_turn(store: &RedisStore, count: u32) -> Tally {
    let mut tally = Tally::default();
    for number in 0..count {
        let start = Instant::now();
        let answer = ask(store, number).await;
        tally.add((start.elapsed(), answer));
    }
    tally
}

#[track_caller]
fn assert_noticed(scenario: &str, tally: &Tally) {
    println!("{scenario}: {tally}");
    assert!(tally.failed() <= MOST_FAILED, "{scenario}: {tally}");
}

#[test]
fn decisions_behind_settlements_that_nobody_answers_go_to_another_connection() {
    let (_turn, redis) = (turn(), RedisServer::start());
    let sieve = Sieve::to(redis.port());
    let tally = workers().block_on(async {
        let store = connect(&sieve.url()).await;
        let receipts = [take(&store, "one", 5).await, take(&store, "other", 5).await];
        sieve.silence();
        for receipt in receipts {
            give_back(&store, receipt);
            // Each leaves in a call of its own, so that there is room for no further one.
            tokio::time::sleep(ms(50)).await;
        }
        ask_in_turn(&store, OTHERS).await
    });
    assert_noticed("two settlements on a connection that went silent", &tally);
}

#[test]
fn a_silent_connection_leaves_room_for_another_one_in_a_pool_of_one() {
    let (_turn, redis) = (turn(), RedisServer::start());
    let sieve = Sieve::to(redis.port());
    let tally = workers().block_on(async {
        let store = RedisStore::builder().pool_size(1).connect(&sieve.url()).await.expect("the server was started");
        left(&store, "warm").await;
        sieve.silence();
        ask_in_turn(&store, OTHERS).await
    });
    assert_noticed("a pool of one whose connection went silent", &tally);
}

#[test]
fn a_stray_reply_is_no_decisions_answer_and_fails_none_but_those_on_their_way() {
    let (_turn, redis) = (turn(), RedisServer::start());
    let sieve = Sieve::to(redis.port());
    let (wrong, failed) = workers().block_on(async {
        let store = connect(&sieve.url()).await;
        let clients: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(look_at_its_own(store.clone(), number))).collect();
        tokio::time::sleep(ms(50)).await;
        sieve.go_astray(b"$-1\r\n");
        let mut sum = (0, 0);
        for client in clients {
            let (wrong, failed) = client.await.expect("it ends");
            sum = (sum.0 + wrong, sum.1 + failed);
        }
        sum
    });
    assert_eq!(wrong, 0, "answers of others");
    assert!((1..=CLIENTS).contains(&failed), "{failed} failed");
}

#[test]
fn a_stray_redirection_from_one_server_ends_the_connection_as_no_call_after_it_has_its_own_reply() {
    let (_turn, redis) = (turn(), RedisServer::start());
    let sieve = Sieve::to(redis.port());
    workers().block_on(async {
        let store = RedisStore::builder().timeout(PATIENCE).without_deny_cache();
        let store = store.connect(&sieve.url()).await.expect("the server was started");
        for (stray, key) in [("-MOVED 42 127.0.0.1:6379\r\n", "moved"), ("-ASK 42 127.0.0.1:6379\r\n", "asked")] {
            let taken = take(&store, key, 5).await.items()[0].units;
            redis.pause();
            let mut looks = Vec::new();
            for key in [key, "untouched"] {
                let store = store.clone();
                looks.push(tokio::spawn(async move { store.decide(&[check(key, 0)], Ask::default()).wait().await }));
                // Each leaves in a call of its own: the second one would get the reply to the first.
                tokio::time::sleep(ms(50)).await;
            }
            sieve.go_astray(stray.as_bytes());
            redis.resume();
            for look in looks {
                look.await.expect("it ends").expect_err("its reply was not its own");
            }
            assert_eq!(left(&store, key).await, AMPLE.capacity() - taken, "after {stray}");
        }
    });
}

/// Takes as many units of a key as no other client does, and looks at it; returns how often it saw
/// something else, and how often nothing.
async fn look_at_its_own(store: RedisStore, number: u64) -> (u64, u64) {
    let (key, own) = (format!("of {number}"), 1 + number);
    let _ = take(&store, &key, own).await;
    let (mut wrong, mut failed) = (0, 0);
    for _ in 0..LOOKS {
        match store.decide(&[check(&key, 0)], Ask::default()).wait().await {
            Ok(looked) => wrong += u64::from(looked.decision.outcomes()[0].remaining() != AMPLE.capacity() - own),
            Err(_) => failed += 1,
        }
    }
    (wrong, failed)
}

#[test]
fn a_settlement_while_redis_is_away_arrives_once_it_is_back_though_nobody_asks() {
    let (_turn, redis) = (turn(), RedisServer::start());
    let sieve = Sieve::to(redis.port());
    workers().block_on(async {
        let (store, other) = (connect(&sieve.url()).await, connect(&redis.url()).await);
        let receipt = take(&store, "one", 5).await;
        sieve.close();
        // What is sent before the end of the connection is known may be lost.
        tokio::time::sleep(ms(100)).await;
        give_back(&store, receipt);
        tokio::time::sleep(ms(300)).await;
        assert_eq!(left(&other, "one").await, AMPLE.capacity() - 5, "there is no way to Redis");
        sieve.open();
        let start = Instant::now();
        while left(&other, "one").await < AMPLE.capacity() && start.elapsed() < PATIENCE {
            tokio::time::sleep(ms(20)).await;
        }
        assert_eq!(left(&other, "one").await, AMPLE.capacity(), "after {:?}", start.elapsed());
    });
}

#[test]
fn an_answer_is_given_back_that_comes_long_after_a_newer_connection_answers() {
    let (_turn, redis) = (turn(), RedisServer::start());
    let sieve = Sieve::to(redis.port());
    workers().block_on(async {
        let (store, other) = (connect(&sieve.url()).await, connect(&redis.url()).await);
        sieve.hold();
        let asked = store.decide(&[check("one", 7)], Ask::default()).wait().await;
        asked.expect_err("the answer is held back");
        let start = Instant::now();
        while start.elapsed() < ms(700) {
            left(&store, "another").await;
            tokio::time::sleep(ms(10)).await;
        }
        assert_eq!(left(&other, "one").await, AMPLE.capacity() - 7, "nobody knows yet");
        sieve.release();
        let start = Instant::now();
        while left(&other, "one").await < AMPLE.capacity() && start.elapsed() < ms(2_000) {
            tokio::time::sleep(ms(10)).await;
        }
        assert_eq!(left(&other, "one").await, AMPLE.capacity());
    });
}
