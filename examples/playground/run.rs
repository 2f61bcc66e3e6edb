//! Runs: a layer for each algorithm, its clients, and the stream of what they see.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tollgate::store::Store;
use tollgate::{Decision, Error, LiveLayer, RateLimitLayer, Source};
use tollgate_config::Config;
use tower::ServiceExt;

use crate::clients::{Client, Event, millis_since};
use crate::setup::{Setup, Texts, whole};

const MAX_RUNS: usize = 4;
/// How many runs are kept, for their counts.
const KEPT: usize = 16;
const MAX_BODY: usize = 4_096;
/// The time that clients have to begin together.
const HEAD_START: u64 = 200;
const LEFT_EVERY: Duration = Duration::from_millis(100);

type Failure = (StatusCode, Json<serde_json::Value>);
type BuildLayer = Box<dyn Fn(&Config) -> Result<RateLimitLayer, Error> + Send + Sync>;

/// The state of the server.
pub(crate) struct Playground {
    build: BuildLayer,
    store: &'static str,
    address: SocketAddr,
    running: Arc<Semaphore>,
    /// Names of runs are unique among the processes on one Redis.
    process: u128,
    next: AtomicU64,
    runs: Mutex<VecDeque<Arc<Run>>>,
}

struct Run {
    name: String,
    start: Instant,
    lanes: Vec<LaneRun>,
}

/// One algorithm: its layer around a handler, and what the layer decided.
struct LaneRun {
    service: Router,
    layer: LiveLayer,
    /// Allowed, denied, and how many of both a local store decided, as Redis was late.
    counts: Arc<[AtomicU64; 3]>,
}

impl Playground {
    pub(crate) fn new(store: impl Store + Clone, name: &'static str, address: SocketAddr) -> Self {
        Self {
            build: Box::new(move |config| config.layer(store.clone())),
            store: name,
            address,
            running: Arc::new(Semaphore::new(MAX_RUNS)),
            process: since_epoch().as_nanos(),
            next: AtomicU64::new(0),
            runs: Mutex::default(),
        }
    }

    pub(crate) fn app(self) -> Router {
        let page = include_str!("page.html").replace("{store}", self.store);
        let file = |kind, text: String| {
            let headers = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, "default-src 'self'; img-src data:")];
            get(async || (headers, text))
        };
        Router::new()
            .route("/", file("text/html; charset=utf-8", page))
            .route("/page.css", file("text/css", include_str!("page.css").to_owned()))
            .route("/page.js", file("text/javascript", include_str!("page.js").to_owned()))
            .route("/texts", post(texts))
            .route("/runs", post(start))
            .route("/runs/{run}", get(counts))
            .route("/runs/{run}/{lane}", get(limited))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(Arc::new(self))
    }

    fn add(&self, setup: &Setup, texts: &[Texts]) -> Result<Arc<Run>, Error> {
        let name = format!("{:x}-{}", self.process, self.next.fetch_add(1, Ordering::Relaxed));
        let start = Instant::now() + Duration::from_millis(HEAD_START);
        let work = Duration::from_millis(whole(setup.work));
        let lane = |texts: &Texts| {
            let counts = Arc::<[AtomicU64; 3]>::default();
            let decided = Arc::clone(&counts);
            let layer = (self.build)(&texts.config)?.on_decision(move |decision| {
                decided[usize::from(!decision.is_allowed())].fetch_add(1, Ordering::Relaxed);
                decided[2].fetch_add(u64::from(decision.source() == Source::Fallback), Ordering::Relaxed);
            });
            let layer = layer.live();
            let handler = async move || {
                let began = millis_since(start);
                tokio::time::sleep(work).await;
                began.to_string()
            };
            Ok(LaneRun { service: Router::new().fallback(handler).layer(layer.clone()), layer, counts })
        };
        let lanes = texts.iter().map(lane).collect::<Result<_, Error>>()?;
        let run = Arc::new(Run { name, start, lanes });
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push_back(Arc::clone(&run));
        // A run that is under way is kept by its stream.
        if runs.len() > KEPT
            && let Some(ended) = runs.iter().position(|run| Arc::strong_count(run) == 1)
        {
            runs.remove(ended);
        }
        drop(runs);
        Ok(run)
    }

    fn find(&self, name: &str) -> Option<Arc<Run>> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.iter().find(|run| run.name == name).cloned()
    }
}

impl Run {
    /// The value of the header `x-api-key`: no two runs or algorithms share a counter.
    fn key(&self, lane: usize) -> String {
        format!("{}-{lane}", self.name)
    }
}

fn failure(status: StatusCode, error: &str) -> Failure {
    (status, Json(json!({ "error": error })))
}

fn invalid(error: impl AsRef<str>) -> Failure {
    failure(StatusCode::UNPROCESSABLE_ENTITY, error.as_ref())
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Answers with the policies of a setup, as TOML and as Rust.
async fn texts(setup: Result<Json<Setup>, JsonRejection>) -> Result<Json<Vec<Texts>>, Failure> {
    let Json(setup) = setup.map_err(|error| invalid(error.body_text()))?;
    setup.texts().map(Json).map_err(invalid)
}

/// Starts a run, and answers with a line of JSON for each event. The run ends early if the connection does.
async fn start(
    State(playground): State<Arc<Playground>>,
    setup: Result<Json<Setup>, JsonRejection>,
) -> Result<Response, Failure> {
    let Json(setup) = setup.map_err(|error| invalid(error.body_text()))?;
    let texts = setup.texts().map_err(invalid)?;
    let now = u64::try_from(since_epoch().as_millis()).unwrap_or_default() + HEAD_START;
    let arrivals = setup.arrivals(now).map_err(invalid)?;
    let permit = Arc::clone(&playground.running).try_acquire_owned();
    let permit = permit.map_err(|_| {
        failure(StatusCode::SERVICE_UNAVAILABLE, &format!("{MAX_RUNS} runs are under way: wait for one to end"))
    })?;
    let run = playground.add(&setup, &texts).map_err(|error| invalid(error.to_string()))?;
    // Its length is bounded, as that of the arrivals is.
    let (events, receiver) = mpsc::unbounded_channel();
    let first = json!({ "is": "start", "run": run.name, "now": now, "lanes": texts, "planned": arrivals.len() });
    let _ = events.send(first.to_string());
    let (clients, obeying) = (whole(setup.clients), whole(setup.obeying));
    let end = run.start + Duration::from_secs(whole(setup.seconds));
    let mut tasks = JoinSet::new();
    for lane in 0..run.lanes.len() {
        tasks.spawn(watch(Arc::clone(&run), lane, events.downgrade()));
        for client in 0..clients {
            let mine = arrivals.iter().zip(0..).filter(|(_, n)| n % clients == client);
            let client = Client {
                server: playground.address,
                path: format!("/runs/{}/{lane}", run.name),
                key: run.key(lane),
                lane,
                // Spread evenly among the clients.
                obeys: client * obeying % clients < obeying,
                start: run.start,
                end,
                arrivals: mine.map(|(at, _)| *at).collect(),
            };
            let events = events.clone();
            tasks.spawn(client.send_all(move |event| report(&events, &event)));
        }
    }
    // A run does not end before its time.
    tasks.spawn(async move {
        tokio::time::sleep_until(end).await;
        drop(events);
    });
    let lines = stream::unfold(Some((receiver, tasks, run, permit)), async |state| {
        let mut state = state?;
        match state.0.recv().await {
            Some(line) => Some((Ok::<_, Infallible>(line + "\n"), Some(state))),
            None => Some((Ok("{\"is\":\"end\"}\n".to_owned()), None)),
        }
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

fn report(events: &mpsc::UnboundedSender<String>, event: &Event) {
    // The page may be gone.
    let _ = events.send(serde_json::to_string(event).unwrap_or_default());
}

/// Reports the units that are left, until the last client ends.
async fn watch(run: Arc<Run>, lane: usize, events: mpsc::WeakUnboundedSender<String>) {
    let layer = &run.lanes[lane].layer;
    let Some(Ok(key)) = layer.find_policy("api").map(|policy| policy.key_of(run.key(lane))) else { return };
    let mut ticks = tokio::time::interval_at(run.start, LEFT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let decision = layer.limiter().peek(&key).await;
        let Some(events) = events.upgrade() else { return };
        if let Some(outcome) = decision.iter().flat_map(Decision::outcomes).next() {
            report(&events, &Event::Left { lane, at: millis_since(run.start), units: outcome.remaining() });
        }
    }
}

/// Answers with what the layers of a run decided.
async fn counts(
    State(playground): State<Arc<Playground>>,
    Path(name): Path<String>,
) -> Result<Json<Vec<[u64; 3]>>, StatusCode> {
    let run = playground.find(&name).ok_or(StatusCode::NOT_FOUND)?;
    Ok(Json(run.lanes.iter().map(|lane| lane.counts.each_ref().map(|count| count.load(Ordering::Relaxed))).collect()))
}

/// Passes a request to the layer of its algorithm.
async fn limited(
    State(playground): State<Arc<Playground>>,
    Path((name, lane)): Path<(String, usize)>,
    request: Request,
) -> Result<Response, StatusCode> {
    let run = playground.find(&name).ok_or(StatusCode::NOT_FOUND)?;
    let service = run.lanes.get(lane).ok_or(StatusCode::NOT_FOUND)?.service.clone();
    service.oneshot(request).await.map_err(|never| match never {})
}
