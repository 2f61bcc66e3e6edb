//! One case: a Redis, a server, a load, and what happens meanwhile.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tollgate::RedisStore;

use crate::app;
use crate::case::{Case, Setup};
use crate::load::Load;
use crate::proxy::Proxy;
use crate::report::Report;
use crate::support::server::RedisServer;
use crate::vault::Vault;

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
}

/// Measures a case, and once again if something is wrong or the machine was busy: what other work does to the
/// times need not come of the case.
pub(crate) fn run(case: &Case) -> Report {
    for _ in 1..ATTEMPTS {
        let report = attempt(case);
        let faults = report.faults();
        if faults.is_empty() && !report.is_of_a_busy_machine() {
            return report;
        }
        println!("measured again, Redis {}: busy: {}, {faults:?}", case.name, report.is_of_a_busy_machine());
    }
    attempt(case)
}

fn attempt(case: &Case) -> Report {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime can be built");
    let (mut redis, vault) = (RedisServer::start(), Vault::default());
    let proxy = runtime.block_on(Proxy::start(redis.port()));
    let url = if case.setup == Setup::Proxy { proxy.url() } else { redis.url() };
    let mut settings = RedisStore::builder();
    match case.setup {
        Setup::Nothing | Setup::Proxy => {}
        Setup::Outage => redis.kill(),
        Setup::Password => {
            vault.change(&redis, "staple");
            let vault = vault.clone();
            settings = settings.credentials(move || {
                let credentials = vault.credentials();
                async { Ok::<_, Infallible>(credentials) }
            });
        }
    }
    let store = settings.connect_lazy(&url).expect("the URL is one");
    let address = runtime.block_on(app::serve(store));
    let report = measure(case, &runtime, &mut Rig { redis, proxy, vault, address });
    runtime.shutdown_timeout(STOPPING);
    report
}

/// This thread is not the runtime's: what happens is not held up by the load.
fn measure(case: &Case, runtime: &Runtime, rig: &mut Rig) -> Report {
    let load = runtime.block_on(Load::start(rig.address, case.rate));
    let start = Instant::now();
    thread::sleep(BEFORE);
    let begin = Instant::now();
    (case.happen)(rig);
    let whole = Instant::now();
    thread::sleep(AFTER);
    let end = Instant::now();
    let samples = runtime.block_on(load.stop());
    Report::new(case, Times { start, begin, whole, end }, &samples)
}
