//! Callers, and the handlers that serve them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::{Decision, RateLimitHandle};
use tower::Service;

use super::World;
use super::client::{Answer, Client, user_name};
use super::plan::{Ask, Lookup, Patience};
use super::record::Record;

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
        let ask = Arc::new(ask);
        let place = self.begin(&ask, is_elsewhere, client.is_asking());
        let job = Job { world: self.clone(), ask: Arc::clone(&ask), place };
        let mut service = client.service.clone();
        let mut called = Box::pin(async move { service.call(request(job)).await });
        let answered = match ask.patience {
            Patience::Waits => Some(called.await),
            Patience::Leaves(millis) => timeout(Duration::from_millis(millis), &mut called).await.ok(),
            Patience::PollsOnce(millis) | Patience::Idles(millis) => {
                self.lock().trace.meet("a caller that polls once");
                let polled = poll_fn(|cx| Poll::Ready(called.as_mut().poll(cx))).await;
                match polled {
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
                self.is_answered(place, &ask, &answer);
                self.checks_ratios(place, &client, &answer);
                self.lock().checks_problem(place, answer);
                self.lock().checks_calm(place, &ask, client.is_asking());
            }
            Some(Err(never)) => match never {},
            None => self.has_left(place),
        }
    }

    fn begin(&self, ask: &Ask, is_elsewhere: bool, is_asked: bool) -> usize {
        let mut state = self.lock();
        state.checks_breakers(ask, is_asked);
        let place = state.records.len();
        let is_held_up = !state.is_calm();
        state.records.push(Record {
            place,
            cost: ask.cost,
            user: ask.user,
            process: ask.process,
            began: Instant::now(),
            decided: None,
            decision: None,
            is_admitted: false,
            status: None,
            ended: None,
            is_handled: false,
            has_left: false,
            is_excused: false,
            is_held_up,
            charged: 0,
            refunded: 0,
            is_elsewhere,
            is_asked,
        });
        let name = state.records[place].name();
        state.trace.say(format_args!("{name} is asked by user {}", ask.user));
        place
    }

    fn is_answered(&self, place: usize, ask: &Ask, answer: &Answer) {
        let mut state = self.lock();
        let decision = answer.extensions().get::<Decision>().cloned();
        let source = decision.as_ref().map(Decision::source);
        let status = answer.status().as_u16();
        let name = state.records[place].name();
        state.trace.say(format_args!("{name} is answered with {status}, decided by {source:?}"));
        state.decisions += 1;
        let record = &mut state.records[place];
        record.status = Some(status);
        record.ended = Some(Instant::now());
        record.decision = record.decision.take().or(decision);
        let (began, until) = (record.began, record.decided.or(record.ended).unwrap_or(record.began));
        record.decided = Some(until);
        state.checks_wait(place, ask, began, until);
        state.checks_headers(place, answer);
        state.checks_at_once(place, ask);
    }

    fn has_left(&self, place: usize) {
        let mut state = self.lock();
        state.trace.meet("a caller that goes away");
        let name = state.records[place].name();
        state.trace.say(format_args!("the caller of {name} has left"));
        let record = &mut state.records[place];
        (record.has_left, record.ended) = (true, Some(Instant::now()));
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
    let course = match job.ask.lookup {
        Lookup::Found(millis) => millis.to_string(),
        Lookup::Fails => "fails".to_owned(),
        Lookup::Hangs => "hangs".to_owned(),
    };
    let user = user_name(job.ask.user);
    Request::builder()
        .header("x-user", user)
        .header("x-account", format!("{user} {course}"))
        .header("x-cost", job.ask.cost)
        .extension(job)
        .body(String::new())
        .expect("the request is valid")
}

/// Serves a request as its plan says.
pub(super) async fn handle(request: Request<String>) -> Response<String> {
    let job = request.extensions().get::<Job>().cloned().expect("every request has one");
    let limits = request.extensions().get::<RateLimitHandle>().cloned().expect("the layer adds it");
    job.begins(Some(limits.decision()));
    let does = job.ask.handler.clone();
    sleep(Duration::from_millis(does.sleeps_ms)).await;
    for units in does.charges {
        limits.charge(units);
        job.changes(units, 0);
    }
    if does.flushes {
        // What is charged at once may be lost, and is owed then by nobody.
        let _ = limits.flush().await;
    }
    if does.pause_ms > 0 {
        sleep(Duration::from_millis(does.pause_ms)).await;
    }
    if does.blocks_ms > 0 {
        job.world.block(does.blocks_ms);
    }
    for units in does.refunds {
        limits.refund(units);
        job.changes(0, units);
    }
    job.ends();
    if does.goes_on {
        tokio::spawn(async move {
            sleep(Duration::from_millis(30)).await;
            limits.charge(1);
            job.changes(1, 0);
        });
    }
    let status = if does.fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Response::builder().status(status).body(String::new()).expect("the response is valid")
}

impl Job {
    fn begins(&self, decision: Option<Decision>) {
        let mut state = self.world.lock();
        let source = decision.as_ref().map(Decision::source);
        let name = state.records[self.place].name();
        state.trace.say(format_args!("{name} is served, admitted by {source:?}"));
        let record = &mut state.records[self.place];
        (record.is_admitted, record.decided, record.decision) = (true, Some(Instant::now()), decision);
        state.checks_admission(self.place);
    }

    fn ends(&self) {
        self.world.lock().records[self.place].is_handled = true;
    }

    fn changes(&self, charged: u64, refunded: u64) {
        let mut state = self.world.lock();
        let name = state.records[self.place].name();
        state.trace.say(format_args!("{name} charges {charged}, refunds {refunded}"));
        let record = &mut state.records[self.place];
        record.charged += charged;
        record.refunded += refunded;
    }
}
