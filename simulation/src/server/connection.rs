//! Commands about a connection, and about the server as a whole.

use super::fault::texts::{NO_CLUSTER, NO_INTEGER, SYNTAX};
use super::node::{DATABASES, integer};
use super::reply::Reply;
use super::table::Spec;
use super::{Node, Session};

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
                           sure your configuration is correct?";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl Node {
    /// Does what is about the connection, scripts or the server.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        spec: &Spec,
        words: &[&[u8]],
        now_us: u64,
    ) -> Result<Reply, String> {
        match spec.name {
            "evalsha" => return self.call_script(session, words, now_us),
            "eval" => return self.eval(session, words, now_us),
            "script|load" => return self.load_script(words[2]),
            "script|flush" => self.scripts.clear(),
            "cluster|slots" => {
                return self.place.as_ref().map(super::routing::Place::ranges).ok_or_else(|| NO_CLUSTER.to_owned());
            }
            "auth" => self.log_in(session, &words[1..])?,
            "select" => self.select(session, words[1])?,
            "asking" if self.place.is_none() => return Err(NO_CLUSTER.to_owned()),
            "asking" => session.asking = true,
            _ => return Err(SYNTAX.to_owned()),
        }
        Ok(Reply::OK)
    }

    /// `AUTH [user] password`.
    fn log_in(&self, session: &mut Session, words: &[&[u8]]) -> Result<(), &'static str> {
        let (user, password) = match words {
            [password] => (&b"default"[..], password),
            [user, password] => (*user, password),
            _ => return Err(SYNTAX),
        };
        match &self.fault.password {
            None if words.len() == 1 => return Err(NO_PASSWORD),
            Some(right) if right.as_bytes() != *password => return Err(WRONG_PASSWORD),
            _ if user != b"default" => return Err(WRONG_PASSWORD),
            _ => session.authenticated = true,
        }
        Ok(())
    }

    fn select(&self, session: &mut Session, word: &[u8]) -> Result<(), &'static str> {
        let number = i32::try_from(integer(word)?).map_err(|_| NO_INTEGER)?;
        if self.place.is_some() && number != 0 {
            return Err("ERR SELECT is not allowed in cluster mode");
        }
        let number = usize::try_from(number).ok().filter(|number| *number < DATABASES);
        session.database = number.ok_or("ERR DB index is out of range")?;
        Ok(())
    }
}
