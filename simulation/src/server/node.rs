//! A server, alone or of a Cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mlua::Function;

use super::data::Data;
use super::fault::texts;
use super::fault::texts::NO_INTEGER;
use super::reply::Reply;
use super::routing::{Place, keys_of};
use super::table::{self, Spec};
use super::{Faults, SlotTable, Vm, commands};

/// How many databases there are.
pub(super) const DATABASES: usize = 16;

/// A simulated server, which does one command after the other.
#[derive(Debug)]
pub struct Node {
    /// What is the matter with it.
    pub fault: Faults,
    pub(super) vm: Vm,
    pub(super) databases: [Data; DATABASES],
    /// By their hashes.
    pub(super) scripts: BTreeMap<String, Function>,
    pub(super) place: Option<Place>,
}

impl Node {
    /// A server alone, which is empty.
    pub fn new(vm: Vm) -> Self {
        Self { fault: Faults::default(), vm, databases: Default::default(), scripts: BTreeMap::new(), place: None }
    }

    /// A primary of a Cluster at an address, `host:port`, which is empty. The table may not know the address
    /// yet; which slots it has, the table says.
    pub fn in_cluster(vm: Vm, address: &str, slots: Arc<Mutex<SlotTable>>) -> Self {
        Self { place: Some(Place::new(slots, address)), ..Self::new(vm) }
    }

    /// Does a command, name first, at a time in µs since the epoch.
    pub fn execute(&mut self, session: &mut Session, command: &[impl AsRef<[u8]>], now_us: u64) -> Reply {
        let words: Vec<&[u8]> = command.iter().map(AsRef::as_ref).collect();
        let asking = std::mem::take(&mut session.asking);
        if words.is_empty() {
            return Reply::Array(Vec::new());
        }
        let spec = match table::find(&words) {
            Ok(spec) => spec,
            Err(text) => return Reply::Error(text),
        };
        if let Some(text) = self.refuse(spec, &words, session, asking, now_us) {
            return Reply::Error(text);
        }
        let data = &mut self.databases[session.database];
        match commands::run(data, now_us, spec.name, &words) {
            Some(reply) => reply,
            None => self.run(session, spec, &words, now_us).unwrap_or_else(Reply::Error),
        }
    }

    /// Why a command is not done, in the order in which Redis asks.
    fn refuse(&mut self, spec: &Spec, words: &[&[u8]], session: &Session, asking: bool, now_us: u64) -> Option<String> {
        if self.fault.password.is_some() && !session.authenticated && !spec.is_always_done() {
            return Some(texts::NO_AUTH.to_owned());
        }
        if let Some(text) = self.misplaced(keys_of(spec, words), asking, now_us) {
            return Some(text);
        }
        let fault = &self.fault;
        let refusals = [
            (spec.grows() && fault.out_of_memory && !fault.busy, texts::OUT_OF_MEMORY),
            (spec.writes() && fault.read_only.is_some(), texts::READ_ONLY),
            (fault.loading && !spec.is_done_while_loading(), texts::LOADING),
            (fault.busy && !spec.is_always_done(), texts::BUSY),
        ];
        refusals.into_iter().find(|(refused, _)| *refused).map(|(_, text)| text.to_owned())
    }

    /// Why a command about some keys is not for this node.
    fn misplaced(&mut self, keys: &[&[u8]], asking: bool, now_us: u64) -> Option<String> {
        if self.fault.cluster_down && !keys.is_empty() {
            return Some(texts::NOT_SERVED.to_owned());
        }
        self.place.as_ref()?.refuse(keys, asking, &mut self.databases[0], now_us)
    }

    /// Forgets all scripts.
    pub fn flush_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Evicts a key; returns whether it was there.
    pub fn forget(&mut self, key: &[u8]) -> bool {
        self.databases.iter_mut().filter_map(|data| data.remove(key, 0)).count() > 0
    }

    /// Restarts it without memory: keys and scripts are gone. Its sessions ended.
    pub fn clear(&mut self) {
        self.databases.iter_mut().for_each(Data::clear);
        self.flush_scripts();
    }

    /// Hands a key to another node, as `MIGRATE` does; returns whether it was there.
    pub fn move_key(&mut self, to: &mut Self, key: &[u8], now_us: u64) -> bool {
        let Some(entry) = self.databases[0].remove(key, now_us) else { return false };
        to.databases[0].set(key, entry.value, entry.until_ms);
        true
    }

    /// Every key in order. Those that expired may be among them.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.databases.iter().flat_map(Data::keys)
    }
}

/// What a node knows of a connection.
#[derive(Clone, Debug)]
pub struct Session {
    pub(super) authenticated: bool,
    /// The command before was `ASKING`.
    pub(super) asking: bool,
    pub(super) database: usize,
}

impl Session {
    /// A new connection: it has to log in if the node has a password by now.
    pub fn new(node: &Node) -> Self {
        Self { authenticated: node.fault.password.is_none(), asking: false, database: 0 }
    }
}

/// A whole number, as Redis reads one: no `+`, no zeros before it, no spaces.
pub(super) fn integer(word: &[u8]) -> Result<i64, &'static str> {
    let number: i64 = str::from_utf8(word).ok().and_then(|text| text.parse().ok()).ok_or(NO_INTEGER)?;
    if number.to_string().as_bytes() == word { Ok(number) } else { Err(NO_INTEGER) }
}

/// The keys of a call, and its arguments: `words` begin with how many keys there are.
#[allow(clippy::type_complexity, reason = "two slices of words")]
pub(super) fn keys_and_args<'a>(words: &'a [&'a [u8]]) -> Result<(&'a [&'a [u8]], &'a [&'a [u8]]), &'static str> {
    let count = integer(words[0])?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    words[1..].split_at_checked(count).ok_or("ERR Number of keys can't be greater than number of args")
}
