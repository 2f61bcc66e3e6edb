//! Opening a connection: the stream (TCP, TLS, a Unix socket, or a closure of the application) and the login.
//!
//! Closures of the application run in separate tasks, so that a panic does not end the connection's task, which serves
//! other callers. No `Debug` output of this crate contains a password.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, ErrorKind, Parser, Pipeline, RedisConnectionInfo, RedisError, Value, pipe};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A Redis user and password, returned by the closure of
/// [`RedisStoreBuilder::credentials`](crate::store::RedisStoreBuilder::credentials) for each new connection.
///
/// The `Debug` output contains the user, but not the password.
///
/// # Examples
///
/// ```
/// use tollgate::store::Credentials;
///
/// let credentials = Credentials::new("limiter", "secret");
/// assert_eq!(credentials, Credentials::new("limiter", "secret"));
/// assert!(!format!("{credentials:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

impl Credentials {
    /// Creates credentials. The user of a login without a name is `default` in Redis.
    ///
    /// Only the server checks them.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }

    #[cfg(feature = "sentinel")]
    pub(in crate::store::redis) fn login(self) -> RedisConnectionInfo {
        RedisConnectionInfo::default().set_username(self.user).set_password(self.password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

type ClosureFuture<T> = Pin<Box<dyn Future<Output = Result<T, Cause>> + Send>>;

pub(super) type Cause = Box<dyn StdError + Send + Sync>;

pub(in crate::store::redis) type Provide = Arc<dyn Fn() -> ClosureFuture<Credentials> + Send + Sync>;

pub(in crate::store::redis) type Dial = Arc<dyn Fn(String, u16) -> ClosureFuture<Box<dyn Duplex>> + Send + Sync>;

pub(in crate::store::redis) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

pub(in crate::store::redis) enum Link {
    Tcp(TcpStream),
    Other(Box<dyn Duplex>),
    /// A connection of the application's pool, which has its own task.
    Pool(MultiplexedConnection),
}

impl Link {
    /// Always sends something, so that a server that never replies is noticed here.
    pub(super) async fn log_in(&mut self, login: &RedisConnectionInfo) -> Result<(), RedisError> {
        let mut commands = pipe();
        if login.protocol().supports_resp3() {
            commands.cmd("HELLO").arg(3);
            if let Some(password) = login.password() {
                commands.arg("AUTH").arg(login.username().unwrap_or("default")).arg(password);
            }
        } else if let Some(password) = login.password() {
            commands.cmd("AUTH").arg(login.username()).arg(password);
        }
        let authenticates = !commands.is_empty();
        if login.db() != 0 {
            commands.cmd("SELECT").arg(login.db());
        }
        // Servers before 7.2 lack this command, and users may lack the permission. The reply does not matter.
        commands.cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("tollgate");
        let mut replies = self.call(&commands).await?.into_iter().map(Value::extract_error);
        if authenticates && let Some(Err(error)) = replies.next() {
            // Before Redis 6, only the default user exists.
            let knows_no_users = error.detail().is_some_and(|text| text.contains("number of arguments for 'auth'"));
            if knows_no_users && login.username().is_some() {
                return Box::pin(self.log_in(&without_user(login))).await;
            }
            return Err((ErrorKind::AuthenticationFailed, "the login was refused", error.to_string()).into());
        }
        if login.db() != 0 {
            replies.next().transpose()?;
        }
        Ok(())
    }

    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let replies = self.call(pipe().add_command(command.clone())).await?;
        replies.into_iter().next().unwrap_or(Value::Nil).extract_error()
    }

    pub(super) async fn call(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Tcp(stream) => exchange(stream, commands).await,
            Self::Other(stream) => exchange(stream, commands).await,
            Self::Pool(connection) => connection.send_packed_commands(commands, 0, commands.len()).await,
        }
    }
}

fn without_user(login: &RedisConnectionInfo) -> RedisConnectionInfo {
    let (password, plain) = (login.password().unwrap_or_default(), RedisConnectionInfo::default());
    plain.set_password(password).set_db(login.db()).set_protocol(login.protocol())
}

/// The longest replies while a connection is made, in bytes.
const MAX_REPLIES: usize = 1 << 20;

async fn exchange(stream: &mut impl Duplex, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
    stream.write_all(&commands.get_packed_pipeline()).await?;
    stream.flush().await?;
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let (mut parser, mut unread) = (Parser::new(), &bytes[..]);
        let replies = (0..commands.len()).map(|_| parser.parse_value(&mut unread)).collect();
        match replies {
            // There is more to come.
            Err(error) if RedisError::is_io_error(&error) && bytes.len() < MAX_REPLIES => {}
            replies => return replies,
        }
    }
}

pub(super) async fn dialed(dial: &Dial, host: &str, port: u16) -> Result<Box<dyn Duplex>, Cause> {
    let (dial, host) = (Dial::clone(dial), host.to_owned());
    own_task(move || dial(host, port)).await
}

/// Dropping the future drops the closure's future at its next await. A panic is an error.
pub(super) async fn own_task<T: Send + 'static>(
    call: impl FnOnce() -> ClosureFuture<T> + Send + 'static,
) -> Result<T, Cause> {
    let mut task = JoinSet::new();
    task.spawn(async move { call().await });
    task.join_next().await.expect("there is one task")?
}

/// Tries all addresses at once, so that an address that never responds delays no other. Sets `TCP_NODELAY`.
pub(super) async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in tokio::net::lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("the host {host} has no address"));
    while let Some(attempt) = attempts.join_next().await {
        match attempt.map_err(io::Error::from).and_then(|opened| opened) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn a_server_that_knows_no_users_is_given_the_password_alone() {
        let (here, mut there) = duplex(1_024);
        let server = tokio::spawn(async move {
            let (mut seen, mut bytes) = (Vec::new(), [0; 1_024]);
            let wrong = "-ERR wrong number of arguments for 'auth' command\r\n-NOAUTH Authentication required.\r\n";
            for replies in [wrong, "+OK\r\n+OK\r\n"] {
                let count = there.read(&mut bytes).await.expect("it is sent");
                seen.push(String::from_utf8_lossy(&bytes[..count]).replace("\r\n", " "));
                there.write_all(replies.as_bytes()).await.expect("it is read");
            }
            seen
        });
        let login = RedisConnectionInfo::default().set_username("default").set_password("secret");
        Link::Other(Box::new(here)).log_in(&login).await.expect("the password is right");
        let seen = server.await.expect("it replies twice");
        assert!(seen[0].starts_with("*3 $4 AUTH $7 default $6 secret "), "{seen:?}");
        assert!(seen[1].starts_with("*2 $4 AUTH $6 secret "), "{seen:?}");
    }
}
