//! What is called: a script, or a function of a library.

use std::sync::OnceLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value, cmd, pipe};

use super::needs::Needs;
use super::source::statements_for;

#[cfg(test)]
mod tests;

/// What tells whether a server's Lua is that of Redis.
pub(super) const CHECK: &str = include_str!("../../../lua/check.lua");

/// Bytes of what is called, and of how many keys there are.
const ROOM: usize = 64;

/// How often a script is loaded for a call: the server may forget it again before that.
pub(super) const MOST_LOADS: usize = 3;

/// How the Lua files are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Calls {
    /// `EVALSHA`: scripts that have only what a call needs.
    #[default]
    Scripts,
    /// `FCALL`: one library that has everything.
    Functions,
}

/// A script and its hash, or a library and its name.
#[derive(Debug)]
pub(super) struct Program {
    calls: Calls,
    source: String,
    name: String,
}

impl Program {
    /// What does all that a call needs.
    pub(super) fn of(calls: Calls, needs: Needs) -> &'static Self {
        static SCRIPTS: [OnceLock<Program>; Needs::SETS] = [const { OnceLock::new() }; Needs::SETS];
        static LIBRARY: OnceLock<Program> = OnceLock::new();
        match calls {
            Calls::Scripts => SCRIPTS[needs.set()].get_or_init(|| Self::script(needs)),
            Calls::Functions => LIBRARY.get_or_init(Self::library),
        }
    }

    fn script(needs: Needs) -> Self {
        let source = format!("{}return {}(KEYS, ARGV)\n", statements_for(needs, &[needs.entry()]), needs.entry());
        let name = Script::new(&source).get_hash().to_owned();
        Self { calls: Calls::Scripts, source, name }
    }

    /// A library is named by its content, and so are its functions: those of different versions do
    /// not meet.
    fn library() -> Self {
        let entries = Needs::all().entries().map(Needs::entry);
        let statements = statements_for(Needs::all(), &entries);
        let statements = format!("{statements}{CHECK}");
        let name = format!("tollgate_{}", &Script::new(&statements).get_hash()[..16]);
        let register = |entry| format!("redis.register_function('{name}_{entry}', {entry})\n");
        let registered = entries.map(register).concat() + &register("check");
        let source = format!("#!lua name={name}\n{statements}{registered}");
        Self { calls: Calls::Functions, source, name }
    }

    /// Loads several scripts in one step.
    pub(super) async fn load_all(programs: &[&Self], connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let mut all = pipe();
        for program in programs {
            all.cmd("SCRIPT").arg("LOAD").arg(&program.source);
        }
        last_of(connection.send_packed_commands(&all, 0, programs.len()).await?).map(drop)
    }

    /// Loads a library and calls what tells whether the server's Lua is that of Redis, in one step.
    pub(super) async fn load_and_check(&self, connection: &mut MultiplexedConnection) -> Result<Value, RedisError> {
        let mut both = pipe();
        both.cmd("FUNCTION").arg("LOAD").arg(&self.source).add_command(self.check());
        let mut answers = connection.send_packed_commands(&both, 0, 2).await?;
        // Another process may have loaded it meanwhile.
        if answers
            .first()
            .is_some_and(|loaded| matches!(loaded.clone().extract_error(), Err(error) if is_there(&error)))
        {
            answers.remove(0);
        }
        last_of(answers)
    }

    /// The call of what tells whether the server's Lua is that of Redis: of a library only.
    pub(super) fn check(&self) -> Cmd {
        let mut call = cmd("FCALL");
        call.arg(format!("{}_check", self.name)).arg(0);
        call
    }

    /// Loads it into the server; a library that is there already is the same.
    pub(super) async fn load(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let command = match self.calls {
            Calls::Scripts => "SCRIPT",
            Calls::Functions => "FUNCTION",
        };
        match cmd(command).arg("LOAD").arg(&self.source).query_async(connection).await {
            Err(error) if is_there(&error) => Ok(()),
            loaded => loaded,
        }
    }

    /// Calls it, loading it if the server does not have it: then it did not run.
    pub(super) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        call: &Cmd,
        way: Way,
    ) -> Result<Value, RedisError> {
        let (mut answer, mut loads) = (way.send(connection, call).await, 0);
        while loads < MOST_LOADS && answer.as_ref().is_err_and(is_missing) {
            loads += 1;
            // Boxed, as it is rare.
            answer = Box::pin(self.load_and_send(connection, call, way)).await;
        }
        match answer? {
            answer @ Value::BulkString(_) => Ok(answer),
            _ => Err((ErrorKind::UnexpectedReturnType, "a decision was answered with something else").into()),
        }
    }

    async fn load_and_send(
        &self,
        connection: &mut MultiplexedConnection,
        call: &Cmd,
        way: Way,
    ) -> Result<Value, RedisError> {
        self.load(connection).await?;
        way.send(connection, call).await
    }

    /// The call that does all that is needed, but for its keys and arguments: there is room for so
    /// many, of so many bytes.
    pub(super) fn command(&self, needs: Needs, args: usize, bytes: usize) -> Cmd {
        let mut call = Cmd::with_capacity(args + 2, bytes + ROOM);
        match self.calls {
            Calls::Scripts => call.arg("EVALSHA").arg(&self.name),
            Calls::Functions => call.arg("FCALL").arg(format!("{}_{}", self.name, needs.entry())),
        };
        call
    }
}

/// How a call is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Plain,
    /// To a node of a Cluster that the slot of the keys is on its way to.
    #[cfg(feature = "cluster")]
    Asking,
}

impl Way {
    async fn send(self, connection: &mut MultiplexedConnection, call: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Plain => call.query_async(connection).await,
            #[cfg(feature = "cluster")]
            // Boxed, as it is rare.
            Self::Asking => Box::pin(Self::ask(connection, call)).await,
        }
    }

    #[cfg(feature = "cluster")]
    async fn ask(connection: &mut MultiplexedConnection, call: &Cmd) -> Result<Value, RedisError> {
        // Sent as one, for `ASKING` is about the next command.
        let mut both = pipe();
        both.cmd("ASKING").add_command(call.clone());
        let answers = connection.send_packed_commands(&both, 1, 1).await?;
        answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
    }
}

/// The last answer of several, or the first error.
pub(super) fn last_of(answers: Vec<Value>) -> Result<Value, RedisError> {
    answers.into_iter().try_fold(Value::Nil, |_, answer| answer.extract_error())
}

fn is_there(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("already exists"))
}

pub(super) fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        || error.detail().is_some_and(|detail| detail.starts_with("Function not found"))
}
