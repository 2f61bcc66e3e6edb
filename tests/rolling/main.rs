//! Builds whose scripts differ, on one Redis, as while a new version is deployed.

use std::ops::AddAssign;
use std::time::Duration;

use futures::future::{join, join3};

#[path = "../support/server.rs"]
#[allow(dead_code, unused_qualifications, reason = "other tests use more of it")]
mod server;

use server::RedisServer;
use tollgate::deadpool_redis;

/// The release before, or, as long as there is none, this code with another script.
#[path = "."]
mod before {
    use before as tollgate;
    #[path = "service.rs"]
    pub(crate) mod service;
}

/// This code.
#[path = "."]
mod now {
    #[path = "service.rs"]
    pub(crate) mod service;
    use tollgate;
}

/// This code with the next format of states.
#[path = "."]
mod format {
    use format as tollgate;
    #[path = "service.rs"]
    pub(crate) mod service;
}

pub(crate) const LIMIT: u64 = 500;

/// Units of each limit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept([u64; 7]);

impl AddAssign for Kept {
    fn add_assign(&mut self, other: Self) {
        for (kept, more) in self.0.iter_mut().zip(other.0) {
            *kept += more;
        }
    }
}

const FULL: Kept = Kept([LIMIT; 7]);

/// A deployment and a rollback, while all requests go on, and the server forgets its scripts.
async fn deploy(functions: bool) {
    let server = RedisServer::start();
    let url = server.url();
    let old = before::service::connect(&url, functions).await;
    let mut kept = before::service::load(&old, true).await;
    assert_ne!(kept, FULL, "nothing is left for the others");
    assert!(!before::service::strike(&old).await);

    let new = now::service::connect(&url, functions).await;
    let forget = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let _: () = server.ask(&["SCRIPT", "FLUSH"]);
    };
    let (first, second, ()) = join3(before::service::load(&old, true), now::service::load(&new, true), forget).await;
    kept += first;
    kept += second;
    assert!(!now::service::strike(&new).await);

    kept += now::service::load(&new, false).await;
    assert_eq!(kept, FULL);
    assert_eq!(before::service::load(&old, false).await, Kept::default(), "it has read what the new build wrote");

    let _: () = server.ask(&["SCRIPT", "FLUSH"]);
    assert!(before::service::strike(&old).await);
    assert!(!now::service::strike(&new).await);
    assert_eq!(programs(&server), 2);
    assert_eq!(server.keys().len(), 13);
}

/// The scripts or libraries that the server knows.
fn programs(server: &RedisServer) -> usize {
    let libraries: Vec<Vec<deadpool_redis::redis::Value>> = server.ask(&["FUNCTION", "LIST"]);
    let memory: String = server.ask(&["INFO", "memory"]);
    let scripts = memory.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
    libraries.len() + scripts.and_then(|count| count.trim().parse::<usize>().ok()).expect("the server counts them")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_whose_scripts_differ_hold_each_limit_together() {
    deploy(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_whose_libraries_of_functions_differ_hold_each_limit_together() {
    deploy(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_with_another_format_of_states_reads_none_of_the_others_and_holds_each_limit_itself() {
    let server = RedisServer::start();
    let url = server.url();
    let stores = join(now::service::connect(&url, false), format::service::connect(&url, false)).await;
    let (mut kept, mut apart) = join(now::service::load(&stores.0, true), format::service::load(&stores.1, true)).await;
    let more = join(now::service::load(&stores.0, true), format::service::load(&stores.1, true)).await;
    kept += more.0;
    apart += more.1;
    kept += now::service::load(&stores.0, false).await;
    apart += format::service::load(&stores.1, false).await;
    assert_eq!((kept, apart), (FULL, FULL));
    assert_eq!(server.keys().len(), 24);
}
