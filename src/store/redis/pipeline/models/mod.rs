//! Models of callers that write by themselves and of the task beside them, tried by loom in every order.
//!
//! `queue.rs` and `pipe.rs` are compiled once more here, with loom's locks. Everything else is as simple as possible. A
//! request is a number, a command is a count and that many numbers, and the server behind a socket replies to each
//! whole command at once. [`ModelTask`] does the work of the task in `task.rs`.
//!
//! The models check what callers rely on, in every order of writes and other events: every call ends, no request
//! reaches a server twice, no request fails that was certainly not sent, and nothing is left in the queue. In most
//! models, one round may be in flight, so that one of two callers has to wait.

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

/// Loom's versions of the items by which [`queue`] and [`pipe`] synchronize threads.
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
    pub(super) struct Packer {}

    /// Makes one command of all requests of a round.
    pub(super) fn calls(ids: Ids, entries: &Entries) -> SmallVec<[Command; 1]> {
        smallvec![Command::new(ids, entries)]
    }

    /// Appends a command in the form in which it is sent.
    pub(super) fn encode(command: &mut Command, entries: &Entries, _: &Settings, _: &mut Packer, out: &mut Vec<u8>) {
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

    /// The bytes that a socket takes.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Takes {
        All,
        /// Nothing the first time, and then a byte at a time.
        Little,
        Nothing,
        /// All bytes, although the server has already ended the connection.
        Ended,
    }

    #[derive(Default)]
    struct Stream {
        bytes: Vec<u8>,
        /// Number of commands that have a reply.
        replied: usize,
        was_full: bool,
        has_ended: bool,
        /// Whether bytes were written after the end.
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

        /// Ends the connection in the way the server does.
        pub(super) fn end(&self) {
            self.lock().has_ended = true;
        }

        /// Reads the next reply, which is the command. Reads nothing after the end of the connection.
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

        /// Returns the numbers in all whole commands that the server has received.
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

    /// Returns the numbers in the first command, if the command is whole.
    fn next(bytes: &[u8]) -> Option<&[u8]> {
        let (count, numbers) = bytes.split_first()?;
        numbers.get(..usize::from(*count))
    }
}

/// Counts settlements that have to be sent again on another connection.
#[derive(Default)]
struct Handed(AtomicUsize);

impl Watch for Handed {
    fn settle_again(&self, _: Unsettled) -> Option<Unsettled> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// The request with this number.
fn request(number: u8) -> Box<Job> {
    Job::command(Cmd::new(), None, Timeout::new(Duration::from_secs(60)), number.into())
}

fn number(job: &Job) -> u8 {
    byte(job.slot.into())
}

fn byte(number: usize) -> u8 {
    number.try_into().expect("it is small")
}

/// Event of a connection, other than its use.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    /// The server ends the connection.
    Ends,
    /// The task gives the connection up, and the server continues.
    IsReplaced,
    /// The runtime ends.
    Stops,
}

/// Drives connections like the task in `task.rs`.
struct ModelTask {
    pipe: Arc<Pipe>,
    socket: Option<Arc<Socket>>,
    /// Sockets of later connections.
    others: VecDeque<Arc<Socket>>,
    /// The event of the first connection, and the turn of the task that it precedes.
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

/// Polls once, with a waker that does nothing.
fn poll(asking: &mut Asking) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(asking).poll(&mut cx).is_pending());
}

/// Two callers, a task, and connections.
#[derive(Clone, Copy)]
struct Model {
    /// Maximum number of switches away from threads that could continue.
    switches: usize,
    /// One for each connection.
    takes: &'static [Takes],
    event: Event,
    /// Number of turns that the task has before the others run.
    turns: usize,
    batch_size: usize,
    in_flight: usize,
    /// Whether the first caller makes its request before all others run.
    is_early: bool,
    /// Number of requests that the second caller makes in sequence, and whether it drops them.
    requests: u8,
    leaves: bool,
}

/// Callers that wait, and a connection that is only used.
const USED: Model = Model {
    switches: 2,
    takes: &[Takes::All],
    event: Event::Nothing,
    turns: 0,
    batch_size: 100,
    in_flight: 1,
    is_early: false,
    requests: 1,
    leaves: false,
};

/// A connection that is lost, and the next one.
const LOST: Model = Model { takes: &[Takes::All, Takes::All], ..USED };

/// The same, but the first connection takes no bytes of earlier requests.
const UNSENT: Model = Model { takes: &[Takes::Nothing, Takes::All], is_early: true, ..USED };

impl Model {
    /// Tries it in all orders. Returns the numbers of replies and of errors.
    fn explore(self) -> (usize, usize) {
        let told = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let mut builder = Builder::new();
        builder.preemption_bound = Some(self.switches);
        let counts = Arc::clone(&told);
        builder.check(move || self.run(&counts));
        let [replies, errors] = &*told;
        (replies.load(Ordering::Relaxed), errors.load(Ordering::Relaxed))
    }

    fn run(&self, [replies, errors]: &[AtomicUsize; 2]) {
        let Self { event, turns, batch_size, in_flight, leaves, .. } = *self;
        let pipe = Arc::new(Pipe::new(Arc::new(Settings { batch_size, in_flight }), Arc::new(Handed::default())));
        let sockets: VecDeque<_> = self.takes.iter().map(|takes| Arc::new(Socket::new(*takes))).collect();
        let mut others = sockets.clone();
        let socket = others.pop_front();
        {
            let mut queue = pipe.lock();
            queue.line = socket.clone().map_or(Line::Down, Line::Socket);
            // Otherwise the first caller would wake the task for its timer, whatever the result of its request.
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
            seconds.iter_mut().skip(usize::from(!leaves)).for_each(poll);
            if leaves { Vec::new() } else { seconds.into_iter().map(block_on).collect() }
        });
        let mut results = vec![block_on(first)];
        results.extend(second.join().expect("it does not panic"));
        pipe.lock().is_last = true;
        pipe.wake();
        task.join().expect("it does not panic");
        let received: Vec<_> = sockets.iter().flat_map(|socket| socket.received()).collect();
        let times = |number| received.iter().filter(|other| **other == number).count();
        assert!((0..=i64::from(self.requests)).all(|number| times(number) <= 1), "{received:?}");
        for (number, result) in (0..).zip(results) {
            match result {
                Ok(JobReply::Command(Value::Int(reply))) => {
                    assert_eq!((reply, times(number)), (number, 1));
                    replies.fetch_add(1, Ordering::Relaxed);
                }
                Err(NoReply { error, late: None, refused: None }) => {
                    // A command may be lost on the way if the server has ended the connection.
                    assert!(times(number) == 1 || !matches!(self.event, Event::IsReplaced), "it was not sent: {error}");
                    errors.fetch_add(1, Ordering::Relaxed);
                }
                _ => panic!("it is late, refused, or of another"),
            }
        }
        let mut queue = pipe.lock();
        assert!(queue.is_idle());
        (queue.line, queue.end) = (Line::Connecting, None);
        // The queue can give out as many entries again as there were requests.
        for _ in 0..=self.requests {
            let (id, _) = queue.ask(*request(0), Waker::noop()).expect("there is room");
            assert!(id <= self.requests.into(), "an entry is left");
        }
    }
}

#[test]
fn each_request_has_its_reply_whoever_writes_when() {
    let three = Model { requests: 2, batch_size: 1, ..USED };
    for (name, model) in [
        ("two callers", Model { switches: 3, ..USED }),
        ("a caller that writes for others once, and leaves the rest to the task", three),
        ("the same with two rounds in flight", Model { in_flight: 2, ..three }),
        ("what the socket does not take is written by the task", Model { takes: &[Takes::Little], ..USED }),
    ] {
        assert_eq!(model.explore().1, 0, "errors: {name}");
    }
}

#[test]
fn one_who_leaves_holds_up_nobody() {
    assert_eq!(Model { leaves: true, switches: 3, ..USED }.explore().1, 0);
}

#[test]
fn what_surely_was_not_sent_is_sent_on_the_next_connection() {
    for (name, model) in [
        ("the task gives up the first one", Model { event: Event::IsReplaced, ..UNSENT }),
        ("with two rounds in flight", Model { event: Event::IsReplaced, in_flight: 2, ..UNSENT }),
        ("when it has tried", Model { event: Event::IsReplaced, turns: 1, ..UNSENT }),
        ("the server ends it", Model { event: Event::Ends, ..UNSENT }),
        ("it had ended while nothing was in flight", Model { takes: &[Takes::Ended, Takes::All], ..UNSENT }),
    ] {
        assert_eq!(model.explore().1, 0, "errors: {name}");
    }
}

/// A request that was not launched waits for the next connection. A launched request fails with the loss, and is not
/// sent again.
#[test]
fn a_connection_that_is_lost_under_writers_leaves_none_waiting() {
    for turns in [0, 1] {
        for event in [Event::IsReplaced, Event::Ends] {
            let (replies, errors) = Model { event, turns, ..LOST }.explore();
            assert!(replies > 0 && errors > 0, "{event:?} before turn {turns}: {replies} replies, {errors} errors");
        }
    }
}

/// A caller that writes finds out from the queue, before or after the write.
#[test]
fn the_end_of_the_runtime_leaves_none_waiting() {
    for turns in [0, 1] {
        let (replies, errors) = Model { event: Event::Stops, turns, switches: 3, ..USED }.explore();
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
