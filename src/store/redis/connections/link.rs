//! Opening a connection: the stream, by TCP, TLS, a Unix socket or the application's closure, and the login.

use std::io;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{
    Cmd, ConnectionAddr, ErrorKind, Parser, Pipeline, RedisConnectionInfo, RedisError, Value, pipe,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::closures::{Dial, Duplex, own_task};
use super::failure::not_connected;
use super::source::Connect;
use crate::core::Error;

/// A connection on which calls are made.
pub(in crate::store::redis) enum Link {
    Tcp(TcpStream),
    /// Of TLS, of a Unix socket, or of the application's closure.
    Other(Box<dyn Duplex>),
    /// One of the application's pool, which has a task of its own.
    Pool(MultiplexedConnection),
}

impl Link {
    /// Opens a stream to an address. Nothing is sent on it yet, except by TLS.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or encrypted, or an address of this kind cannot be used on this platform or without the
    /// feature `tls`: the error is one of the connection.
    pub(super) async fn open(address: &ConnectionAddr, connect: &Connect) -> Result<Self, Error> {
        match (address, &connect.dial) {
            (ConnectionAddr::Tcp(host, port), Some(dial)) => dialed(dial, host, *port).await.map(Self::Other),
            (ConnectionAddr::Tcp(host, port), None) => tcp(host, *port).await.map(Self::Tcp).map_err(not_connected),
            #[cfg(feature = "tls")]
            (ConnectionAddr::TcpTls { host, port, .. }, dial) => {
                let stream = match dial {
                    Some(dial) => dialed(dial, host, *port).await?,
                    None => Box::new(tcp(host, *port).await.map_err(not_connected)?),
                };
                let encrypted = super::tls::encrypt(connect.tls.as_ref(), host, stream).await;
                encrypted.map(|stream| Self::Other(Box::new(stream))).map_err(not_connected)
            }
            #[cfg(unix)]
            (ConnectionAddr::Unix(path), _) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(not_connected)?;
                Ok(Self::Other(Box::new(stream)))
            }
            (other, _) => Err(not_connected(format!("{other} cannot be connected to from here"))),
        }
    }

    /// Logs in, and chooses the database. The server always has to reply to something, so that one that never does is noticed.
    ///
    /// # Errors
    ///
    /// If the server refuses the login, or the connection is lost.
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
        // Servers before 7.2 do not know it, and users may not be allowed to: whatever the reply is, there is one.
        commands.cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("tollgate");
        let mut replies = self.call(&commands).await?.into_iter().map(Value::extract_error);
        if authenticates && let Some(Err(error)) = replies.next() {
            let error = (ErrorKind::AuthenticationFailed, "Password authentication failed", error.to_string());
            return Err(error.into());
        }
        if login.db() != 0 {
            replies.next().transpose()?;
        }
        Ok(())
    }

    /// Sends a command, and waits for its reply.
    ///
    /// # Errors
    ///
    /// If the server refuses the command, or the connection is lost.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let replies = self.call(pipe().add_command(command.clone())).await?;
        replies.into_iter().next().unwrap_or(Value::Nil).extract_error()
    }

    /// Sends commands in one round trip, and waits for all replies, some of which may be errors.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    pub(super) async fn call(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Tcp(stream) => exchange(stream, commands).await,
            Self::Other(stream) => exchange(stream, commands).await,
            Self::Pool(connection) => connection.send_packed_commands(commands, 0, commands.len()).await,
        }
    }
}

/// Sends commands on a stream, and reads as many replies: then nothing more is to come.
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
            Err(error) if RedisError::is_io_error(&error) => {} // There is more to come.
            replies => return replies,
        }
    }
}

/// Opens a stream by the application's closure.
async fn dialed(dial: &Dial, host: &str, port: u16) -> Result<Box<dyn Duplex>, Error> {
    let (dial, host) = (Dial::clone(dial), host.to_owned());
    own_task(move || dial(host, port)).await.map_err(not_connected)?.map_err(not_connected)
}

/// Connects to the first of a host's addresses that accepts: they are all tried at once, so that
/// one that never responds delays none. The other attempts are dropped then. Small writes are
/// sent at once (`TCP_NODELAY`).
///
/// # Errors
///
/// If the host cannot be resolved, or no address accepts: the error of the attempt that failed
/// last.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
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
