//! The sides: where they count, and by which store.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate::store::{LeaseStore, Store};
use tollgate::{Decision, Key, Limiter, Quota, RedisStore, Rule};
use tollgate_ratio::RatioStore;

use super::split::Split;
use super::{INSTANCES, REGIONS};

/// How long a decision may take. The far Redis needs more than the usual 100 ms.
const BUDGET: Duration = Duration::from_millis(500);
/// How often a process tries to connect.
const ATTEMPTS: usize = 5;
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) place: Place,
    store: Way,
}

/// Which servers a side counts on.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Nowhere,
    Near,
    /// Over a link.
    Far,
    /// One in each region, for its part of the limit.
    Region,
    Cluster,
}

#[derive(Clone, Copy)]
enum Way {
    None,
    Redis,
    Leases,
    /// The same rate over a minute, with the same burst.
    LeasesOfAMinute,
    Overdrawn {
        overdraft: u64,
    },
    Ratios,
    Split {
        parts: u32,
        tries: usize,
    },
}

impl Side {
    const fn new(name: &'static str, place: Place, store: Way) -> Self {
        Self { name, place, store }
    }

    /// Whether its processes are far from their server.
    pub(super) fn has_link(self) -> bool {
        self.place == Place::Far
    }
}

/// All of them, in the order of the table.
pub(super) const SIDES: [Side; 16] = [
    Side::new("no limit", Place::Nowhere, Way::None),
    Side::new("near Redis", Place::Near, Way::Redis),
    Side::new("a Redis a region", Place::Region, Way::Redis),
    Side::new("far Redis", Place::Far, Way::Redis),
    Side::new("far, `LeaseStore`", Place::Far, Way::Leases),
    Side::new("far, `LeaseStore`, windows of 60 s", Place::Far, Way::LeasesOfAMinute),
    Side::new("far, `LeaseStore`, overdraft 20", Place::Far, Way::Overdrawn { overdraft: 20 }),
    Side::new("far, `LeaseStore`, overdraft 100", Place::Far, Way::Overdrawn { overdraft: 100 }),
    Side::new("far, `RatioStore`", Place::Far, Way::Ratios),
    Side::new("Cluster", Place::Cluster, Way::Redis),
    Side::new("Cluster, split in 2", Place::Cluster, Way::Split { parts: 2, tries: 1 }),
    Side::new("Cluster, split in 4", Place::Cluster, Way::Split { parts: 4, tries: 1 }),
    Side::new("Cluster, split in 8", Place::Cluster, Way::Split { parts: 8, tries: 1 }),
    Side::new("Cluster, split in 8, two tries", Place::Cluster, Way::Split { parts: 8, tries: 2 }),
    Side::new("Cluster, `LeaseStore`", Place::Cluster, Way::Leases),
    Side::new("Cluster, `RatioStore`", Place::Cluster, Way::Ratios),
];

/// What a process of a side asks about each request.
pub(super) enum Gate {
    Open,
    One(Box<Limiter>, Key),
    Split(Split),
}

impl Gate {
    /// Returns that of a process in a region, with a limit a second of all processes.
    pub(super) async fn of(side: Side, region: u32, urls: &str, limit: u64) -> Self {
        let (quota, instances) = match side.place {
            Place::Region => (quota(side.store, limit).share(region, count(REGIONS)), count(INSTANCES)),
            _ => (quota(side.store, limit), count(REGIONS * INSTANCES)),
        };
        let one = |limiter| Self::One(Box::new(limiter), Key::new("all", "requests"));
        if let Way::None = side.store {
            return Self::Open;
        }
        let redis = redis(urls).await;
        match side.store {
            Way::None => Self::Open,
            Way::Redis => one(limiter(redis, quota, instances)),
            Way::Leases | Way::LeasesOfAMinute => one(limiter(LeaseStore::new(redis), quota, instances)),
            Way::Overdrawn { overdraft } => {
                let store = LeaseStore::builder(redis).overdraft(overdraft).build();
                one(limiter(store, quota, instances))
            }
            Way::Ratios => {
                let store = RatioStore::builder(redis).instances(instances).build();
                one(limiter(store, quota, instances))
            }
            Way::Split { parts, tries } => {
                let part = |part| limiter(redis.clone(), quota.share(part, count(parts)), instances);
                Self::Split(Split::new((0..parts).map(part).collect(), tries))
            }
        }
    }

    /// Returns nothing if there is no limit.
    pub(super) async fn check(&self) -> Option<Decision> {
        match self {
            Self::Open => None,
            Self::One(limiter, key) => Some(limiter.check(key).await.expect("the key is valid")),
            Self::Split(split) => Some(split.check().await),
        }
    }
}

fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("there is at least one")
}

fn quota(store: Way, limit: u64) -> Quota {
    match store {
        Way::LeasesOfAMinute => Quota::token_bucket(60 * limit, MINUTE).burst(limit),
        _ => Quota::per_second(limit),
    }
}

fn limiter(store: impl Store, quota: Quota, instances: NonZeroU32) -> Limiter {
    Limiter::new(store, [Rule::new("regions", quota)]).instances(instances).timeout(BUDGET)
}

/// Tries for a while, as a noisy machine is no reason to end.
async fn redis(urls: &str) -> RedisStore {
    let urls: Vec<&str> = urls.split(',').collect();
    let mut attempts = 0;
    loop {
        let builder = RedisStore::builder().timeout(BUDGET);
        let connected = match urls[..] {
            [url] => builder.connect(url).await,
            _ => builder.connect_cluster(&urls).await,
        };
        attempts += 1;
        match connected {
            Ok(store) => return store,
            Err(error) => assert!(attempts < ATTEMPTS, "the servers do not answer: {error:?}"),
        }
    }
}
