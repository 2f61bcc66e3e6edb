//! From requests to commands, and from replies to parts: see `store/redis/wire/`.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

#[cfg(feature = "cluster")]
use deadpool_redis::redis::cmd;
use deadpool_redis::redis::{Cmd, Pipeline, RedisError, Value, pipe};
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;

use super::entries::{Command, Entries, Ids};
use super::job::Asked;
use super::resp::Reply;
use crate::store::Clock;
use crate::store::clock::micros;
use crate::store::redis::connections::is_missing;
#[cfg(feature = "cluster")]
use crate::store::redis::wire::Way;
use crate::store::redis::wire::{Calls, Packed, Program, Reply as Script, Request, Seen};

/// How calls are made. The same for all servers of a store.
#[derive(Clone)]
pub(in crate::store::redis) struct Settings {
    /// Whether scripts or functions of a library are called.
    pub(in crate::store::redis) calls: Calls,
    /// The clock of decisions, whose time is sent along; the server's own if there is none.
    pub(in crate::store::redis) clock: Option<Arc<dyn Clock>>,
    /// The limit of checks in all calls of one round. A request that has more leaves alone.
    pub(in crate::store::redis) batch_size: usize,
    /// The most rounds of calls in flight on a connection.
    pub(in crate::store::redis) in_flight: usize,
    /// The most connections to one server.
    pub(in crate::store::redis) most: usize,
    /// The runtime of all connections, if it is not that of the callers.
    pub(in crate::store::redis) runtime: Option<Handle>,
}

pub(super) type SharedSettings = Arc<Settings>;

/// Scripts that a connection has been sent. The first call of each sends its source, so that what comes after it on the
/// same connection cannot overtake it.
#[derive(Default)]
pub(super) struct Known {
    programs: Vec<&'static Program>,
    seen: Seen,
}

impl Known {
    /// Returns the program that a call needs, and whether the server may not have it.
    fn program(&mut self, packed: &Packed<'_>, settings: &Settings, loads: u8) -> (&'static Program, bool) {
        let program = packed.program(settings.calls);
        let is_new = !self.programs.iter().any(|known| ptr::eq(*known, program));
        if is_new {
            self.programs.push(program);
        }
        (program, is_new || loads > 0)
    }
}

impl Settings {
    /// Returns the time that is sent along, in microseconds since the Unix epoch; nothing without a clock.
    fn now(&self) -> String {
        self.clock.as_deref().map(|clock| micros(clock.wall()).to_string()).unwrap_or_default()
    }
}

/// What a reply is to a command.
pub(super) enum Outcome {
    /// A part for each request, at this place of what was received.
    Parts(Range<usize>),
    /// The value of a command of its own.
    Value(Value),
    Refused(RedisError),
    /// The server lacks the script or the library.
    Missing(RedisError),
    /// It cannot be a reply to this.
    Stray,
}

/// Makes commands of a round: one for all requests of the same slot, and of one that is alone.
pub(super) fn calls(mut ids: Ids, entries: &Entries) -> SmallVec<[Command; 1]> {
    let (part, is_alone) = (|id: &usize| entries.job(*id).part(), |id: &usize| entries.job(*id).is_alone);
    if ids.len() == 1 || ids.iter().all(|id| part(id) == part(&ids[0]) && !is_alone(id)) {
        return smallvec![command(ids, entries)];
    }
    ids.sort_by_key(part);
    let parts = ids.chunk_by(|one, next| part(one) == part(next) && !is_alone(one) && !is_alone(next));
    parts.map(|ids| command(Ids::from_slice(ids), entries)).collect()
}

fn command(mut ids: Ids, entries: &Entries) -> Command {
    if ids.len() > 1 {
        Packed::sort(&mut ids, |id| request(entries, *id));
    }
    Command::new(ids, entries)
}

/// Returns a request of a command that is a call of the script.
fn request(entries: &Entries, id: usize) -> &Request {
    entries.job(id).request().expect("a command of its own is alone")
}

/// Appends a command as it is sent.
pub(super) fn encode(
    command: &mut Command,
    entries: &Entries,
    settings: &Settings,
    known: &mut Known,
    out: &mut Vec<u8>,
) {
    prepare(command, entries, settings, |before| before.write_packed_command(out));
    match &entries.job(command.ids[0]).asked {
        Asked::Command(call) => call.write_packed_command(out),
        Asked::Script(_) => {
            let (packed, now) = (packed(command, entries, known), settings.now());
            let (program, is_new) = known.program(&packed, settings, command.loads);
            push_head(out, b'*', packed.count());
            for argument in packed.arguments(program, &now, is_new) {
                push_head(out, b'$', argument.len());
                out.extend_from_slice(argument);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

fn packed<'a>(command: &Command, entries: &'a Entries, known: &mut Known) -> Packed<'a> {
    let requests: SmallVec<[&Request; 1]> = command.ids.iter().map(|id| request(entries, *id)).collect();
    Packed::of(&requests, &mut known.seen)
}

/// Appends a length.
fn push_head(out: &mut Vec<u8>, kind: u8, length: usize) {
    let digit = |number: usize| b"0123456789"[number % 10];
    match length {
        0..10 => out.extend_from_slice(&[kind, digit(length), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, digit(length / 10), digit(length), b'\r', b'\n']),
        _ => out.extend_from_slice(format!("{}{length}\r\n", char::from(kind)).as_bytes()),
    }
}

/// Returns a command as the redis crate sends it, behind what is to be done before.
pub(super) fn pipeline(command: &mut Command, entries: &Entries, settings: &Settings, known: &mut Known) -> Pipeline {
    let mut all = pipe();
    prepare(command, entries, settings, |before| {
        all.add_command(before);
    });
    match &entries.job(command.ids[0]).asked {
        Asked::Command(call) => all.add_command(Cmd::clone(call)),
        Asked::Script(_) => {
            let (packed, now) = (packed(command, entries, known), settings.now());
            let (program, is_new) = known.program(&packed, settings, command.loads);
            let mut call = Cmd::new();
            for argument in packed.arguments(program, &now, is_new) {
                call.arg(argument);
            }
            all.add_command(call)
        }
    };
    all
}

/// Does what comes before a command.
#[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "only a Cluster has calls that ask"))]
fn prepare(command: &mut Command, entries: &Entries, settings: &Settings, mut send: impl FnMut(Cmd)) {
    command.before = 0;
    let mut send = |before| {
        command.before += 1;
        send(before);
    };
    if command.loads > 0
        && let Some(load) = Program::load_command(settings.calls)
    {
        send(load);
    }
    #[cfg(feature = "cluster")]
    if entries.job(command.ids[0]).way == Way::Asking {
        // It is about the next command.
        send(cmd("ASKING"));
    }
}

/// Returns what a reply is to a command. Of a string that ends what was received, `end` is the place of its end.
pub(super) fn outcome(command: &Command, entries: &Entries, reply: Reply<'_>, end: usize) -> Outcome {
    let is_script = entries.job(command.ids[0]).request().is_some();
    match reply {
        Reply::Bytes(bytes) if !is_script => Outcome::Value(Value::BulkString(bytes.to_vec())),
        Reply::Bytes(bytes) => {
            let requests = command.ids.iter().map(|id| request(entries, *id));
            let fits = Script::read(bytes, command.size).is_some_and(|reply| reply.fits(requests));
            if fits { Outcome::Parts(end - bytes.len()..end) } else { Outcome::Stray }
        }
        Reply::Error(error) if is_missing(&error) && is_script => match &command.failure {
            // Another process may have loaded the library meanwhile.
            Some(failure) if failure.detail().is_none_or(|detail| !detail.contains("already exists")) => {
                Outcome::Refused(failure.clone())
            }
            _ => Outcome::Missing(error),
        },
        Reply::Error(error) => Outcome::Refused(error),
        Reply::Other(value) if !is_script => Outcome::Value(value),
        Reply::Other(_) | Reply::Pushed => Outcome::Stray,
    }
}
