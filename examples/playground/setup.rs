//! What the page chose: the policy of each algorithm, as TOML and as Rust, and when requests are sent.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_config::Config;

const MAX_LANES: usize = 8;
const MAX_REQUESTS: u64 = 2_000;
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lane {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    TokenBucket,
    Gcra,
    LeakyBucket,
    LeakyQueue,
    Concurrency,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Pattern {
    Steady,
    Bursts,
    Ramp,
    Edge,
}

/// Numbers are what JavaScript has: `texts` judges those of the traffic, and `tollgate_config` those of the policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setup {
    lanes: Vec<Lane>,
    limit: f64,
    /// In milliseconds.
    window: f64,
    burst: f64,
    queue: f64,
    cost: f64,
    pattern: Pattern,
    /// Requests per second.
    rate: f64,
    pub(crate) seconds: f64,
    pub(crate) clients: f64,
    /// How many of the clients obey `Retry-After`.
    pub(crate) obeying: f64,
    /// How long the handler takes, in milliseconds.
    pub(crate) work: f64,
}

/// The policy of one algorithm.
#[derive(Debug, Serialize)]
pub(crate) struct Texts {
    pub(crate) lane: Lane,
    capacity: u64,
    toml: String,
    rust: String,
    #[serde(skip)]
    pub(crate) config: Config,
}

impl Setup {
    /// Returns the policy of each algorithm.
    ///
    /// # Errors
    ///
    /// The sentence says which number is wrong, and what is allowed.
    pub(crate) fn texts(&self) -> Result<Vec<Texts>, String> {
        if !(1..=MAX_LANES).contains(&self.lanes.len()) {
            return Err(format!("choose 1 to {MAX_LANES} algorithms"));
        }
        let bounds = [
            ("rate", self.rate, 1.0, 200.0),
            ("seconds", self.seconds, 1.0, 60.0),
            ("clients", self.clients, 1.0, 16.0),
            ("obeying", self.obeying, 0.0, self.clients),
            ("work", self.work, 0.0, 2_000.0),
        ];
        for (name, value, min, max) in bounds {
            if !(min..=max).contains(&value) || value.fract() != 0.0 {
                return Err(format!("{name} {value} is not a whole number from {min} to {max}"));
            }
        }
        self.lanes.iter().map(|lane| self.policy(*lane)).collect()
    }

    fn policy(&self, lane: Lane) -> Result<Texts, String> {
        let Self { limit, window, burst, queue, cost, .. } = self;
        let (algorithm, option) = match lane {
            Lane::FixedWindow => ("fixed_window", None),
            Lane::SlidingWindow => ("sliding_window", None),
            Lane::SlidingLog => ("sliding_log", None),
            Lane::TokenBucket => ("token_bucket", Some(("burst", burst))),
            Lane::Gcra => ("gcra", Some(("burst", burst))),
            Lane::LeakyBucket => ("leaky_bucket", None),
            Lane::LeakyQueue => ("leaky_bucket", Some(("queue", queue))),
            Lane::Concurrency => ("concurrency", None),
        };
        let (of_time, time) = match lane {
            Lane::Concurrency => (String::new(), String::new()),
            _ => (format!("window = \"{window}ms\"\n"), format!(", Duration::from_millis({window})")),
        };
        let extra = option.map(|(name, value)| format!("{name} = {value}\n")).unwrap_or_default();
        let call = option.map(|(name, value)| format!(".{name}({value})")).unwrap_or_default();
        let toml = format!(
            "[[policy]]\nname = \"api\"\nkey = \"header:x-api-key\"\nalgorithm = \"{algorithm}\"\nlimit = {limit}\n\
             {of_time}{extra}cost = {cost}\n"
        );
        let import = if time.is_empty() { "" } else { "use std::time::Duration;\n" };
        let rust = format!(
            "{import}use tollgate::{{MemoryStore, Policy, Quota, RateLimitLayer, key}};\n\n\
             let quota = Quota::{algorithm}({limit}{time}){call};\n\
             let policy = Policy::new(\"api\", quota).key(key::header(\"x-api-key\")).cost({cost});\n\
             let layer = RateLimitLayer::new(MemoryStore::new(), policy);\n"
        );
        let config = Config::from_toml(&toml).map_err(|error| format!("{algorithm}: {error}"))?;
        let quota = config.policies()[0].quota();
        let wait = quota.window().as_secs_f64() / limit * queue;
        if matches!(lane, Lane::LeakyQueue) && wait > MAX_QUEUE_WAIT.as_secs_f64() {
            return Err(format!("queue {queue} is too long: it would make requests wait for {wait:.0} s, at most 10"));
        }
        Ok(Texts { lane, capacity: quota.capacity(), toml, rust, config })
    }

    /// Returns when requests are sent in a run that starts at `now`, a time since the Unix epoch. All times are in
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// There are too many requests, or no edge of a window in the run.
    pub(crate) fn arrivals(&self, now: u64) -> Result<Vec<u64>, String> {
        let (seconds, rate) = (whole(self.seconds), whole(self.rate));
        let end = seconds * 1_000;
        // From, to, and the number of requests between them.
        let parts: Vec<(u64, u64, u64)> = match self.pattern {
            Pattern::Steady => vec![(0, end, rate * seconds)],
            Pattern::Bursts => (0..seconds).step_by(2).map(|at| (at * 1_000, at * 1_000, 2 * rate)).collect(),
            Pattern::Ramp => {
                let grown = |second| rate * (2 * second + 1) / seconds;
                (0..seconds).map(|second| (second * 1_000, (second + 1) * 1_000, grown(second))).collect()
            }
            Pattern::Edge => {
                let window = whole(self.window).max(1);
                let near = |part| window.saturating_mul(part) / 100;
                let units = whole(self.limit) / whole(self.cost).max(1);
                let first = window - now % window;
                let edges = (first..end).step_by(usize::try_from(window.saturating_mul(2)).unwrap_or(usize::MAX));
                edges
                    .filter(|edge| *edge >= near(30) && edge.saturating_add(near(30)) <= end)
                    .flat_map(|edge| {
                        [(edge - near(30), edge - near(2), units), (edge + near(2), edge + near(30), units)]
                    })
                    .collect()
            }
        };
        let requests = parts.iter().fold(0_u64, |sum, (.., requests)| sum.saturating_add(*requests));
        match requests {
            0 => Err("there is no edge of a window in this run: use a shorter window or more seconds".to_owned()),
            1..=MAX_REQUESTS => Ok(parts
                .into_iter()
                .flat_map(|(from, to, requests)| (0..requests).map(move |n| from + (to - from) * n / requests))
                .collect()),
            _ => Err(format!("{requests} requests for each algorithm are too many: at most {MAX_REQUESTS}")),
        }
    }
}

/// Returns a number that is known to be a whole one.
pub(crate) fn whole(number: f64) -> u64 {
    number.to_string().parse().unwrap_or(u64::MAX)
}
