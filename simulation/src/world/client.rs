//! Processes: a layer over a store, as a user would build them.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tollgate::key::KeyExtractor as _;
use tollgate::key::Lookup;
use tollgate::policy::{Algorithm, Calendar, Count};
use tollgate::store::{BreakerState, Credentials, LeaseStore};
use tollgate::{Key, Limiter, OnFailure, Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_ratio::RatioStore;
use tower::util::BoxCloneSyncService;
use tower::{Layer, service_fn};

use super::World;
use super::caller::handle;
use super::calm::ALLOWED;
use super::net::FIRST_PORT;
use super::plan::{Around, By, PolicyPlan, Process, Rule, Setting};
use super::reported::Watched;

/// A response without a body.
pub(super) type Answer = Response<tollgate::body::ResponseBody<String>>;

/// A process: what its requests are sent to.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) layer: RateLimitLayer,
    pub(super) redis: RedisStore,
    pub(super) ratios: Option<RatioStore>,
    pub(super) limiter: Limiter,
    pub(super) service: BoxCloneSyncService<Request<String>, Answer, Infallible>,
}

impl Client {
    /// The process of a number, which connects when it is asked.
    pub(super) fn new(world: &World, setting: &Setting, number: usize) -> Self {
        let process = &setting.processes[number];
        let redis = redis(world, setting, number);
        let ratios = ratios(world, &redis, process, number);
        let layer = match process.around {
            Around::Plain => RateLimitLayer::composite(redis.clone()),
            Around::Lease => RateLimitLayer::composite(LeaseStore::new(redis.clone())),
            Around::Overdraft => RateLimitLayer::composite(LeaseStore::builder(redis.clone()).overdraft(8).build()),
            Around::Ratio(_) => RateLimitLayer::composite(ratios.clone().expect("it was made for this")),
        };
        let rule = match process.rule {
            Rule::Fallback => OnFailure::Fallback,
            Rule::Allow => OnFailure::Allow,
            Rule::Deny => OnFailure::Deny,
        };
        let layer = layer.expose_decisions().on_failure(rule).allow_for(ALLOWED).policies(policies(setting, 100));
        let layer = process.layer_budget_ms.map(Duration::from_millis).into_iter().fold(layer, RateLimitLayer::timeout);
        let service = BoxCloneSyncService::new(layer.layer(service_fn(served)));
        let limiter = Limiter::new(redis.clone(), policies(setting, 100).iter().map(|policy| policy.rule().clone()));
        Self { layer, redis, ratios, limiter, service }
    }
}

impl Client {
    /// Returns a limiter by all policies of the layer, whatever keys they have.
    pub(super) fn layer_limiter(&self) -> Limiter {
        let by = |count| self.layer.clone().live().limiter().only(NAMES.into_iter().take(count)).ok();
        (1..=NAMES.len()).rev().find_map(by).expect("there is a policy")
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

/// The ratios of a process, which reports to its Redis store as soon as it begins.
fn ratios(world: &World, redis: &RedisStore, process: &Process, number: usize) -> Option<RatioStore> {
    let Around::Ratio(plan) = process.around else { return None };
    let settings = RatioStore::builder(Watched::new(world.clone(), redis.clone(), number))
        .tick(Duration::from_millis(plan.tick_ms))
        .ttl(Duration::from_millis(plan.life_ms))
        .shards(plan.shards)
        .seed(world.lock().rng.u64(..));
    Some(settings.build())
}

fn redis(world: &World, setting: &Setting, number: usize) -> RedisStore {
    let (dialed, asked, process) = (world.clone(), world.clone(), &setting.processes[number]);
    let mut settings = RedisStore::builder()
        .timeout(Duration::from_millis(process.budget_ms))
        .connect_timeout(Duration::from_millis(200))
        .pool_size(process.pool_size)
        .batch_size(process.batch_size)
        .dial(move |_, port| dialed.clone().dial(number, port))
        .credentials(move || {
            let password = asked.lock().password.1;
            async move { Ok::<_, io::Error>(Credentials::new("default", password.to_string())) }
        });
    if setting.functions {
        settings = settings.functions();
    }
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
    setting.policies.iter().enumerate().map(|(place, plan)| policy(place, plan, percent)).collect()
}

/// The names of policies, in their order.
const NAMES: [&str; 3] = ["first", "second", "third"];

fn policy(place: usize, plan: &PolicyPlan, percent: u64) -> Policy {
    let scaled = |units: u64| (units * percent / 100).max(1);
    let window = Duration::from_millis(plan.window_ms);
    let algorithm = ALGORITHMS[usize::from(plan.algorithm) - 1];
    let quota = if plan.is_hourly {
        Quota::calendar_window(scaled(plan.limit), hours())
    } else {
        Quota::try_new(algorithm, scaled(plan.limit), window).expect("the quota is valid")
    };
    let quota = match algorithm {
        Algorithm::TokenBucket => quota.burst(scaled(plan.burst)),
        Algorithm::LeakyBucket => quota.queue(scaled(plan.burst)),
        _ => quota,
    };
    let policy = Policy::new(NAMES[place], quota).cost_by(cost);
    let policy = match plan.by {
        By::User => policy.key(key::header("x-user")),
        By::Everybody => policy.key(key::global()),
        By::Account => policy.key(key::lookup(key::header("x-account"), account)),
    };
    let policy = if plan.metered { policy.metered() } else { policy };
    let policy = if plan.successes { policy.count(Count::successes()) } else { policy };
    let policy = match plan.ban {
        Some(ban) => policy.ban(ban.ban()),
        None => policy,
    };
    let policy = if plan.shadow { policy.shadow() } else { policy };
    if plan.refund_dropped { policy.refund_dropped() } else { policy }
}

/// Hours of a zone in which they do not begin with those of UTC.
fn hours() -> Calendar {
    static HOURS: OnceLock<Calendar> = OnceLock::new();
    *HOURS.get_or_init(|| Calendar::hourly("Asia/Kathmandu").expect("the system has time zones"))
}

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::FixedWindow,
    Algorithm::TokenBucket,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::LeakyBucket,
    Algorithm::Concurrency,
];

/// What a user is called in the names of counters.
pub(super) fn key_of_user(user: u8) -> Option<Key> {
    key::header("x-user").key_of(user_name(user).as_bytes())
}

/// What a user says it is. The counters of the first two share a slot of a Cluster.
pub(super) fn user_name(user: u8) -> &'static str {
    ["user-0", "user-20185", "user-2"][usize::from(user)]
}

fn cost(parts: &Parts) -> u64 {
    parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or(1)
}

/// Looks an account up: how that goes stands behind the user.
async fn account(asked: Lookup) -> Result<Key, io::Error> {
    let text = asked.text().unwrap_or_default().to_owned();
    let (user, course) = text.split_once(' ').unwrap_or((&text, "0"));
    match course {
        "fails" => Err(io::Error::other("nobody knows")),
        "hangs" => std::future::pending().await,
        millis => {
            tokio::time::sleep(Duration::from_millis(millis.parse().unwrap_or(0))).await;
            Ok(Key::new("account", user))
        }
    }
}
