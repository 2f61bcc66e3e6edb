//! Where replies end, and what they are: RESP, by <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
//!
//! Only the strings that scripts return are read here; of all else this finds the end, and the redis crate reads it.

use deadpool_redis::redis::{RedisError, Value, parse_redis_value};

/// A reply.
#[derive(Debug)]
pub(super) enum Reply<'a> {
    Bytes(&'a [u8]),
    Error(RedisError),
    Other(Value),
    /// A message of the server, which is a reply to nothing.
    Pushed,
}

impl From<Value> for Reply<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::ServerError(error) => Self::Error(error.into()),
            other => Self::Other(other),
        }
    }
}

/// What follows is no reply: the connection is out of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfStep;

/// The longest reply: a batch of whole logs.
const LONGEST: usize = 64 << 20;

/// The longest line. Errors of scripts quote their arguments.
const LONGEST_LINE: usize = 64 << 10;

/// How deep values may lie in others.
const DEEPEST: u8 = 32;

/// Reads the next reply of what was received, and returns how long it is; `None` if it is not complete.
pub(super) fn next(received: &[u8]) -> Result<Option<(Reply<'_>, usize)>, OutOfStep> {
    let Some(end) = end_of(received, 0, DEEPEST)? else { return Ok(None) };
    let reply = &received[..end];
    let reply = match (reply[0], length(reply)?) {
        (b'$', Some((start, length))) => Reply::Bytes(&reply[start..start + length]),
        (b'>', _) => Reply::Pushed,
        _ => parse_redis_value(reply).map(Reply::from).map_err(|_| OutOfStep)?,
    };
    Ok(Some((reply, end)))
}

/// Reads the length of a value that begins here, and where what it counts begins. `None` of a null, and of a value
/// without a length.
fn length(value: &[u8]) -> Result<Option<(usize, usize)>, OutOfStep> {
    if !matches!(value[0], b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%') || value.get(1) == Some(&b'-') {
        return Ok(None);
    }
    let mut length = 0;
    for (place, byte) in value.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' if length <= LONGEST => length = 10 * length + usize::from(byte - b'0'),
            b'\r' if place > 1 && length <= LONGEST => {
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

/// Returns where the value ends that begins at `start`; `None` if that has not come yet.
fn end_of(received: &[u8], start: usize, depth: u8) -> Result<Option<usize>, OutOfStep> {
    let Some(kind) = received.get(start) else { return Ok(None) };
    let each = match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => return line(received, start),
        b'$' | b'=' | b'!' => 0,
        b'*' | b'~' | b'>' => 1,
        b'%' => 2,
        _ => return Err(OutOfStep),
    };
    let Some((first, length)) = length(&received[start..])? else {
        // A null, as of before RESP3, or not all of the length.
        return match received[start..].get(..5) {
            Some(b"$-1\r\n" | b"*-1\r\n") => Ok(Some(start + 5)),
            Some([_, b'-', ..]) => Err(OutOfStep),
            _ => Ok(None),
        };
    };
    let mut end = start + first;
    if each == 0 {
        end += length + 2;
        return match received.get(end - 2..end) {
            Some(b"\r\n") => Ok(Some(end)),
            Some(_) => Err(OutOfStep),
            None => Ok(None),
        };
    }
    let depth = depth.checked_sub(1).ok_or(OutOfStep)?;
    for _ in 0..each * length {
        match end_of(received, end, depth)? {
            Some(next) => end = next,
            None => return Ok(None),
        }
    }
    Ok(Some(end))
}

/// Returns where the line ends that begins at `start`.
fn line(received: &[u8], start: usize) -> Result<Option<usize>, OutOfStep> {
    let rest = &received[start..];
    match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && rest[end - 1] == b'\r' => Ok(Some(start + end + 1)),
        Some(_) => Err(OutOfStep),
        None if rest.len() > LONGEST_LINE => Err(OutOfStep),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[u8] = b"$3\r\nabc\r\n-READONLY no\r\n+OK\r\n>2\r\n+a\r\n:1\r\n$-1\r\n$0\r\n\r\n*2\r\n*1\r\n$1\r\nx\r\n%1\r\n:1\r\n_\r\n:7\r\n*2\r\n:1\r\n*0\r\n*0\r\n";

    /// What is in front, and the rest.
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
        assert_eq!(next(&vec![b'+'; LONGEST_LINE + 2]).map(drop), Err(OutOfStep));
    }
}
