//! The two halves of a stream: callers write to one, and the task reads the other.
//!
//! A TCP socket has separate halves. Every other stream (TLS, a Unix socket, or an application's dialer) is behind a
//! lock, and registers only the waker of the task. So the task writes the bytes that the stream does not take, and
//! flushes the bytes that the stream keeps back, such as a part of a TLS record.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::store::redis::connections::Duplex;

const ROOM: usize = 16 * 1_024;

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(OwnedWriteHalf),
    Other(Arc<SharedStream>),
}

#[derive(Debug)]
pub(super) enum Reader {
    Tcp(OwnedReadHalf),
    Other(Arc<SharedStream>),
}

pub(super) struct SharedStream {
    stream: Mutex<ReadAhead>,
    task: Arc<TaskWaker>,
    waker: Waker,
}

struct ReadAhead {
    stream: Box<dyn Duplex>,
    /// Bytes read by [`Socket::is_quiet`]. Empty at the end of the stream.
    ahead: Option<BytesMut>,
}

#[derive(Default)]
struct TaskWaker {
    task: Mutex<Option<Waker>>,
    /// Whether the stream took nothing, and has not woken the task since.
    is_full: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.is_full.store(false, Ordering::Release);
        let task = lock(&self.task).clone();
        task.into_iter().for_each(Waker::wake);
    }
}

pub(super) fn tcp(stream: TcpStream) -> (Socket, Reader) {
    let (reader, socket) = stream.into_split();
    (Socket::Tcp(socket), Reader::Tcp(reader))
}

pub(super) fn other(stream: Box<dyn Duplex>) -> (Socket, Reader) {
    let task = Arc::new(TaskWaker::default());
    let (stream, waker) = (Mutex::new(ReadAhead { stream, ahead: None }), Waker::from(Arc::clone(&task)));
    let locked = Arc::new(SharedStream { stream, task, waker });
    (Socket::Other(Arc::clone(&locked)), Reader::Other(locked))
}

impl Socket {
    /// Writes without waiting, and returns the number of bytes taken.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            let written = match self {
                Self::Tcp(half) => half.try_write(&bytes[sent..]),
                Self::Other(locked) => locked.write(&bytes[sent..]),
            };
            match written {
                Ok(0) if sent == 0 => return Err(io::ErrorKind::WriteZero.into()),
                Ok(0) => break,
                Ok(taken) => sent += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The next write fails again.
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => half.as_ref().poll_write_ready(cx),
            Self::Other(locked) => {
                // The write has registered the waker, and may have woken it already.
                if !locked.task.is_full.load(Ordering::Acquire) {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        match self {
            // Makes no system call, because `try_io` fails if the socket is known to have nothing to read.
            Self::Tcp(half) => half.as_ref().try_io(Interest::READABLE, || Ok(())).is_err(),
            Self::Other(locked) => locked.is_quiet(),
        }
    }
}

impl Reader {
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut BytesMut) -> Poll<io::Result<bool>> {
        bytes.reserve(ROOM);
        match self {
            Self::Tcp(half) => read(half, cx, bytes),
            Self::Other(locked) => {
                register(&mut lock(&locked.task.task), cx.waker());
                locked.poll_read(bytes)
            }
        }
    }
}

impl SharedStream {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut cx = Context::from_waker(&self.waker);
        let ReadAhead { stream, .. } = &mut *lock(&self.stream);
        // Set before the write, because the write may wake the task.
        self.task.is_full.store(true, Ordering::Release);
        let written = match Pin::new(&mut *stream).poll_write(&mut cx, bytes) {
            Poll::Ready(written) => written?,
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
        };
        self.task.is_full.store(false, Ordering::Release);
        // The task, when woken, flushes what is kept back and gets the error. This write succeeded: the bytes were
        // taken.
        let _ = Pin::new(stream).poll_flush(&mut cx);
        Ok(written)
    }

    fn is_quiet(&self) -> bool {
        let mut cx = Context::from_waker(&self.waker);
        let ReadAhead { stream, ahead } = &mut *lock(&self.stream);
        if ahead.is_some() {
            return false;
        }
        let mut bytes = BytesMut::with_capacity(ROOM);
        let is_quiet = read(stream, &mut cx, &mut bytes).is_pending();
        if !is_quiet {
            *ahead = Some(bytes);
        }
        is_quiet
    }

    fn poll_read(&self, bytes: &mut BytesMut) -> Poll<io::Result<bool>> {
        let mut cx = Context::from_waker(&self.waker);
        let ReadAhead { stream, ahead } = &mut *lock(&self.stream);
        if let Some(ahead) = ahead.take() {
            bytes.extend_from_slice(&ahead);
            return Poll::Ready(Ok(!ahead.is_empty()));
        }
        let _ = Pin::new(&mut *stream).poll_flush(&mut cx)?;
        read(stream, &mut cx, bytes)
    }
}

impl std::fmt::Debug for SharedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStream").finish_non_exhaustive()
    }
}

fn read(from: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>, bytes: &mut BytesMut) -> Poll<io::Result<bool>> {
    let mut reading = std::pin::pin!(from.read_buf(bytes));
    reading.as_mut().poll(cx).map_ok(|read| read > 0)
}

pub(super) fn register(kept: &mut Option<Waker>, waker: &Waker) {
    if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
        *kept = Some(waker.clone());
    }
}

/// Ignores poisoning: a stream that panicked fails by itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
