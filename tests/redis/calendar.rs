//! Windows of a calendar: the process names them, and the server's clock decides between them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::policy::Calendar;
use tollgate::store::{Ask, BanCheck, Check, Mode, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Error, Quota, RedisStore};

use super::stores::{connect, settings};
use crate::support::checks::check;
use crate::support::server::RedisServer;

const DAY: u64 = 86_400;

/// Midnight in Berlin. Times in here are seconds since the clock's first.
const MIDNIGHT: u64 = 3 * DAY - 3_600;

const LONG: Duration = Duration::from_secs(10);

fn daily(limit: u64) -> Quota {
    Quota::calendar_window(limit, Calendar::daily("Europe/Berlin").expect("the system has time zones"))
}

fn at(seconds: u64) -> Duration {
    ManualClock::EPOCH + Duration::from_secs(seconds)
}

struct Rig {
    store: RedisStore,
    clock: ManualClock,
    /// What the clock shows when it is asked next, only once: a request asks when it is made, and when it is sent.
    made: Arc<Mutex<Option<Duration>>>,
    server: RedisServer,
}

impl Rig {
    async fn start() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let made = Arc::<Mutex<Option<Duration>>>::default();
        let (once, then) = (Arc::clone(&made), clock.clone());
        let time = move || once.lock().expect("nobody panics here").take().unwrap_or_else(|| then.now());
        let store = connect(settings().clock(time), &server).await;
        Self { store, clock, made, server }
    }

    /// Has a request decided at one time that was made at another.
    async fn decide(&self, made: u64, decided: u64, checks: &[Check]) -> Result<StoreDecision, Error> {
        self.clock.set(at(decided));
        *self.made.lock().expect("nobody panics here") = Some(at(made));
        self.store.decide(checks, Ask::default()).wait().await
    }

    async fn remaining(&self, made: u64, decided: u64, cost: u64) -> (u64, u64) {
        let decided = self.decide(made, decided, &[check("ada", daily(5), cost)]).await.expect("it is near enough");
        let outcome = &decided.decision.outcomes()[0];
        (outcome.remaining(), outcome.reset_after().as_secs())
    }
}

#[tokio::test]
async fn a_request_counts_in_the_window_that_the_server_is_in() {
    let rig = Rig::start().await;
    assert_eq!(rig.remaining(MIDNIGHT - 3, MIDNIGHT - 2, 3).await, (2, 2));
    assert_eq!(rig.remaining(MIDNIGHT + 1, MIDNIGHT - 1, 1).await, (1, 1), "a process that is ahead");
    assert_eq!(rig.remaining(MIDNIGHT - 1, MIDNIGHT, 1).await, (4, DAY), "one that is behind, or waited");
    assert_eq!(rig.remaining(MIDNIGHT - 1, MIDNIGHT + DAY - 1, 1).await, (3, 1), "one that is a day behind");
    assert_eq!(rig.remaining(MIDNIGHT + DAY, MIDNIGHT, 0).await, (3, DAY), "one that is a day ahead");
}

#[tokio::test]
async fn a_clock_that_differs_by_more_than_a_window_is_an_error_and_takes_nothing() {
    let rig = Rig::start().await;
    let others = Quota::fixed_window(5, Duration::from_secs(11 * 3_600));
    for decided in [MIDNIGHT + 2 * DAY, MIDNIGHT - DAY - 1] {
        for mode in [Mode::Enforce, Mode::Shadow] {
            let checks = [check("ada", others, 1), check("ada", daily(5), 1).mode(mode), check("ada", others, 1)];
            let ban = BanCheck::new(Ban::new(1, LONG, LONG));
            let bans = [checks[1].clone().ban(ban.clone()), check("ada", others, 6).ban(ban)];
            for checks in [&checks[..], &checks[1..2], &[check("ada", daily(5), 0)], &bans, &bans[..1]] {
                let error = rig.decide(MIDNIGHT, decided, checks).await.expect_err("it is too far");
                let told = error.to_string();
                assert!(error.is_store() && told.contains("by more than a window of a calendar"), "{told}");
                assert_eq!(rig.server.keys(), [""; 0], "nothing was taken, and nothing was a strike");
            }
        }
    }
    assert!(rig.decide(MIDNIGHT, MIDNIGHT, &[check("ada", daily(5), 1)]).await.is_ok());
}

/// Processes may have zone data of different years, and servers states of clocks that were set.
#[tokio::test]
async fn a_window_counts_until_the_end_that_its_state_names() {
    let rig = Rig::start().await;
    // Made here for its key, and then as one that has another end would have left it, with four units.
    let at_once = async |time, cost| rig.remaining(time, time, cost).await;
    assert_eq!(at_once(MIDNIGHT, 1).await, (4, DAY));
    let [key] = &rig.server.keys()[..] else { panic!("one key was expected") };
    let ends = |seconds: u64| {
        let state = format!("{:011x}{:013x}", at(seconds).as_millis(), 4);
        let set = "local state = ARGV[1]:gsub('..', function(hex) return string.char(tonumber(hex, 16)) end) \
                   return redis.call('SET', KEYS[1], state, 'PX', 100000000)";
        let _: String = rig.server.ask(&["EVAL", set, "1", key, &state]);
    };
    // An hour later than here, across midnight: it counts until then, and then the window of here does.
    ends(MIDNIGHT + 3_600);
    assert_eq!(at_once(MIDNIGHT - 1, 0).await, (1, 3_601));
    assert_eq!(at_once(MIDNIGHT, 1).await, (0, 3_600));
    assert_eq!(at_once(MIDNIGHT + 3_599, 1).await, (0, 1), "it is refused");
    assert_eq!(at_once(MIDNIGHT + 3_600, 1).await, (4, DAY - 3_600));
    // An hour earlier.
    ends(MIDNIGHT + DAY - 3_600);
    assert_eq!(at_once(MIDNIGHT + 7_200, 1).await, (0, DAY - 3 * 3_600));
    assert_eq!(at_once(MIDNIGHT + DAY - 3_600, 1).await, (4, 3_600));
    // So far ahead that it would refuse for too long.
    ends(MIDNIGHT + 3 * DAY);
    assert_eq!(at_once(MIDNIGHT, 0).await, (1, 3 * DAY));
    ends(MIDNIGHT + 3 * DAY + 1);
    assert_eq!(at_once(MIDNIGHT, 0).await, (5, 0));
}
