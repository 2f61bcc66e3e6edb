//! Opening streams: TCP, TLS over TCP, Unix sockets, and what a dialer opens.
//!
//! An address and a login come in; a link goes out, logged in. There is no timeout here:
//! connecting is bounded as a whole.
//!
//! | address | without a dialer | with one |
//! | --- | --- | --- |
//! | `redis://` | TCP | the dialer's stream |
//! | `rediss://` | TLS over TCP | TLS over the dialer's stream |
//! | `redis+unix://` | the socket | the socket |

use std::io;

use deadpool_redis::redis::{ConnectionAddr, RedisConnectionInfo};
#[cfg(feature = "tls")]
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::dial::Dialer;
use super::failure::not_connected;
use super::link::{Link, Opened};
use super::tls::Encryption;
use crate::core::Error;

/// Opens a connection to an address and logs in.
///
/// # Errors
///
/// If the stream cannot be opened or encrypted, the server refuses the login, or an address of this
/// kind cannot be used on this platform or without the feature `tls`: the error is one of the
/// connection.
#[cfg_attr(not(feature = "tls"), allow(unused_variables, reason = "nothing is encrypted then"))]
pub(super) async fn open(
    address: &ConnectionAddr,
    login: &RedisConnectionInfo,
    encryption: &Encryption,
    dialer: Option<&Dialer>,
) -> Result<Opened, Error> {
    match (address, dialer) {
        (ConnectionAddr::Tcp(host, port), Some(dialer)) => {
            Opened::log_in(dialer.dial(host, *port).await?, login, Link::Other).await
        }
        (ConnectionAddr::Tcp(host, port), None) => {
            Opened::log_in(tcp(host, *port).await.map_err(not_connected)?, login, Link::Tcp).await
        }
        #[cfg(feature = "tls")]
        (ConnectionAddr::TcpTls { host, port, .. }, Some(dialer)) => {
            encrypted(host, dialer.dial(host, *port).await?, login, encryption).await
        }
        #[cfg(feature = "tls")]
        (ConnectionAddr::TcpTls { host, port, .. }, None) => {
            encrypted(host, tcp(host, *port).await.map_err(not_connected)?, login, encryption).await
        }
        #[cfg(unix)]
        (ConnectionAddr::Unix(path), _) => {
            let stream = tokio::net::UnixStream::connect(path).await.map_err(not_connected)?;
            Opened::log_in(stream, login, |stream| Link::Other(Box::new(stream))).await
        }
        (other, _) => Err(not_connected(format!("{other} cannot be connected to from here"))),
    }
}

/// Encrypts a stream to a host, which must prove that it is that one, and logs in.
#[cfg(feature = "tls")]
async fn encrypted<S>(
    host: &str,
    stream: S,
    login: &RedisConnectionInfo,
    encryption: &Encryption,
) -> Result<Opened, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = encryption.wrap(host, stream).await.map_err(not_connected)?;
    Opened::log_in(stream, login, |stream| Link::Other(Box::new(stream))).await
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
