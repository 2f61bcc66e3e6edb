use std::sync::Arc;

use deadpool_redis::redis::Value;
#[cfg(feature = "cluster")]
use deadpool_redis::redis::cmd;
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;

use super::entries::{Command, Entries, Ids};
use super::job::Asked;
use super::resp::Reply;
use crate::store::Clock;
use crate::store::clock::micros;
pub(super) use crate::store::redis::wire::Packer;
#[cfg(feature = "cluster")]
use crate::store::redis::wire::Way;
use crate::store::redis::wire::{Calls, Program, Request, ScriptReply};

#[derive(Clone)]
pub(in crate::store::redis) struct Settings {
    /// `None` for a store that only sends commands.
    pub(in crate::store::redis) calls: Option<Calls>,
    pub(in crate::store::redis) clock: Option<Arc<dyn Clock>>,
    /// Maximum number of checks in a round. A larger request is sent alone.
    pub(in crate::store::redis) batch_size: usize,
    pub(in crate::store::redis) in_flight: usize,
    pub(in crate::store::redis) most: usize,
    pub(in crate::store::redis) runtime: Option<Handle>,
}

pub(super) type SharedSettings = Arc<Settings>;

/// Makes one command for each slot, and one for each request that must be alone.
pub(super) fn calls(mut ids: Ids, entries: &Entries) -> SmallVec<[Command; 1]> {
    let part = |id: &usize| (entries[*id].job.slot, entries[*id].job.way);
    let is_alone = |id: &usize| entries[*id].job.is_alone;
    if ids.len() == 1 || ids.iter().all(|id| part(id) == part(&ids[0]) && !is_alone(id)) {
        return smallvec![command(ids, entries)];
    }
    ids.sort_by_key(part);
    let parts = ids.chunk_by(|one, next| part(one) == part(next) && !is_alone(one) && !is_alone(next));
    parts.map(|ids| command(Ids::from_slice(ids), entries)).collect()
}

fn command(mut ids: Ids, entries: &Entries) -> Command {
    if ids.len() > 1 {
        Packer::sort(&mut ids, |id| request(entries, *id));
    }
    Command::new(ids, entries)
}

fn request(entries: &Entries, id: usize) -> &Request {
    entries[id].job.request().expect("a command of its own is alone")
}

pub(super) fn encode(
    command: &mut Command,
    entries: &Entries,
    settings: &Settings,
    packer: &mut Packer,
    out: &mut Vec<u8>,
) {
    let first = &entries[command.ids[0]].job;
    command.before = 0;
    if command.loads > 0
        && let Some(load) = Program::load_command(settings.calls.unwrap_or_default())
    {
        load.write_packed_command(out);
        command.before += 1;
    }
    #[cfg(feature = "cluster")]
    if first.way == Way::Asking {
        // It applies to the next command only.
        cmd("ASKING").write_packed_command(out);
        command.before += 1;
    }
    if let Asked::Command(call, _) = &first.asked {
        return call.write_packed_command(out);
    }
    // Microseconds since the Unix epoch.
    let now = settings.clock.as_deref().map(|clock| micros(clock.wall()).to_string()).unwrap_or_default();
    let requests = command.ids.iter().map(|id| request(entries, *id));
    packer.call(requests, settings.calls.unwrap_or_default(), &now, command.loads > 0, out);
}

pub(super) fn fits(reply: &Reply<'_>, command: &Command, entries: &Entries) -> bool {
    let asked = &entries[command.ids[0]].job.asked;
    let is_reply = |value: &Value| matches!(asked, Asked::Command(_, accepts) if accepts.is_none_or(|is| is(value)));
    match reply {
        Reply::Bytes(bytes) if matches!(asked, Asked::Script(_)) => {
            let requests = command.ids.iter().map(|id| request(entries, *id));
            ScriptReply::read(bytes, command.size).is_some_and(|reply| reply.fits(requests))
        }
        Reply::Bytes(bytes) => is_reply(&Value::BulkString(bytes.to_vec())),
        Reply::Error(_) => true,
        Reply::Other(value) => is_reply(value),
        Reply::Pushed => false,
    }
}
