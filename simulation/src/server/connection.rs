//! Commands about a connection, and about the server as a whole.

use super::arguments::integer;
use super::fault::texts::{NO_CLUSTER, NO_INTEGER, SYNTAX};
use super::node::DATABASES;
use super::reply::Reply;
use super::table::Spec;
use super::{Node, Session};

/// The version that the node says it is.
const VERSION: &str = "7.0.15";

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
                           sure your configuration is correct?";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                           AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
                           protocol version at the same time";

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
            "evalsha" => self.call_script(session, words, now_us),
            "eval" => self.eval(session, words, now_us),
            "fcall" => self.call_function(session, words, now_us),
            "script|load" => self.load_script(words[2]),
            "script|exists" => Ok(self.have_scripts(&words[2..])),
            "script|flush" => {
                self.scripts.clear();
                Ok(Reply::OK)
            }
            "function|load" => self.load_library(words),
            "function|flush" => {
                self.functions.clear();
                self.libraries.clear();
                Ok(Reply::OK)
            }
            "cluster|slots" => {
                self.place.as_ref().map(super::routing::Place::ranges).ok_or_else(|| NO_CLUSTER.to_owned())
            }
            "hello" => self.hello(session, &words[1..]),
            "info" => Ok(self.info()),
            "role" => Ok(self.role()),
            _ => self.run_of_session(session, spec, words).map_err(str::to_owned),
        }
    }

    fn run_of_session(&self, session: &mut Session, spec: &Spec, words: &[&[u8]]) -> Result<Reply, &'static str> {
        match spec.name {
            "auth" => self.log_in(session, &words[1..])?,
            "select" => self.select(session, words[1])?,
            "asking" if self.place.is_none() => return Err(NO_CLUSTER),
            "asking" => session.asking = true,
            "client|setname" => session.name = words[2].to_vec(),
            "client|getname" if session.name.is_empty() => return Ok(Reply::Nil),
            "client|getname" => return Ok(Reply::text(&session.name)),
            "client|id" => return Ok(Reply::Integer(session.id)),
            _ => return Err(SYNTAX),
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

    /// `HELLO [2 [AUTH user password] [SETNAME name]]`.
    fn hello(&self, session: &mut Session, words: &[&[u8]]) -> Result<Reply, String> {
        let mut rest = words.iter();
        if let Some(version) = rest.next() {
            let version = integer(version);
            let version = version.map_err(|_| "ERR Protocol version is not an integer or out of range")?;
            if version != 2 {
                return Err("NOPROTO unsupported protocol version".to_owned());
            }
        }
        while let Some(option) = rest.next() {
            match (option.to_ascii_uppercase().as_slice(), rest.as_slice()) {
                (b"AUTH", [user, password, ..]) => {
                    self.log_in(session, &[user, password])?;
                    rest.nth(1);
                }
                (b"SETNAME", [name, ..]) => {
                    session.name = name.to_vec();
                    rest.next();
                }
                _ => return Err(format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option))),
            }
        }
        if self.fault.password.is_some() && !session.authenticated {
            return Err(HELLO_FIRST.to_owned());
        }
        Ok(self.greeting(session))
    }

    fn greeting(&self, session: &Session) -> Reply {
        let mode = if self.place.is_some() { "cluster" } else { "standalone" };
        let role = if self.fault.read_only.is_some() { "replica" } else { "master" };
        let fields = [
            ("server", Reply::text("redis")),
            ("version", Reply::text(VERSION)),
            ("proto", Reply::Integer(2)),
            ("id", Reply::Integer(session.id)),
            ("mode", Reply::text(mode)),
            ("role", Reply::text(role)),
            ("modules", Reply::Array(Vec::new())),
        ];
        Reply::Array(fields.into_iter().flat_map(|(name, value)| [Reply::text(name), value]).collect())
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

    fn info(&self) -> Reply {
        let mode = if self.place.is_some() { "cluster" } else { "standalone" };
        let role = if self.fault.read_only.is_some() { "slave" } else { "master" };
        let enabled = u8::from(self.place.is_some());
        Reply::text(format!(
            "# Server\r\nredis_version:{VERSION}\r\nredis_mode:{mode}\r\n\r\n# Replication\r\nrole:{role}\r\n\r\n\
             # Cluster\r\ncluster_enabled:{enabled}\r\n"
        ))
    }

    /// A primary without replicas, or a replica of nobody that is there.
    fn role(&self) -> Reply {
        if self.fault.read_only.is_none() {
            return Reply::Array(vec![Reply::text("master"), Reply::Integer(0), Reply::Array(Vec::new())]);
        }
        let primary = [Reply::text("127.0.0.1"), Reply::Integer(1), Reply::text("connect"), Reply::Integer(-1)];
        Reply::Array([Reply::text("slave")].into_iter().chain(primary).collect())
    }
}
