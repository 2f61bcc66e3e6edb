//! Which client was counted by what, over many requests.

use std::collections::{HashMap, HashSet};

use http::request::Parts;

use super::{App, Choices, Kind};

/// What was found out about the clients of a kind.
pub(crate) struct Ledger<'a> {
    kind: &'a Kind,
    /// How many of the applications read each request.
    readers: usize,
    /// The clients that applications saw.
    seen: HashSet<(usize, String)>,
    /// By application, key and client: the only counter of its own that it has, and how it came by it.
    counters: HashMap<(usize, usize, String), (String, String)>,
    pub(crate) tally: Tally,
}

/// How much was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Requests in which some application sees a client.
    pub(crate) requests: usize,
    /// Keys that were extracted of what an application sees as a client.
    pub(crate) keys: usize,
    /// Those of them that were no shared one.
    pub(crate) certain: usize,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(kind: &'a Kind, readers: usize) -> Self {
        Self { kind, readers, seen: HashSet::new(), counters: HashMap::new(), tally: Tally::default() }
    }

    /// Makes a request, and enters it.
    pub(crate) fn next(&mut self, choices: &mut Choices<'_>) -> Result<(), String> {
        let first = choices.below(self.kind.apps.len());
        let request = (self.kind.spell)(choices).request();
        request.and_then(|request| self.kind.receive(request)).map_or(Ok(()), |parts| self.enter(first, &parts))
    }

    /// Compares the counter of a request with those of the clients that applications see, from one of them on.
    ///
    /// # Errors
    ///
    /// If a client has another counter than before, or none.
    pub(crate) fn enter(&mut self, first: usize, parts: &Parts) -> Result<(), String> {
        let mut is_seen = false;
        let apps = self.kind.apps.iter().enumerate();
        for (number, app) in apps.cycle().skip(first).take(self.readers.min(self.kind.apps.len())) {
            let Some(client) = (app.sees)(parts) else { continue };
            is_seen = true;
            // The usual spelling of one that was not seen before.
            if self.seen.insert((number, client.clone()))
                && let Some(plain) = (app.plain)(&client).request().and_then(|plain| self.kind.receive(plain))
                && (app.sees)(&plain).as_ref() == Some(&client)
            {
                self.compare((number, app), &client, &plain)?;
            }
            self.compare((number, app), &client, parts)?;
        }
        self.tally.requests += usize::from(is_seen);
        Ok(())
    }

    fn compare(&mut self, (number, app): (usize, &App), client: &str, parts: &Parts) -> Result<(), String> {
        for (at, key) in app.keys.iter().enumerate() {
            let head = || format!("{} {} {:?}", parts.method, parts.uri, parts.headers);
            let whose =
                || format!("{}: {}, who is {client:?} to {}, by its key {at}", self.kind.name, head(), app.name);
            let found = self.kind.key(&**key, parts).map_err(|other| format!("{} has no counter: {other}", whose()))?;
            self.tally.keys += 1;
            let Some(found) = found else { continue };
            self.tally.certain += 1;
            let known = self.counters.entry((number, at, client.to_owned()));
            let (known, before) = known.or_insert_with(|| (found.clone(), head()));
            if *known != found {
                return Err(format!("{} has {found}, and had {known} by {before}", whose()));
            }
        }
        Ok(())
    }
}
