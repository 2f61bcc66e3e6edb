//! Windows of a calendar, and buckets of large capacities, on a Cluster.

use std::time::Duration;

use tollgate::policy::Calendar;
use tollgate::store::{Ask, BanCheck, Change, Check, Counter, Settlement, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Key, Quota, RedisStore};

use super::rig::{Cluster, PATIENCE, check_of};

const DAY: Duration = Duration::from_secs(86_400);

/// As many units a month as a bucket has at most.
const LARGE: u64 = 1_000_000_000_000;

fn month(zone: &str, anchor: u8) -> Quota {
    let month = Calendar::monthly(zone).map(|month| month.anchor(anchor)).expect("the system has time zones");
    Quota::calendar_window(5, month)
}

fn checks(key: &str) -> [Check; 3] {
    [
        check_of("billing", key, month("Europe/Berlin", 31)),
        check_of("large", key, Quota::token_bucket(LARGE, 30 * DAY)).cost(LARGE / 5),
        check_of("local", key, month("Pacific/Kiritimati", 1)),
    ]
}

async fn remaining(store: &RedisStore, key: &str) -> [u64; 3] {
    let looks = checks(key).map(|check| check.cost(0));
    let decided = store.decide(&looks, Ask::default()).wait().await.expect("the Cluster is whole");
    [0, 1, 2].map(|check| decided.decision.outcomes()[check].remaining())
}

#[tokio::test]
async fn windows_of_calendars_and_large_buckets_are_one_step_on_every_primary() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    for place in 0..3 {
        let (key, primary) = (cluster.key_on(place), &cluster.primaries()[place]);
        // The first call loads the script.
        assert_eq!(remaining(&store, &key).await, [5, LARGE, 5]);
        let mut receipts = Vec::new();
        for left in (0..5).rev() {
            let before = primary.scripts();
            let decided = store.decide(&checks(&key), Ask::default()).wait().await.expect("the Cluster is whole");
            assert_eq!(primary.scripts() - before, 1, "one script call");
            let outcome = &decided.decision.outcomes()[0];
            assert_eq!((outcome.is_allowed(), outcome.remaining()), (true, left));
            assert!(outcome.reset_after() <= outcome.window(), "{outcome:?}");
            receipts.push(decided.receipt);
        }
        let refused = store.decide(&checks(&key), Ask::default()).wait().await.expect("the Cluster is whole").decision;
        assert!(!refused.is_allowed() && refused.retry_after() > Some(Duration::ZERO), "{refused:?}");
        assert_eq!(primary.keys().len(), 3, "{:?}", primary.keys());
        primary.assert_every_key_expires();
        let receipt = receipts.pop().expect("five were admitted");
        let refunds = [0, 2].map(|check| Settlement::new(check, Change::Refund(1)));
        let refunded = store.settle(receipt, &refunds).wait().await.expect("the Cluster is whole");
        assert!(refunded.iter().all(|refunded| refunded.units == 1), "{refunded:?}");
        let [billing, large, local] = remaining(&store, &key).await;
        assert_eq!((billing, local), (1, 1));
        assert!(large < LARGE / 5, "a little was refilled: {large}");
        for check in checks(&key) {
            store.adjust(&check.counter, Change::Reset).wait().await.expect("the Cluster is whole");
        }
        assert_eq!(remaining(&store, &key).await, [5, LARGE, 5]);
    }
}

#[tokio::test]
async fn a_window_of_a_calendar_ends_on_every_primary_and_keys_are_banned_beside_it() {
    let (cluster, clock) = (Cluster::start(), ManualClock::new());
    let builder = RedisStore::builder().without_deny_cache().clock(clock.clone()).timeout(PATIENCE);
    let store = builder.connect_cluster([cluster.nodes[0].url()]).await.expect("the Cluster was started");
    let quota = Quota::calendar_window(2, Calendar::daily("UTC").expect("it is always there"));
    let midnight = ManualClock::EPOCH + DAY;
    let ban = BanCheck::new(Ban::new(1, DAY, DAY / 2));
    for place in 0..3 {
        let counter =
            Counter::new("day".try_into().expect("a valid name"), Key::new("key", cluster.key_on(place)), quota);
        let ask = async |ban: Option<&BanCheck>| {
            let check = Check::new(counter.clone(), 1);
            let check = ban.map_or(check.clone(), |ban| check.ban(ban.clone()));
            let decided = store.decide(&[check], Ask::default()).wait().await.expect("the Cluster is whole");
            let outcome = decided.decision.outcomes()[0].clone();
            (outcome.is_allowed(), outcome.is_banned(), outcome.retry_after())
        };
        clock.set(ManualClock::EPOCH + Duration::from_secs(86_380));
        for allowed in [true, true, false] {
            assert_eq!(ask(None).await.0, allowed);
        }
        assert_eq!(ask(None).await.2, Some(Duration::from_secs(20)));
        clock.set(midnight);
        assert!(ask(None).await.0 && ask(Some(&ban)).await.0);
        assert_eq!(
            ask(Some(&ban)).await,
            (false, true, Some(DAY)),
            "the refusal was a strike, and the window lasts longer"
        );
    }
}
