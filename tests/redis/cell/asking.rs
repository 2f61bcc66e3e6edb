//! What is asked of the server, and what is kept there.

use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use tollgate::store::{Ask, Change, Check, Counter, Receipt, ReceiptItem, Settlement, Settles, Store};
use tollgate::{Key, Quota, RedisStore};

use super::rig::{HOUR, THREE, assert_empty, decide, server, store};
use crate::support::checks::{check, counter};

fn of(key: Key) -> Check {
    Check::new(Counter::new("user".try_into().expect("a valid name"), key, THREE), 1)
}

#[tokio::test]
async fn keys_that_clients_make_up_have_buckets_of_their_own_and_leave_their_braces_never() {
    let server = server();
    let store = store(&server).await;
    let long = vec![b'x'; 10_000];
    let values: [&[u8]; 12] = [
        b"",
        b" ",
        b"}",
        b"{",
        b"a}:user:1c3600s",
        b"a\r\nDEL b",
        b"\0",
        b"\xff\xfe",
        b"%7d",
        "\u{1f980}".as_bytes(),
        &long,
        &long[1..],
    ];
    for value in values {
        for left in [2, 1] {
            let decided = decide(&store, of(Key::new("header x-user", value))).await.unwrap();
            assert_eq!(decided.decision.outcomes()[0].remaining(), left, "{value:?}");
        }
    }
    let keys = server.keys();
    assert_eq!(keys.len(), values.len(), "{keys:?}");
    for key in &keys {
        assert!(key.starts_with("tollgate:{header"), "{key}");
        assert!(key.ends_with("}:user:1c3600s") && key.len() < 160 && key.bytes().all(|b| b.is_ascii()), "{key}");
        assert_eq!((key.matches('{').count(), key.matches('}').count()), (1, 1), "{key}");
    }
    server.assert_every_key_expires();
}

#[tokio::test]
async fn it_and_a_store_with_scripts_never_read_what_the_other_keeps() {
    let server = server();
    let (cell, scripts) = (store(&server).await, RedisStore::connect(&server.url()).await.unwrap());
    for left in [2, 1, 0] {
        let (a, b) = (decide(&cell, check("ada", THREE, 1)).await, decide(&scripts, check("ada", THREE, 1)).await);
        for decided in [a, b] {
            assert_eq!(decided.unwrap().decision.outcomes()[0].remaining(), left);
        }
    }
    assert_eq!(server.keys().len(), 2);
}

#[tokio::test]
async fn another_window_is_another_bucket_and_another_limit_is_the_same() {
    let server = server();
    let store = store(&server).await;
    drop(decide(&store, check("ada", THREE, 3)).await.unwrap());
    assert!(
        !decide(&store, check("ada", Quota::token_bucket(6, HOUR).burst(3), 3)).await.unwrap().decision.is_allowed()
    );
    assert!(decide(&store, check("ada", Quota::token_bucket(3, HOUR * 2), 3)).await.unwrap().decision.is_allowed());
    let lowered = decide(&store, check("ada", Quota::token_bucket(3, HOUR).burst(1), 0)).await.unwrap().decision;
    assert!(lowered.is_allowed(), "a look fits always");
    assert_eq!(lowered.outcomes()[0].remaining(), 0);
}

#[tokio::test]
async fn a_look_takes_nothing_and_leaves_nothing() {
    let server = server();
    let store = store(&server).await;
    for _ in 0..10 {
        let looked = decide(&store, check("ada", THREE, 0)).await.unwrap().decision;
        assert_eq!((looked.outcomes()[0].remaining(), looked.outcomes()[0].reset_after()), (3, Duration::ZERO));
    }
    assert_empty(&server).await;
}

#[tokio::test]
async fn a_limit_is_exact_over_callers_that_come_all_at_once() {
    let server = server();
    let (one, other) = (store(&server).await, store(&server).await);
    let quota = Quota::token_bucket(50, HOUR * 24);
    let asked = (0..200).map(|n| decide(if n % 2 == 0 { &one } else { &other }, check("ada", quota, 1)));
    let admitted = join_all(asked).await.into_iter().filter(|decided| decided.as_ref().unwrap().decision.is_allowed());
    assert_eq!(admitted.count(), 50);
}

#[tokio::test]
async fn an_answer_whose_caller_went_away_goes_to_nobody_else() {
    let server = server();
    let store = store(&server).await;
    for round in 0..50 {
        let gone = check(&format!("gone {round}"), Quota::token_bucket(900, HOUR), 1);
        let mut left = Box::pin(decide(&store, gone));
        assert!(poll!(&mut left).is_pending());
        drop(left);
        let decided = decide(&store, check(&format!("here {round}"), THREE, 1)).await.unwrap();
        assert_eq!(decided.decision.outcomes()[0].remaining(), 2, "{round}");
    }
}

#[tokio::test]
async fn what_it_cannot_do_is_an_error_also_where_no_layer_asked_before() {
    let server = server();
    let store = store(&server).await;
    for checks in [
        vec![check("ada", THREE, 1), check("bob", THREE, 1)],
        vec![check("ada", THREE, 1).floor(1)],
        vec![check("ada", THREE, 1).settles(Settles::ByOutcome)],
        vec![check("ada", Quota::sliding_log(3, HOUR), 1)],
        vec![check("ada", Quota::token_bucket(3, Duration::from_millis(1_001)), 1)],
    ] {
        let error = store.decide(&checks, Ask::default()).wait().await.expect_err("it cannot be done");
        assert!(error.is_invalid(), "{error:#}");
    }
    for change in [Change::Refund(1), Change::Charge(1)] {
        assert!(store.adjust(&counter("ada", THREE), change).wait().await.is_err_and(|error| error.is_invalid()));
    }
    assert!(store.decide(&[], Ask::default()).wait().await.unwrap().decision.is_allowed());
    assert_empty(&server).await;
}

#[tokio::test]
async fn settling_changes_nothing() {
    let server = server();
    let store = store(&server).await;
    let receipt = decide(&store, check("ada", THREE, 2)).await.unwrap().receipt;
    let taken = ReceiptItem::new(counter("ada", THREE), 2, 0);
    let forged = Receipt::new(receipt.store(), [taken]);
    for receipt in [receipt, forged] {
        drop(store.settle(receipt, &[Settlement::new(0, Change::Refund(2))]));
    }
    assert_eq!(decide(&store, check("ada", THREE, 0)).await.unwrap().decision.outcomes()[0].remaining(), 1);
}

#[tokio::test]
async fn a_reset_starts_a_key_anew_and_no_other() {
    let server = server();
    let store = store(&server).await;
    for user in ["ada", "bob"] {
        drop(decide(&store, check(user, THREE, 3)).await.unwrap());
    }
    store.adjust(&counter("ada", THREE), Change::Reset).wait().await.unwrap();
    store.adjust(&counter("nobody", THREE), Change::Reset).wait().await.unwrap();
    assert!(decide(&store, check("ada", THREE, 3)).await.unwrap().decision.is_allowed());
    assert!(!decide(&store, check("bob", THREE, 1)).await.unwrap().decision.is_allowed());
}
