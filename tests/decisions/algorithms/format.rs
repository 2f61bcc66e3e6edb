//! What is in Redis of each algorithm: processes of other versions read and write it, too.

use std::time::Duration;

use tollgate::deadpool_redis::redis::Value;
use tollgate::policy::Algorithm;
use tollgate::store::{Ask, BanCheck, Check, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Quota, RedisStore};

use crate::support::checks::check;
use crate::support::server::RedisServer;

const S: u64 = 1_000_000;

/// When the states below were written first.
const START: Duration = Duration::from_secs(656 * 30 * 86_400);

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Of each quota the end of the key, and the state: two units taken after 70.000007 s, and one 10 s later.
const KEPT: [(Quota, &str, &str); 8] = [
    (Quota::fixed_window(5, us(60 * S)), "1f60000000u", "a76108787000000000000003"),
    (Quota::sliding_log(5, us(60 * S)), "1l60000000u", "0a7611b8b40711201d8711201d8711b8b407"),
    (Quota::sliding_window(5, us(60 * S)), "1s60000000u", "060a7611b8b407000000000003000000000000"),
    (Quota::token_bucket(5, us(60 * S)), "1t60000000u", "060a7611b8b40700000007bfa480060a761621da87"),
    (Quota::leaky_bucket(5, us(60 * S)).queue(4), "1q60000000u", "060a7611b8b40700000007bfa480060a761621da87"),
    (
        Quota::leaky_bucket(5, us(60 * S)).queue(4).nodelay(3),
        "1q60000000u",
        "060a7611b8b40700000007bfa480060a761621da87",
    ),
    (Quota::concurrency(5).slot_ttl(us(60 * S)), "1h60000000u", "060a7611201d8700000002060a7611b8b40700000001"),
    (Quota::token_bucket(5, us(3_600 * S)), "1t3600000m", "00018be4e1b88000000000a4083000018be52e78f0"),
];

/// A store on a server of its own, and their clock.
struct Rig {
    clock: ManualClock,
    server: RedisServer,
    store: RedisStore,
}

impl Rig {
    async fn start() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings = RedisStore::builder().without_deny_cache().clock(clock.clone()).timeout(Duration::from_secs(10));
        let store = settings.connect(&server.url()).await.expect("the server was started");
        Self { clock, server, store }
    }

    async fn decide(&self, check: Check) -> Decision {
        self.store.decide(&[check], Ask::default()).wait().await.expect("the server is there").decision
    }

    /// Takes units at the two times of which states are known.
    async fn take_twice(&self, quota: Quota, costs: [u64; 2]) {
        for (now, cost) in [70 * S + 7, 80 * S + 7].into_iter().zip(costs) {
            self.clock.set(START + us(now));
            assert!(self.decide(check("ada", quota, cost)).await.is_allowed(), "{quota}");
        }
    }

    fn kept_key(&self) -> String {
        let [key] = &self.server.keys()[..] else { panic!("one key was expected, not {:?}", self.server.keys()) };
        key.clone()
    }

    /// The only key, and the bytes under it.
    fn kept(&self) -> (String, String) {
        let key = self.kept_key();
        let bytes: Vec<u8> = self.server.ask(&["GET", &key]);
        (key, bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")))
    }

    fn forget(&self) {
        let _: String = self.server.ask(&["FLUSHALL"]);
    }

    /// Puts something else under a key.
    fn put(&self, key: &str, commands: &[&[&str]]) {
        for command in commands {
            let command: Vec<&str> = command.iter().map(|word| if *word == "KEY" { key } else { *word }).collect();
            let _: Value = self.server.ask(&command);
        }
    }
}

#[tokio::test]
async fn keys_and_states_in_redis_are_what_they_always_were() {
    let rig = Rig::start().await;
    let small = kept().into_iter().map(|(quota, key, state)| (quota, [2, 1], key, state));
    for (quota, costs, key, state) in small.chain(LARGE) {
        rig.take_twice(quota, costs).await;
        assert_eq!(rig.kept(), (format!("tollgate:{{key:ada}}:policy:{key}"), state.to_owned()), "{quota}");
        rig.forget();
    }
}

/// Of each calendar window the end of the key, and the state: two units taken after 70.000007 s, and one 10 s later.
#[cfg(feature = "calendar")]
const CALENDARS: [(&str, u8, &str, &str, &str); 4] = [
    ("month", 31, "Europe/Berlin", "1fmonth31@Europe/Berlin", "18c1d4f85800000000000003"),
    ("week", 7, "UTC", "1fweek7@UTC", "18c08ed04000000000000003"),
    ("day", 0, "Europe/Berlin", "1fday@Europe/Berlin", "18be9cfed800000000000003"),
    ("hour", 0, "Asia/Kolkata", "1fhour@Asia/Kolkata", "18be4fbf7400000000000003"),
];

#[cfg(feature = "calendar")]
fn of_calendar((unit, anchor, zone, ..): (&str, u8, &str, &str, &str)) -> Quota {
    use tollgate::policy::Calendar;
    let calendar = match unit {
        "month" => Calendar::monthly(zone).map(|month| month.anchor(anchor)),
        "week" => Calendar::weekly(zone).map(|week| week.anchor(anchor)),
        "day" => Calendar::daily(zone),
        _ => Calendar::hourly(zone),
    };
    Quota::calendar_window(5, calendar.expect("the system has time zones"))
}

/// All quotas, with what is kept of them.
fn kept() -> Vec<(Quota, &'static str, &'static str)> {
    #[cfg(feature = "calendar")]
    let of_calendars = CALENDARS.into_iter().map(|row| (of_calendar(row), row.3, row.4));
    #[cfg(not(feature = "calendar"))]
    let of_calendars = [];
    KEPT.into_iter().chain(of_calendars).collect()
}

/// Of each quota what is taken after 70.000007 s, all but three units, and 10 s later, two; the end of the key; and the
/// state, in which units and parts are apart.
const LARGE: [(Quota, [u64; 2], &str, &str); 2] = [
    (
        Quota::token_bucket(1_000_000_000, us(86_400 * S)),
        [999_999_997, 2],
        "1t86400000m",
        "ff00018be4e1b8800000003b9905e200018bef2e49700000000155cc00",
    ),
    (
        Quota::leaky_bucket(1_000_000_000_000, us(60 * S)).queue(999_999_999_999),
        [999_999_999_997, 2],
        "1q60000000u",
        "ff060a7611b8b4070000c206898d54060a7618472b8700000001312d00",
    ),
];

#[tokio::test]
async fn small_levels_are_the_same_bytes_under_large_quotas() {
    let rig = Rig::start().await;
    let left = async |quota, cost| rig.decide(check("ada", quota, cost)).await.outcomes()[0].remaining();
    for (small, _, state) in KEPT.into_iter().filter(|(_, key, _)| key.starts_with("1t") || key.starts_with("1q")) {
        let large = Quota::try_new(small.algorithm(), 1_000_000_000_000, small.window()).expect("within the bounds");
        let large = large.try_queue(999_999_999_999).unwrap_or(large);
        rig.take_twice(small, [2, 1]).await;
        assert_eq!(left(large, 0).await, large.capacity() - 3, "{small}");
        assert_eq!(rig.kept().1, state, "a look writes nothing");
        let rest = left(large, 1).await;
        assert!(rest + 4 == large.capacity() && rig.kept().1.len() == state.len(), "{small}: {rest}");
        // A large one is not one of the small quota, but is found again.
        assert_eq!(left(large, rest).await, 0);
        assert_eq!((left(small, 0).await, rig.kept().1.len()), (0, 2 * 29), "{small}");
        assert_eq!(left(large, 0).await, 0, "{small}");
        rig.forget();
    }
}

/// The states of a ban: two strikes, the first after 70 s, and a ban that began after 80 s.
const BANS: [&str; 2] = [
    "000000000000000000000000000000018be4e1917000000000000002",
    "00018be4e33f20000000000186a00000000000000000000000000000",
];

#[tokio::test]
async fn bans_in_redis_are_what_they_always_were() {
    let rig = Rig::start().await;
    let ban = Ban::new(3, us(60 * S), us(100 * S));
    let check = check("ada", Quota::fixed_window(1, us(60 * S)), 2).ban(BanCheck::new(ban));
    for (times, now, state) in [(2, 70, BANS[0]), (1, 80, BANS[1])] {
        rig.clock.set(START + us(now * S));
        for _ in 0..times {
            assert!(!rig.decide(check.clone()).await.is_allowed());
        }
        assert_eq!(rig.kept(), ("tollgate:{key:ada}:policy:1b".to_owned(), state.to_owned()));
    }
    for foreign in ["1", "as long as a ban, 28 bytes ..."] {
        rig.put("tollgate:{key:ada}:policy:1b", &[&["SET", "KEY", foreign]]);
        let decision = rig.decide(check.clone()).await;
        assert!(!decision.is_allowed() && !decision.is_banned(), "{foreign:?} is a new state");
    }
}

/// What others may have put under a key of ours.
const FOREIGN: [&[&[&str]]; 11] = [
    &[&["SET", "KEY", "1"]],
    &[&["SET", "KEY", ""]],
    &[&["SET", "KEY", "as 1 cohort"]],
    &[&["SET", "KEY", "\u{6}1234567890\u{5}1234567890"]],
    &[&["SET", "KEY", "twelve bytes"]],
    &[&["SET", "KEY", "as long as a window"]],
    &[&["SET", "KEY", "as long as a bucket's"]],
    &[&["SET", "KEY", "as long as units and parts ar"]],
    // It begins with the byte of a large level.
    &[
        &["SETBIT", "KEY", "231", "0"],
        &["SETRANGE", "KEY", "1", "as long as units and parts a"],
        &["BITFIELD", "KEY", "SET", "u8", "0", "255"],
    ],
    &[&["DEL", "KEY"], &["HSET", "KEY", "tokens", "1"]],
    &[&["DEL", "KEY"], &["RPUSH", "KEY", "1", "2"]],
];

#[tokio::test]
async fn a_foreign_value_is_a_new_state() {
    let rig = Rig::start().await;
    let quotas = kept().into_iter().map(|kept| kept.0).chain(LARGE.iter().map(|large| large.0));
    for quota in quotas {
        let new = rig.decide(check("ada", quota, 2)).await;
        for foreign in FOREIGN {
            rig.put(&rig.kept_key(), foreign);
            let found = rig.decide(check("ada", quota, 2)).await;
            assert_eq!(found.outcomes(), new.outcomes(), "{quota} after {foreign:?}");
        }
        rig.forget();
    }
}

#[test]
fn every_algorithm_has_its_table_in_the_conformance_suite() {
    let tables = include_str!("../../../crates/tollgate-test/src/conformance/tables.rs");
    for name in Algorithm::ALL {
        assert!(tables.contains(&format!("\"{name}\",")), "crates/tollgate-test/src/conformance/tables.rs: {name}");
    }
}
