//! Callers, and the handlers that serve them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::{Decision, Outcome, RateLimitHandle, Source};
use tower::Service;

use super::World;
use super::client::{Answer, Client, NAMES, user_name};
use super::plan::{Ask, Patience};

/// What became of a request.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) place: usize,
    pub(super) cost: u64,
    pub(super) user: u8,
    pub(super) process: usize,
    pub(super) patience: Patience,
    pub(super) began: Instant,
    /// When its handler was called, or it was answered without.
    pub(super) decided: Option<Instant>,
    pub(super) decision: Option<Decision>,
    pub(super) is_admitted: bool,
    pub(super) status: Option<u16>,
    pub(super) ended: Option<Instant>,
    /// Its caller left.
    pub(super) has_left: bool,
    pub(super) charged: u64,
    pub(super) refunded: u64,
    /// When it last charged or refunded.
    pub(super) changed: Option<Instant>,
    /// No breaker was open when it began.
    pub(super) is_asked: bool,
    /// It waits on a runtime of its own.
    pub(super) is_elsewhere: bool,
}

impl Record {
    /// What a policy decided, and who did.
    pub(super) fn outcome(&self, policy: usize) -> Option<(&Outcome, Source)> {
        let decision = self.decision.as_ref()?;
        let outcome = decision.outcomes().iter().find(|outcome| outcome.policy() == NAMES[policy])?;
        Some((outcome, decision.source()))
    }

    /// Who decided it.
    pub(super) fn source(&self) -> Option<Source> {
        self.decision.as_ref().map(Decision::source)
    }

    /// What a trace calls it.
    pub(super) fn name(&self) -> String {
        format!("request {} (process {}, cost {})", self.place, self.process, self.cost)
    }
}

/// What a request carries for its handler.
#[derive(Clone)]
struct Job {
    world: World,
    ask: Arc<Ask>,
    /// Of its record.
    place: usize,
}

impl World {
    /// Sends a request, and sees what becomes of it.
    pub(super) async fn ask(self, client: Client, ask: Ask, is_elsewhere: bool) {
        let place = self.begin(&ask, is_elsewhere, client.is_asking());
        let ask = Arc::new(ask);
        let job = Job { world: self.clone(), ask: Arc::clone(&ask), place };
        let mut service = client.service.clone();
        let mut called = Box::pin(async move { service.call(request(job)).await });
        let answered = match ask.patience {
            Patience::Waits => Some(called.await),
            Patience::Leaves(millis) => timeout(Duration::from_millis(millis), &mut called).await.ok(),
            Patience::PollsOnce(millis) | Patience::Idles(millis) => {
                match poll_fn(|cx| Poll::Ready(called.as_mut().poll(cx))).await {
                    Poll::Ready(answered) => Some(answered),
                    Poll::Pending => {
                        let from = Instant::now();
                        sleep(Duration::from_millis(millis)).await;
                        self.lock().idle.push((from, Instant::now()));
                        if matches!(ask.patience, Patience::Idles(_)) { Some(called.await) } else { None }
                    }
                }
            }
        };
        match answered {
            Some(Ok(answer)) => {
                self.is_answered(place, &answer);
                self.lock().checks_answer(place, answer);
                self.lock().checks_calm(place, client.is_asking());
                self.checks_cached(place).await;
            }
            Some(Err(never)) => match never {},
            None => self.has_left(place),
        }
    }

    fn begin(&self, ask: &Ask, is_elsewhere: bool, is_asked: bool) -> usize {
        let mut state = self.lock();
        state.checks_breakers(ask.process, is_asked);
        let place = state.records.len();
        state.records.push(Record {
            place,
            cost: ask.cost,
            user: ask.user,
            process: ask.process,
            patience: ask.patience,
            began: Instant::now(),
            decided: None,
            decision: None,
            is_admitted: false,
            status: None,
            ended: None,
            has_left: false,
            charged: 0,
            refunded: 0,
            changed: None,
            is_asked,
            is_elsewhere,
        });
        let name = state.records[place].name();
        state.trace.say(format_args!("{name} is sent by user {}", ask.user));
        place
    }

    fn is_answered(&self, place: usize, answer: &Answer) {
        let mut state = self.lock();
        let (record, now) = (&mut state.records[place], Instant::now());
        (record.status, record.ended) = (Some(answer.status().as_u16()), Some(now));
        record.decided.get_or_insert(now);
        if record.decision.is_none() {
            record.decision = answer.extensions().get::<Decision>().cloned();
        }
        let (name, status, source) = (record.name(), answer.status().as_u16(), record.source());
        state.trace.say(format_args!("{name} is answered with {status}, decided by {source:?}"));
        state.trace.meet(match source {
            Some(Source::Store) => "decided by the store",
            Some(Source::Lease) => "decided by a lease",
            Some(Source::Ratio) => "decided by a ratio",
            Some(Source::Fallback) => "decided by a share",
            Some(Source::FailOpen) => "decided by nobody",
            _ => "not decided",
        });
        state.checks_wait(place);
    }

    fn has_left(&self, place: usize) {
        let mut state = self.lock();
        state.trace.meet("a caller that leaves");
        let record = &mut state.records[place];
        (record.has_left, record.ended) = (true, Some(Instant::now()));
        let name = record.name();
        state.trace.say(format_args!("the caller of {name} has left"));
    }

    /// Blocks the thread, as far as anybody can tell.
    fn block(&self, millis: u64) {
        let from = Instant::now();
        let mut blocking = Box::pin(advance(Duration::from_millis(millis)));
        let _ = Pin::new(&mut blocking).poll(&mut Context::from_waker(Waker::noop()));
        let mut state = self.lock();
        state.trace.meet("a handler that blocks");
        state.blocked.push((from, Instant::now()));
        state.may_fail();
    }
}

fn request(job: Job) -> Request<String> {
    Request::builder()
        .header("x-user", user_name(job.ask.user))
        .header("x-cost", job.ask.cost)
        .extension(job)
        .body(String::new())
        .expect("the request is valid")
}

/// Serves a request as its plan says.
pub(super) async fn handle(request: Request<String>) -> Response<String> {
    let job = request.extensions().get::<Job>().cloned().expect("every request has one");
    let limits = request.extensions().get::<RateLimitHandle>().cloned().expect("the layer adds it");
    job.begins(limits.decision());
    let does = &job.ask.handler;
    if does.charges > 0 {
        limits.charge(does.charges);
        job.changes(does.charges, 0);
    }
    if does.flushes {
        // What cannot be charged at once is owed by nobody.
        let _ = limits.flush().await;
    }
    sleep(Duration::from_millis(does.sleeps_ms)).await;
    if does.blocks_ms > 0 {
        job.world.block(does.blocks_ms);
    }
    if does.refunds > 0 {
        limits.refund(does.refunds);
        job.changes(0, does.refunds);
    }
    let status = if does.fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Response::builder().status(status).body(String::new()).expect("the response is valid")
}

impl Job {
    fn begins(&self, decision: Decision) {
        let mut state = self.world.lock();
        let record = &mut state.records[self.place];
        let (name, source) = (record.name(), decision.source());
        (record.is_admitted, record.decided, record.decision) = (true, Some(Instant::now()), Some(decision));
        state.trace.say(format_args!("{name} is served, admitted by {source:?}"));
        state.checks_admission(self.place);
    }

    fn changes(&self, charged: u64, refunded: u64) {
        let mut state = self.world.lock();
        let record = &mut state.records[self.place];
        record.charged += charged;
        record.refunded += refunded;
        record.changed = Some(Instant::now());
        let name = record.name();
        state.trace.say(format_args!("{name} charges {charged}, refunds {refunded}"));
    }
}
