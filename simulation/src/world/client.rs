//! Processes: a layer over a store, as a user would build them.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tollgate::key::KeyExtractor as _;
use tollgate::policy::{Algorithm, Calendar, Count};
use tollgate::store::{BreakerState, Credentials, LeaseStore};
use tollgate::{Ban, Key, Limiter, OnFailure, Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_ratio::RatioStore;
use tower::util::BoxCloneSyncService;
use tower::{Layer, service_fn};

use super::World;
use super::caller::handle;
use super::net::FIRST_PORT;
use super::plan::{Around, BanPlan, PolicyPlan, Process, Rule, Setting};

/// For so long layers admit all without their store.
pub(super) const ALLOWED: Duration = Duration::from_secs(1);

/// So many ticks the last ratios hold.
pub(super) const LIFE: u64 = 3;

/// The names of policies, in their order.
pub(super) const NAMES: [&str; 3] = ["first", "second", "third"];

/// A response.
pub(super) type Answer = Response<tollgate::body::ResponseBody<String>>;

/// A process: what its requests are sent to.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) layer: RateLimitLayer,
    pub(super) redis: RedisStore,
    pub(super) ratios: Option<RatioStore>,
    /// By all policies of the layer, over its Redis store alone.
    pub(super) limiter: Limiter,
    pub(super) service: BoxCloneSyncService<Request<String>, Answer, Infallible>,
}

impl Client {
    /// A process, which connects when it is asked.
    pub(super) fn new(world: &World, setting: &Setting, process: &Process) -> Self {
        let redis = redis(world, setting, process);
        let mut ratios = None;
        let layer = match process.around {
            Around::Plain => RateLimitLayer::composite(redis.clone()),
            Around::Lease => RateLimitLayer::composite(LeaseStore::new(redis.clone())),
            Around::Overdraft => RateLimitLayer::composite(LeaseStore::builder(redis.clone()).overdraft(8).build()),
            Around::Ratio(tick_ms) => {
                let seed = world.lock().rng.u64(..);
                let store = RatioStore::builder(redis.clone()).seed(seed).tick(Duration::from_millis(tick_ms));
                let store = store.ttl(Duration::from_millis(LIFE * tick_ms)).build();
                RateLimitLayer::composite(ratios.insert(store).clone())
            }
        };
        let rule = match process.rule {
            Rule::Fallback => OnFailure::Fallback,
            Rule::Allow => OnFailure::Allow,
            Rule::Deny => OnFailure::Deny,
        };
        let instances = NonZeroU32::new(process.instances).unwrap_or(NonZeroU32::MIN);
        let layer = layer.expose_decisions().on_failure(rule).allow_for(ALLOWED).instances(instances);
        let layer = layer.policies(policies(setting, 100));
        let layer = process.layer_budget_ms.map(Duration::from_millis).into_iter().fold(layer, RateLimitLayer::timeout);
        let service = BoxCloneSyncService::new(layer.layer(service_fn(served)));
        let limiter = Limiter::new(redis.clone(), policies(setting, 100).iter().map(|policy| policy.rule().clone()));
        Self { layer, redis, ratios, limiter, service }
    }

    /// Whether no breaker is open.
    pub(super) fn is_asking(&self) -> bool {
        self.layer.clone().live().breaker_state() == BreakerState::Closed
            && self.redis.breakers().iter().all(|(_, state)| *state == BreakerState::Closed)
    }
}

type Serving = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

fn served(request: Request<String>) -> Serving {
    Box::pin(async move { Ok(handle(request).await) })
}

/// A limiter by the policies, of a store that caches nothing.
pub(super) fn auditor(world: &World, setting: &Setting) -> Limiter {
    let process = Process { deny_cache: false, budget_ms: 100, ..setting.processes[0].clone() };
    let rules = policies(setting, 100).into_iter().map(|policy| policy.rule().clone());
    Limiter::new(redis(world, setting, &process), rules.collect::<Vec<_>>())
}

fn redis(world: &World, setting: &Setting, process: &Process) -> RedisStore {
    let (dialed, asked) = (world.clone(), world.clone());
    let mut settings = RedisStore::builder()
        .timeout(Duration::from_millis(process.budget_ms))
        .connect_timeout(Duration::from_millis(200))
        .pool_size(process.pool_size)
        .batch_size(process.batch_size)
        .dial(move |_, port| dialed.clone().dial(port))
        .credentials(move || {
            let password = asked.lock().password.1;
            async move { Ok::<_, io::Error>(Credentials::new("default", password.to_string())) }
        });
    if !process.deny_cache {
        settings = settings.without_deny_cache();
    }
    let url = |node: usize| format!("redis://node:{}", usize::from(FIRST_PORT) + node);
    let store = pin!(async {
        match setting.nodes {
            1 => settings.lazy().connect(&url(0)).await,
            nodes => settings.lazy().connect_cluster((0..nodes).map(url)).await,
        }
    });
    let Poll::Ready(store) = store.poll(&mut Context::from_waker(Waker::noop())) else {
        unreachable!("a lazy store waits for nothing");
    };
    store.expect("the settings are valid")
}

/// The policies of a run, with so many percent of their limits.
pub(super) fn policies(setting: &Setting, percent: u64) -> Vec<Policy> {
    NAMES.iter().zip(&setting.policies).map(|(name, plan)| plan.policy(name, percent)).collect()
}

impl PolicyPlan {
    fn policy(&self, name: &str, percent: u64) -> Policy {
        let policy = Policy::new(name, self.quota(percent)).cost_by(cost);
        let policy = if self.by_user { policy.key(key::header("x-user")) } else { policy.key(key::global()) };
        let policy = if self.metered { policy.metered() } else { policy };
        let policy = if self.successes { policy.count(Count::successes()) } else { policy };
        let policy = self.ban.map(BanPlan::ban).into_iter().fold(policy, Policy::ban);
        let policy = if self.shadow { policy.shadow() } else { policy };
        if self.refund_dropped { policy.refund_dropped() } else { policy }
    }

    fn quota(&self, percent: u64) -> Quota {
        let scaled = |units: u64| (units * percent / 100).max(1);
        let (limit, window) = (scaled(self.limit), Duration::from_millis(self.window_ms));
        if self.is_hourly {
            return Quota::calendar_window(limit, hours());
        }
        let quota = Quota::try_new(self.algorithm, limit, window).expect("the quota is valid");
        match self.algorithm {
            Algorithm::TokenBucket => quota.burst(scaled(self.burst)),
            Algorithm::LeakyBucket => quota.queue(scaled(self.burst)),
            _ => quota,
        }
    }

    /// The key of a user, or of everybody.
    pub(super) fn key(&self, user: u8) -> Key {
        let of_user = || key::header("x-user").key_of(user_name(user).as_bytes());
        if self.by_user { of_user().expect("users have names") } else { Key::new("global", "") }
    }
}

impl BanPlan {
    fn ban(self) -> Ban {
        let [within, time, most] = [self.within_ms, self.time_ms, self.most_ms].map(Duration::from_millis);
        let ban = Ban::new(self.after, within, time).backoff(f64::from(self.growth) / 100.0, most).of_verified_keys();
        if self.extends { ban.extending() } else { ban }
    }
}

/// Hours of a zone in which they do not begin with those of UTC.
fn hours() -> Calendar {
    static HOURS: OnceLock<Calendar> = OnceLock::new();
    *HOURS.get_or_init(|| Calendar::hourly("Asia/Kathmandu").expect("the system has time zones"))
}

/// What a user says it is. The counters of the first two share a slot of a Cluster.
pub(super) fn user_name(user: u8) -> &'static str {
    ["user-0", "user-20185", "user-2"][usize::from(user)]
}

fn cost(parts: &Parts) -> u64 {
    parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or(1)
}
