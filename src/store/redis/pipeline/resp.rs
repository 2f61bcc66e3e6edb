//! Framing of replies in RESP, by <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
//!
//! Only strings, which scripts return, are parsed here. For other values this module only finds the end, and the redis
//! crate parses them. A connection of an application's pool is a stream of the same bytes: [`Pooled`].

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, Pipeline, RedisError, Value, parse_redis_value, pipe};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::sync::wake;

#[derive(Debug)]
pub(super) enum Reply<'a> {
    Bytes(&'a [u8]),
    Error(RedisError),
    Other(Value),
    /// A message that the server pushed. It is not the reply to a command.
    Pushed,
}

/// The received bytes are not a reply to the sent commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfStep;

impl From<OutOfStep> for io::Error {
    fn from(_: OutOfStep) -> Self {
        let text = "what was received is no reply to what was sent, or the server is a node of a Redis Cluster";
        Self::new(io::ErrorKind::InvalidData, text)
    }
}

/// The longest reply, in bytes: a batch of whole logs.
const MAX_REPLY: usize = 64 << 20;

/// The longest sum of lines and lengths of a reply, in bytes, because each read looks at them again: the slots of a
/// Cluster in some thousands of ranges.
const MAX_LINES: usize = 512 << 10;

/// The longest line, in bytes. Errors of scripts quote their arguments.
const MAX_LINE: usize = 64 << 10;

const DEEPEST: u8 = 32;

/// Returns the next reply and its length. `None` if it is incomplete.
pub(super) fn next(received: &[u8]) -> Result<Option<(Reply<'_>, usize)>, OutOfStep> {
    if received.first() == Some(&b'$')
        && let Some((start, length)) = length(received)?
    {
        let end = end_of_string(received, start + length)?;
        return Ok(end.map(|end| (Reply::Bytes(&received[start..start + length]), end)));
    }
    let Some(end) = end_of(received, 0, DEEPEST, &mut { MAX_LINES })? else {
        return if received.len() > MAX_REPLY + MAX_LINE { Err(OutOfStep) } else { Ok(None) };
    };
    let reply = &received[..end];
    let reply = match reply[0] {
        b'>' => Reply::Pushed,
        _ => match parse_redis_value(reply).map_err(|_| OutOfStep)? {
            Value::ServerError(error) => Reply::Error(error.into()),
            other => Reply::Other(other),
        },
    };
    Ok(Some((reply, end)))
}

/// Returns where the content begins, and its length. `None` for a null, or a value without a length.
fn length(value: &[u8]) -> Result<Option<(usize, usize)>, OutOfStep> {
    if !matches!(value[0], b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%') || value.get(1) == Some(&b'-') {
        return Ok(None);
    }
    let mut length = 0;
    for (place, byte) in value.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' if length <= MAX_REPLY => length = 10 * length + usize::from(byte - b'0'),
            b'\r' if place > 1 && length <= MAX_REPLY => {
                return match value.get(place + 1) {
                    Some(b'\n') => Ok(Some((place + 2, length))),
                    Some(_) => Err(OutOfStep),
                    None => Ok(None),
                };
            }
            _ => return Err(OutOfStep),
        }
    }
    Ok(None)
}

/// `None` if the end is not received yet.
fn end_of(received: &[u8], start: usize, depth: u8, lines: &mut usize) -> Result<Option<usize>, OutOfStep> {
    let Some(kind) = received.get(start) else { return Ok(None) };
    let each = match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => None,
        b'$' | b'=' | b'!' => Some(0),
        b'*' | b'~' | b'>' => Some(1),
        b'%' => Some(2),
        _ => return Err(OutOfStep),
    };
    let Some(end) = line(received, start)? else { return Ok(None) };
    *lines = lines.checked_sub(end - start).ok_or(OutOfStep)?;
    let Some(each) = each else { return Ok(Some(end)) };
    let Some((first, length)) = length(&received[start..])? else {
        // A null of RESP2, or an incomplete length.
        return match received[start..].get(..5) {
            Some(b"$-1\r\n" | b"*-1\r\n") => Ok(Some(start + 5)),
            Some([_, b'-', ..]) => Err(OutOfStep),
            _ => Ok(None),
        };
    };
    let mut end = start + first;
    if each == 0 {
        return end_of_string(received, end + length);
    }
    let depth = depth.checked_sub(1).ok_or(OutOfStep)?;
    for _ in 0..each * length {
        match end_of(received, end, depth, lines)? {
            Some(next) => end = next,
            None => return Ok(None),
        }
    }
    Ok(Some(end))
}

fn end_of_string(received: &[u8], end: usize) -> Result<Option<usize>, OutOfStep> {
    match received.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some(end + 2)),
        Some(_) => Err(OutOfStep),
        None => Ok(None),
    }
}

fn line(received: &[u8], start: usize) -> Result<Option<usize>, OutOfStep> {
    let rest = &received[start..];
    match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && rest[end - 1] == b'\r' => Ok(Some(start + end + 1)),
        Some(_) => Err(OutOfStep),
        None if rest.len() > MAX_LINE => Err(OutOfStep),
        None => Ok(None),
    }
}

type Sending = Pin<Box<dyn Future<Output = Result<Vec<Value>, RedisError>> + Send>>;

enum Sent {
    New(Sending),
    /// Kept here until all earlier writes have their replies.
    Replied(Result<Vec<Value>, RedisError>),
}

/// The redis crate owns the socket. A write has whole commands, which the next read, by the task, sends.
pub(super) struct Pooled {
    connection: MultiplexedConnection,
    sent: VecDeque<Sent>,
    replies: BytesMut,
}

impl Pooled {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, sent: VecDeque::new(), replies: BytesMut::new() }
    }
}

impl AsyncWrite for Pooled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (all, count) = commands(bytes)?;
        let mut connection = self.connection.clone();
        let sending = Box::pin(async move { connection.send_packed_commands(&all, 0, count).await });
        self.sent.push_back(Sent::New(sending));
        wake(cx.waker().clone());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Pooled {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { sent, replies, .. } = &mut *self;
        for sent in sent.iter_mut() {
            if let Sent::New(sending) = sent
                && let Poll::Ready(replies) = sending.as_mut().poll(cx)
            {
                *sent = Sent::Replied(replies);
            }
        }
        while let Some(Sent::Replied(_)) = sent.front() {
            let Some(Sent::Replied(together)) = sent.pop_front() else { break };
            together.map_err(io::Error::other)?.into_iter().for_each(|reply| push(replies, reply));
        }
        if replies.is_empty() {
            return Poll::Pending;
        }
        let taken = replies.split_to(replies.len().min(buffer.remaining()));
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

fn commands(mut bytes: &[u8]) -> Result<(Pipeline, usize), OutOfStep> {
    let (mut all, mut count) = (pipe(), 0);
    while !bytes.is_empty() {
        let mut command = Cmd::new();
        let (start, arguments) = length(bytes)?.ok_or(OutOfStep)?;
        bytes.advance(start);
        for _ in 0..arguments {
            let (start, size) = length(bytes)?.ok_or(OutOfStep)?;
            command.arg(&bytes[start..start + size]);
            bytes.advance(start + size + 2);
        }
        all.add_command(command);
        count += 1;
    }
    Ok((all, count))
}

fn push(bytes: &mut BytesMut, reply: Value) {
    let mut line = |text: String| bytes.extend_from_slice((text + "\r\n").as_bytes());
    match reply {
        Value::Nil => line("_".to_owned()),
        Value::Int(number) => line(format!(":{number}")),
        Value::Okay => line("+OK".to_owned()),
        Value::SimpleString(text) => line(format!("+{text}")),
        Value::Double(number) => line(format!(",{number}")),
        Value::Boolean(is_true) => line(format!("#{}", if is_true { 't' } else { 'f' })),
        Value::VerbatimString { format, text } => line(format!("={}\r\n{format}:{text}", text.len() + 4)),
        Value::ServerError(error) => line(format!("-{} {}", error.code(), error.details().unwrap_or_default())),
        Value::BulkString(text) => {
            line(format!("${}", text.len()));
            bytes.extend_from_slice(&text);
            bytes.extend_from_slice(b"\r\n");
        }
        Value::Array(values) => {
            line(format!("*{}", values.len()));
            for value in values {
                push(bytes, value);
            }
        }
        Value::Set(values) => {
            line(format!("~{}", values.len()));
            for value in values {
                push(bytes, value);
            }
        }
        Value::Map(pairs) => {
            line(format!("%{}", pairs.len()));
            for (key, value) in pairs {
                push(bytes, key);
                push(bytes, value);
            }
        }
        Value::Attribute { data, .. } => push(bytes, *data),
        _ => line("-ERR the reply is of a kind that is not read on a connection of a pool".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[u8] = b"$3\r\nabc\r\n-READONLY no\r\n+OK\r\n>2\r\n+a\r\n:1\r\n$-1\r\n$0\r\n\r\n*2\r\n*1\r\n$1\r\nx\r\n%1\r\n:1\r\n_\r\n:7\r\n*2\r\n:1\r\n*0\r\n*0\r\n";

    fn all<'a>(mut received: &'a [u8], seen: &mut Vec<String>) -> &'a [u8] {
        while let Some((reply, end)) = next(received).expect("RESP") {
            seen.push(format!("{reply:?}"));
            received = &received[end..];
        }
        received
    }

    #[test]
    fn a_reply_is_whole_wherever_it_is_cut() {
        let mut whole = Vec::new();
        assert!(all(ALL, &mut whole).is_empty());
        assert_eq!(whole.len(), 10, "{whole:?}");
        assert_eq!(whole[0], "Bytes([97, 98, 99])");
        assert!(whole[1].contains("READONLY") || whole[1].contains("ReadOnly"), "{whole:?}");
        for cut in 0..ALL.len() {
            let mut seen = Vec::new();
            let rest = [all(&ALL[..cut], &mut seen), &ALL[cut..]].concat();
            all(&rest, &mut seen);
            assert_eq!(seen, whole, "{cut}");
        }
    }

    #[test]
    fn what_is_no_reply_ends_the_connection() {
        let deep = b"*1\r\n".repeat(40);
        let wrong = [
            &b"x\r\n"[..],
            b"$x\r\n",
            b"$3\r\nabcde",
            b"$99999999999\r\n",
            b"\r\n",
            b"$-2\r\n",
            b"+a\n",
            b"*1\r\n\r\n",
            &deep,
        ];
        for wrong in wrong {
            assert_eq!(next(wrong).map(drop), Err(OutOfStep), "{wrong:?}");
        }
        assert_eq!(next(&vec![b'+'; MAX_LINE + 2]).map(drop), Err(OutOfStep));
    }

    #[test]
    fn an_endless_reply_of_strings_or_of_small_values_ends_the_connection() {
        let string = [b"$60000000\r\n", &vec![0; 60_000_000][..], b"\r\n"].concat();
        let endless = |value: &[u8], times| [b">60000000\r\n", &value.repeat(times)[..]].concat();
        for (value, most) in [(&string[..], 1), (b"_\r\n", MAX_LINES / 3 - 3)] {
            assert!(matches!(next(&endless(value, most)), Ok(None)));
            assert_eq!(next(&endless(value, most + 1)).map(drop), Err(OutOfStep));
        }
    }
}
