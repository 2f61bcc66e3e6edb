//! From requests to commands, and from replies to parts: see `store/redis/wire/`.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

#[cfg(feature = "cluster")]
use deadpool_redis::redis::cmd;
use deadpool_redis::redis::{Cmd, Pipeline, RedisError, Value, pipe};
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;

use super::job::{Asked, Command, Entries, Entry, What};
use super::resp::Reply;
use crate::store::Clock;
use crate::store::clock::micros;
use crate::store::redis::connections::is_missing;
#[cfg(feature = "cluster")]
use crate::store::redis::wire::Way;
use crate::store::redis::wire::{Calls, Packed, Program, Reply as Script, Seen};

/// How calls are made. The same for all servers of a store.
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
pub(super) fn calls(what: What) -> SmallVec<[Command; 1]> {
    let mut entries = match what {
        What::Again(command) => return smallvec![command],
        What::New(entries) => entries,
    };
    let part = |entry: &Entry| entry.job.part();
    if entries.len() == 1 || entries.iter().all(|entry| part(entry) == part(&entries[0]) && !entry.job.is_alone) {
        return smallvec![command(entries)];
    }
    entries.sort_by_key(part);
    let mut parts: Vec<Entries> = Vec::new();
    for entry in entries {
        match parts.last_mut() {
            Some(last) if !entry.job.is_alone && !last[0].job.is_alone && part(&last[0]) == part(&entry) => {
                last.push(entry);
            }
            _ => parts.push(smallvec![entry]),
        }
    }
    parts.into_iter().map(command).collect()
}

fn command(mut entries: Entries) -> Command {
    if entries.len() > 1 {
        Packed::sort(&mut entries);
    }
    Command::new(entries)
}

/// Appends commands as they are sent.
pub(super) fn encode(commands: &mut [Command], settings: &Settings, known: &mut Known, out: &mut Vec<u8>) {
    for command in commands {
        prepare(command, settings, |before| before.write_packed_command(out));
        match &command.entries[0].job.asked {
            Asked::Command(call) => call.write_packed_command(out),
            Asked::Script(_) => {
                let (packed, now) = (Packed::of(&command.entries, &mut known.seen), settings.now());
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
pub(super) fn pipeline(command: &mut Command, settings: &Settings, known: &mut Known) -> Pipeline {
    let mut all = pipe();
    prepare(command, settings, |before| {
        all.add_command(before);
    });
    match &command.entries[0].job.asked {
        Asked::Command(call) => all.add_command(Cmd::clone(call)),
        Asked::Script(_) => {
            let (packed, now) = (Packed::of(&command.entries, &mut known.seen), settings.now());
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
fn prepare(command: &mut Command, settings: &Settings, mut send: impl FnMut(Cmd)) {
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
    if command.entries[0].job.way == Way::Asking {
        // It is about the next command.
        send(cmd("ASKING"));
    }
}

/// Returns what a reply is to a command. Of a string that ends what was received, `end` is the place of its end.
pub(super) fn outcome(command: &Command, reply: Reply<'_>, end: usize) -> Outcome {
    let is_script = matches!(command.entries[0].job.asked, Asked::Script(_));
    match reply {
        Reply::Bytes(bytes) if !is_script => Outcome::Value(Value::BulkString(bytes.to_vec())),
        Reply::Bytes(bytes) => {
            let fits =
                script(command, bytes).is_some_and(|reply| reply.fits(command.entries.iter().map(AsRef::as_ref)));
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

/// Reads what the script returned to all requests of a command.
pub(super) fn script<'a>(command: &Command, bytes: &'a [u8]) -> Option<Script<'a>> {
    Script::read(bytes, command.entries.iter().map(|entry| entry.job.size()).sum())
}
