//! Models of callers that write by themselves and of the task beside them, tried by loom in every order.
//!
//! `queue.rs` and `pipe.rs` are compiled once more here, with loom's locks. All else is as simple as can be: a request is
//! a number, a command is a count and so many numbers, and the server behind a socket replies to each whole command at
//! once. [`ModelTask`] does what that of `task.rs` does.
//!
//! The models claim what callers rely on, whoever writes when and whatever comes between: all of them end, no request
//! reaches a server twice, none fails that surely was not sent, and nothing is left in the queue. Mostly one round
//! may be in flight, so that one of two callers has to wait.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};
use loom::model::Builder;
use loom::sync::Condvar;
use loom::thread;
use tokio::time::Instant;

use calls::Settings;
use job::{Job, JobReply, Settler, Timeout, Unsettled, Watch, stopped};
use pipe::{Asking, NoReply, Pipe};
use queue::{Done, Line, lost_connection};
use resp::Reply;
use socket::{Socket, Takes};

#[allow(dead_code, clippy::duplicate_mod, reason = "it is compiled once more with other locks, and not all is used")]
#[path = "../pipe.rs"]
mod pipe;
#[allow(dead_code, clippy::duplicate_mod, reason = "it is compiled once more with other locks, and not all is used")]
#[path = "../queue.rs"]
mod queue;

mod job {
    pub(super) use super::super::job::*;
}

mod entries {
    pub(super) use super::super::entries::*;
}

mod resp {
    pub(super) use super::super::resp::*;
}

/// What [`queue`] and [`pipe`] share threads by here.
mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::Arc;
    use std::task::Waker;

    pub(super) fn wake(task: Waker) {
        task.wake();
    }
}

/// Commands that are counts and numbers.
mod calls {
    use std::sync::Arc;

    use smallvec::{SmallVec, smallvec};

    use super::entries::{Command, Entries, Ids};
    use super::resp::Reply;

    pub(super) struct Settings {
        pub(super) batch_size: usize,
        pub(super) in_flight: usize,
    }

    pub(super) type SharedSettings = Arc<Settings>;

    #[derive(Default)]
    pub(super) struct Known {}

    /// Makes commands of a round: one of all its requests.
    pub(super) fn calls(ids: Ids, entries: &Entries) -> SmallVec<[Command; 1]> {
        smallvec![Command::new(ids, entries)]
    }

    /// Appends a command as it is sent.
    pub(super) fn encode(command: &mut Command, entries: &Entries, _: &Settings, _: &mut Known, out: &mut Vec<u8>) {
        out.push(super::byte(command.ids.len()));
        out.extend(command.ids.iter().map(|id| super::number(&entries[*id].job)));
    }

    pub(super) fn fits(_: &Reply<'_>, _: &Command, _: &Entries) -> bool {
        true
    }
}

/// Sockets, and the server behind them.
mod socket {
    use std::task::{Context, Poll, Waker};
    use std::{io, mem};

    pub(super) use super::super::socket::register;
    use super::sync::{Mutex, MutexGuard};

    pub(super) struct Socket {
        stream: Mutex<Stream>,
        takes: Takes,
    }

    /// What a socket takes.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Takes {
        All,
        /// Nothing the first time, and then a byte at a time.
        Little,
        Nothing,
        /// All, and the server has ended it before.
        Ended,
    }

    #[derive(Default)]
    struct Stream {
        bytes: Vec<u8>,
        /// How many of them were replied to.
        replied: usize,
        was_full: bool,
        has_ended: bool,
        /// Whether it was written to after that.
        is_reset: bool,
        /// The waker of the task.
        reader: Option<Waker>,
    }

    impl Socket {
        pub(super) fn new(takes: Takes) -> Self {
            let has_ended = matches!(takes, Takes::Ended);
            Self { stream: Mutex::new(Stream { has_ended, ..Stream::default() }), takes }
        }

        fn lock(&self) -> MutexGuard<'_, Stream> {
            self.stream.lock().expect("nobody panics")
        }

        pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
            let mut stream = self.lock();
            if stream.has_ended {
                // The first write is taken, and lost.
                let is_reset = mem::replace(&mut stream.is_reset, true);
                return if is_reset { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) };
            }
            let most = match self.takes {
                Takes::All | Takes::Ended => bytes.len(),
                Takes::Little if stream.was_full => 1,
                Takes::Little | Takes::Nothing => 0,
            };
            stream.was_full = true;
            stream.bytes.extend(&bytes[..most]);
            let reader = stream.reader.take().filter(|_| most > 0);
            drop(stream);
            reader.into_iter().for_each(Waker::wake);
            Ok(most)
        }

        #[allow(clippy::unused_self, reason = "that of other sockets needs it")]
        pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            cx.waker().wake_by_ref();
            Poll::Pending
        }

        pub(super) fn is_quiet(&self) -> bool {
            !self.lock().has_ended
        }

        /// Ends it as the server does.
        pub(super) fn end(&self) {
            self.lock().has_ended = true;
        }

        /// Reads the next reply, which is the command; nothing once it has ended.
        pub(super) fn poll_read(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
            let mut stream = self.lock();
            if stream.has_ended {
                return Poll::Ready(None);
            }
            if let Some(numbers) = next(&stream.bytes[stream.replied..]).map(<[u8]>::to_vec) {
                stream.replied += 1 + numbers.len();
                return Poll::Ready(Some(numbers));
            }
            stream.reader = Some(cx.waker().clone());
            Poll::Pending
        }

        /// Returns the numbers of all whole commands that the server has got.
        pub(super) fn received(&self) -> Vec<i64> {
            let (stream, mut received) = (self.lock(), Vec::new());
            let mut bytes = &stream.bytes[..];
            while let Some(numbers) = next(bytes) {
                received.extend(numbers.iter().copied().map(i64::from));
                bytes = &bytes[1 + numbers.len()..];
            }
            received
        }
    }

    /// Returns the numbers of the first command, if that is whole.
    fn next(bytes: &[u8]) -> Option<&[u8]> {
        let (count, numbers) = bytes.split_first()?;
        numbers.get(..usize::from(*count))
    }
}

/// Counts settlements that are to be sent again elsewhere.
#[derive(Default)]
struct Handed(AtomicUsize);

impl Watch for Handed {
    fn settle_again(&self, _: Unsettled) -> Option<Unsettled> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// The request of a number.
fn request(number: u8) -> Box<Job> {
    Job::command(Cmd::new(), Timeout::new(Duration::from_secs(60)), number.into())
}

fn number(job: &Job) -> u8 {
    byte(job.slot.into())
}

fn byte(number: usize) -> u8 {
    number.try_into().expect("it is small")
}

/// What happens to a connection, besides that it is used.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    /// The server ends it.
    Ends,
    /// The task gives it up, and the server goes on.
    IsReplaced,
    /// The runtime ends.
    Stops,
}

/// What drives connections, as that of `task.rs` does.
struct ModelTask {
    pipe: Arc<Pipe>,
    socket: Option<Arc<Socket>>,
    /// Those of later connections.
    others: VecDeque<Arc<Socket>>,
    /// What happens to the first one, and before which turn of the task.
    event: Event,
    turn: usize,
}

impl ModelTask {
    fn work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.pipe.lock().task = Some(cx.waker().clone());
        let mut done = Done::default();
        if self.turn == 0 {
            match mem::replace(&mut self.event, Event::Nothing) {
                Event::Nothing => {}
                Event::Ends => self.socket.iter().for_each(|socket| socket.end()),
                Event::IsReplaced => self.lose(&mut done),
                Event::Stops => {
                    self.pipe.lock().close(&stopped(), Instant::now(), &mut done);
                    done.finish(&*self.pipe.watch);
                    return Poll::Ready(());
                }
            }
        }
        self.turn = self.turn.saturating_sub(1);
        loop {
            self.connect();
            self.receive(cx, &mut done);
            self.send(cx, &mut done);
            mem::take(&mut done).finish(&*self.pipe.watch);
            let queue = self.pipe.lock();
            if queue.is_last && queue.is_idle() {
                return Poll::Ready(());
            }
            if !(self.socket.is_none() && queue.has_waiting()) {
                return Poll::Pending;
            }
        }
    }

    fn connect(&mut self) {
        if self.socket.is_some() {
            return;
        }
        let mut queue = self.pipe.lock();
        if queue.has_waiting() {
            let socket = self.others.pop_front().expect("no more connections are lost");
            queue.line = Line::Socket(Arc::clone(&socket));
            self.socket = Some(socket);
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        while let Some(socket) = &self.socket
            && let Poll::Ready(reply) = socket.poll_read(cx)
        {
            let Some(numbers) = reply else { return self.lose(done) };
            let mut queue = self.pipe.lock();
            let command = queue.replied(&Reply::Pushed, None).ok().flatten().expect("it is in flight");
            assert!(command.ids.iter().map(|id| number(&queue.entries[*id].job)).eq(numbers), "they are in step");
            for id in command.ids {
                let value = Value::Int(queue.entries[id].job.slot.into());
                queue.hand(id, Ok(JobReply::Command(value)), done);
            }
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        if let Some(socket) = &self.socket
            && let Poll::Ready(Err(_)) = self.pipe.write_rest(socket, cx)
        {
            self.lose(done);
        }
    }

    fn lose(&mut self, done: &mut Done) {
        self.socket = None;
        let mut queue = self.pipe.lock();
        let lost = queue.disconnect(done);
        queue.fail(lost, &lost_connection(), done);
    }
}

/// A thread that waits until it is woken.
#[derive(Default)]
struct Sleeper {
    is_woken: sync::Mutex<bool>,
    woken: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().expect("nobody panics") = true;
        self.woken.notify_one();
    }
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_woken = sleeper.is_woken.lock().expect("nobody panics");
        while !mem::take(&mut *is_woken) {
            is_woken = sleeper.woken.wait(is_woken).expect("nobody panics");
        }
    }
}

/// What a caller does, and what it is told unless it leaves.
type Caller = fn(Asking) -> Told;

/// Nothing, if it has left.
type Told = Option<Result<JobReply, NoReply>>;

/// Waits for the reply.
#[allow(clippy::unnecessary_wraps, reason = "who leaves has none")]
fn waits(asking: Asking) -> Told {
    Some(block_on(asking))
}

/// Asks, and leaves.
fn leaves(mut asking: Asking) -> Told {
    poll(&mut asking);
    None
}

/// Polls once, and will not be woken.
fn poll(asking: &mut Asking) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(asking).poll(&mut cx).is_pending());
}

/// Callers, a task, and connections.
struct Model {
    /// The most switches away from threads that could go on.
    switches: usize,
    /// One for each connection.
    takes: &'static [Takes],
    event: Event,
    /// How often the task has its turn before.
    turns: usize,
    batch_size: usize,
    in_flight: usize,
    /// What the first caller does, and the second.
    callers: [Caller; 2],
    /// Whether the first one has asked before all others run.
    is_early: bool,
    /// How many requests the second one has, one after the other.
    requests: u8,
}

/// What callers were told in all orders together.
#[derive(Default)]
struct Counts {
    replies: AtomicUsize,
    errors: AtomicUsize,
}

impl Model {
    /// Two callers that wait, and a connection that is only used.
    fn new(switches: usize) -> Self {
        let (takes, event, turns, batch_size, in_flight) = (&[Takes::All][..], Event::Nothing, 0, 100, 1);
        let (callers, is_early, requests) = ([waits as Caller; 2], false, 1);
        Self { switches, takes, event, turns, batch_size, in_flight, callers, is_early, requests }
    }

    /// Tries it in all orders. Returns the numbers of replies and of errors.
    fn explore(self) -> (usize, usize) {
        let told = Arc::new(Counts::default());
        let mut builder = Builder::new();
        builder.preemption_bound = Some(self.switches);
        let counts = Arc::clone(&told);
        builder.check(move || self.run(&counts));
        (told.replies.load(Ordering::Relaxed), told.errors.load(Ordering::Relaxed))
    }

    fn run(&self, told: &Counts) {
        let Self { event, turns, batch_size, in_flight, callers, .. } = *self;
        let pipe = Arc::new(Pipe::new(Arc::new(Settings { batch_size, in_flight }), Arc::new(Handed::default())));
        let sockets: VecDeque<_> = self.takes.iter().map(|takes| Arc::new(Socket::new(*takes))).collect();
        let mut others = sockets.clone();
        let socket = others.pop_front();
        {
            let mut queue = pipe.lock();
            queue.line = socket.clone().map_or(Line::Down, Line::Socket);
            // Else the first caller would wake the task for its timer, whatever becomes of its request.
            queue.armed = Some(Instant::now());
        }
        let asking = |number| Asking::new(Arc::clone(&pipe), request(number));
        let (mut first, mut seconds) = (asking(0), (1..=self.requests).map(asking).collect::<Vec<_>>());
        if self.is_early {
            poll(&mut first);
        }
        let mut task = ModelTask { pipe: Arc::clone(&pipe), socket, others, event, turn: turns };
        let task = thread::spawn(move || block_on(poll_fn(|cx| task.work(cx))));
        let second = thread::spawn(move || {
            seconds.iter_mut().skip(1).for_each(poll);
            seconds.into_iter().map(callers[1]).collect::<Vec<_>>()
        });
        let mut results = vec![callers[0](first)];
        results.extend(second.join().expect("it does not panic"));
        pipe.lock().is_last = true;
        pipe.wake();
        task.join().expect("it does not panic");
        let received: Vec<_> = sockets.iter().flat_map(|socket| socket.received()).collect();
        for (number, result) in (0..).zip(results) {
            let times = received.iter().filter(|other| **other == number).count();
            match result {
                Some(Ok(JobReply::Command(Value::Int(reply)))) => {
                    assert_eq!((reply, times), (number, 1));
                    told.replies.fetch_add(1, Ordering::Relaxed);
                }
                Some(Err(NoReply { error, late: None, refused: None })) => {
                    // One whose server has ended may be lost on its way.
                    let is_sent = times == 1 || !matches!(self.event, Event::IsReplaced);
                    assert!(times <= 1 && is_sent, "it failed, and was sent {times} times: {error}");
                    told.errors.fetch_add(1, Ordering::Relaxed);
                }
                None => assert!(times <= 1, "it was sent {times} times"),
                _ => panic!("it is late, refused, or of another"),
            }
        }
        self.is_empty(&pipe);
    }

    /// Asserts that nothing is left in the queue.
    fn is_empty(&self, pipe: &Pipe) {
        let mut queue = pipe.lock();
        assert!(queue.is_idle());
        (queue.line, queue.end) = (Line::Connecting, None);
        // As many entries as there were requests can be had again.
        for _ in 0..=self.requests {
            let (id, _) = queue.ask(request(0), Waker::noop()).expect("there is room");
            assert!(id <= self.requests.into(), "an entry is left");
        }
    }
}

/// Whoever writes when: no request waits for ever with nothing in flight.
#[test]
fn each_of_two_callers_has_its_reply() {
    let (_, errors) = Model::new(3).explore();
    assert_eq!(errors, 0);
}

/// A caller writes for others once, and leaves the rest to the task.
#[test]
fn each_of_three_requests_has_its_reply() {
    for in_flight in [1, 2] {
        let (_, errors) = Model { requests: 2, batch_size: 1, in_flight, ..Model::new(2) }.explore();
        assert_eq!(errors, 0);
    }
}

/// While some of a command is left, nobody else writes.
#[test]
fn what_the_socket_does_not_take_is_written_by_the_task() {
    let (_, errors) = Model { takes: &[Takes::Little], ..Model::new(2) }.explore();
    assert_eq!(errors, 0);
}

#[test]
fn one_who_leaves_holds_up_nobody() {
    let (_, errors) = Model { callers: [waits, leaves], ..Model::new(3) }.explore();
    assert_eq!(errors, 0);
}

/// Who has not launched yet waits for the next connection; who has is told of the loss, and is not sent again.
#[test]
fn a_connection_that_is_replaced_under_writers_leaves_none_waiting() {
    for turns in [0, 1] {
        let takes = &[Takes::All, Takes::All];
        let (replies, errors) = Model { takes, event: Event::IsReplaced, turns, ..Model::new(2) }.explore();
        assert!(replies > 0 && errors > 0, "{replies} replies, {errors} errors");
    }
}

/// The server may end the connection before it is written to, or when it has taken a request.
#[test]
fn a_connection_that_ends_under_writers_leaves_none_waiting() {
    for turns in [0, 1] {
        let takes = &[Takes::All, Takes::All];
        let (replies, errors) = Model { takes, event: Event::Ends, turns, ..Model::new(2) }.explore();
        assert!(replies > 0 && errors > 0, "{replies} replies, {errors} errors");
    }
}

/// Nothing of the first request was taken, also when the task has tried, and the second one waits behind it.
#[test]
fn what_surely_was_not_sent_is_sent_on_the_next_connection() {
    for (event, in_flight, turns) in
        [(Event::IsReplaced, 1, 0), (Event::IsReplaced, 2, 0), (Event::IsReplaced, 1, 1), (Event::Ends, 1, 0)]
    {
        let takes = &[Takes::Nothing, Takes::All];
        let (_, errors) = Model { takes, event, turns, in_flight, is_early: true, ..Model::new(2) }.explore();
        assert_eq!(errors, 0);
    }
}

/// Whoever writes first looks before.
#[test]
fn a_connection_that_has_ended_while_nothing_was_in_flight_costs_no_request() {
    let (_, errors) = Model { takes: &[Takes::Ended, Takes::All], is_early: true, ..Model::new(2) }.explore();
    assert_eq!(errors, 0);
}

/// A caller that writes finds out from the queue, before or after the write.
#[test]
fn the_end_of_the_runtime_leaves_none_waiting() {
    for turns in [0, 1] {
        let (replies, errors) = Model { event: Event::Stops, turns, ..Model::new(3) }.explore();
        assert!((replies > 0 || turns == 0) && errors > 0, "{replies} replies, {errors} errors");
    }
}

#[test]
fn the_end_of_the_runtime_loses_no_settlement() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let handed = Arc::new(Handed::default());
        let settings = Arc::new(Settings { batch_size: 100, in_flight: 1 });
        let pipe = Arc::new(Pipe::new(settings, Arc::<Handed>::clone(&handed)));
        {
            let mut queue = pipe.lock();
            queue.line = Line::Socket(Arc::new(Socket::new(Takes::All)));
            queue.armed = Some(Instant::now());
        }
        let place = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().expect("there is room");
        let (settler, mut receiver) = Settler::new(place);
        let other = Arc::clone(&pipe);
        let settles = thread::spawn(move || other.settle(request(0), settler).is_err());
        let mut done = Done::default();
        pipe.lock().close(&stopped(), Instant::now(), &mut done);
        let unsettled = done.finish(&*handed).1.len();
        let given_back = settles.join().expect("it does not panic");
        let ends = usize::from(given_back) + unsettled + handed.0.load(Ordering::Relaxed);
        let is_told = receiver.try_recv().is_ok();
        assert_eq!(ends + usize::from(is_told), 1, "{given_back}, {unsettled}, {is_told}");
    });
}
