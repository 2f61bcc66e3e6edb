//! One case: a Redis, a server, a load, and what happens meanwhile.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tollgate::RedisStore;

use crate::case::{Case, Setup};
use crate::load::Load;
use crate::sample::{Asks, Sample};
use crate::support::proxy::Proxy;
use crate::support::server::RedisServer;
use crate::support::stall::Stalls;
use crate::support::vault::Vault;
use crate::table::{self, Report};

/// Good times before and after.
const BEFORE: Duration = Duration::from_millis(1_800);
const AFTER: Duration = Duration::from_millis(2_200);
const ATTEMPTS: usize = 2;
const STOPPING: Duration = Duration::from_secs(1);

/// What a case acts upon.
pub(crate) struct Rig {
    pub(crate) redis: RedisServer,
    pub(crate) proxy: Proxy,
    pub(crate) vault: Vault,
    /// Of the server under test.
    pub(crate) address: SocketAddr,
    pub(crate) runtime: Runtime,
}

/// When what happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) start: Instant,
    /// It begins to happen.
    pub(crate) begin: Instant,
    /// Redis works again.
    pub(crate) whole: Instant,
    pub(crate) end: Instant,
    /// The longest that a thread of its own waited for its turn.
    pub(crate) stall: Duration,
}

/// Measures the cases whose names contain what the variable `CASES` says, and prints them; their faults fail the test.
pub(crate) fn run(cases: &[Case], attempt: impl Fn(&Case) -> Report) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let chosen = std::env::var("CASES").unwrap_or_default();
    let cases = cases.iter().filter(|case| case.name.contains(&chosen));
    let reports: Vec<Report> = cases.map(|case| twice(case, &attempt)).collect();
    if reports.is_empty() {
        return println!("no case here is named {chosen:?}");
    }
    table::print(&reports);
    let told = |report: &Report| {
        let name = report.name;
        report.faults.clone().into_iter().map(move |text| format!("Redis {name}: {text}"))
    };
    let faults: Vec<String> = reports.iter().flat_map(told).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Measures a case, and once again if something is wrong or the machine was busy: what other work does to the
/// times need not come of the case.
fn twice(case: &Case, attempt: impl Fn(&Case) -> Report) -> Report {
    for _ in 1..ATTEMPTS {
        let report = attempt(case);
        if report.faults.is_empty() && !report.is_busy {
            return report;
        }
        println!("measured again, Redis {}: busy: {}, {:?}", case.name, report.is_busy, report.faults);
    }
    attempt(case)
}

impl Rig {
    /// Starts a Redis as the case wants it, and a server; returns what that has besides its address.
    pub(crate) fn start<T>(case: &Case, serve: impl AsyncFnOnce(RedisStore) -> (SocketAddr, T)) -> (Self, T) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let (mut redis, vault) = (RedisServer::start(), Vault::default());
        let proxy = Proxy::to(redis.port());
        let url = if case.setup == Setup::Proxy { proxy.url() } else { redis.url() };
        let mut settings = RedisStore::builder();
        match case.setup {
            Setup::Nothing | Setup::Proxy => {}
            Setup::Outage => redis.kill(),
            Setup::Password => {
                vault.change([&redis], "staple");
                settings = vault.settings(settings);
            }
        }
        let store = runtime.block_on(settings.lazy().connect(&url)).expect("the URL is one");
        let (address, server) = runtime.block_on(serve(store));
        (Self { redis, proxy, vault, address, runtime }, server)
    }

    /// This thread is not the runtime's: what happens is not held up by the load.
    pub(crate) fn measure<U: Asks>(&mut self, case: &Case) -> (Times, Vec<Sample<U>>) {
        let stalls = Stalls::start();
        let load = self.runtime.block_on(Load::start(self.address, case.rate));
        let start = Instant::now();
        thread::sleep(BEFORE);
        let begin = Instant::now();
        (case.happen)(self);
        let whole = Instant::now();
        thread::sleep(AFTER);
        let end = Instant::now();
        let samples = self.runtime.block_on(load.stop());
        (Times { start, begin, whole, end, stall: stalls.longest() }, samples)
    }

    pub(crate) fn stop(self) {
        self.runtime.shutdown_timeout(STOPPING);
    }
}
