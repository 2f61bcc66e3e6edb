//! Which client was counted by what, over many requests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use http::request::Parts;

use super::{App, Choices, Kind, Spelling};

/// What was found out about the clients of a kind.
pub(crate) struct Ledger<'a> {
    kind: &'a Kind,
    /// How many of the applications read each request.
    readers: usize,
    /// By application, key and client: the only counter of its own that it has, and how it came by it.
    counters: HashMap<(usize, usize, String), Option<(String, Spelling)>>,
    pub(crate) tally: Tally,
}

/// How much was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Requests in which some application sees a client.
    pub(crate) requests: usize,
    /// Clients of an application, by each key that fits it.
    pub(crate) clients: usize,
    /// Keys that were extracted of what an application sees as a client.
    pub(crate) keys: usize,
    /// Those of them that were no shared one.
    pub(crate) certain: usize,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(kind: &'a Kind, readers: usize) -> Self {
        Self { kind, readers, counters: HashMap::new(), tally: Tally::default() }
    }

    /// Makes a request, and compares its counter with those of the clients that applications see.
    ///
    /// # Errors
    ///
    /// If a client has another counter than before, or none.
    pub(crate) fn next(&mut self, choices: &mut Choices<'_>) -> Result<(), String> {
        let first = choices.below(self.kind.apps.len());
        let spelling = (self.kind.spell)(choices);
        let Some(parts) = self.kind.receive(&spelling) else { return Ok(()) };
        let mut seen = false;
        let apps = self.kind.apps.iter().enumerate();
        for (number, app) in apps.cycle().skip(first).take(self.readers.min(self.kind.apps.len())) {
            let Some(client) = (app.sees)(&parts) else { continue };
            seen = true;
            self.enter_plain(number, app, &client)?;
            self.enter((number, app), &client, &spelling, &parts)?;
        }
        self.tally.requests += usize::from(seen);
        Ok(())
    }

    /// Enters the usual spelling of a client that was not seen before.
    fn enter_plain(&mut self, number: usize, app: &App, client: &str) -> Result<(), String> {
        if self.counters.contains_key(&(number, 0, client.to_owned())) {
            return Ok(());
        }
        let plain = (app.plain)(client);
        match self.kind.receive(&plain) {
            Some(parts) if (app.sees)(&parts).as_deref() == Some(client) => {
                self.enter((number, app), client, &plain, &parts)
            }
            _ => Ok(()),
        }
    }

    fn enter(
        &mut self,
        (number, app): (usize, &App),
        client: &str,
        spelling: &Spelling,
        parts: &Parts,
    ) -> Result<(), String> {
        for (at, key) in app.keys.iter().enumerate() {
            let whose = || {
                format!("{}: {:?}, who is {client:?} to {}, has by its key {at}", self.kind.name, spelling, app.name)
            };
            let found = self.kind.key(&**key, parts).map_err(|other| format!("{} no counter: {other}", whose()))?;
            self.tally.keys += 1;
            self.tally.certain += usize::from(found.is_some());
            let entry = self.counters.entry((number, at, client.to_owned()));
            self.tally.clients += usize::from(matches!(entry, Entry::Vacant(_)));
            let known = entry.or_default();
            match (known.as_ref(), found) {
                (Some((known, before)), Some(found)) if *known != found => {
                    return Err(format!("{} {found}, and has {known} by {before:?}", whose()));
                }
                (None, Some(found)) => *known = Some((found, spelling.clone())),
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, clients, keys, certain } = self;
        write!(f, "{requests} requests, {clients} clients, {keys} keys, {certain} of them certain")
    }
}
