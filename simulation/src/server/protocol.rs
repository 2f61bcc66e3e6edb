//! Commands, as they come over a connection.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// The most arguments of a command.
const MOST_ARGUMENTS: usize = 1024 * 1024;

/// The most bytes of an argument.
const MOST_BYTES: usize = 512 * 1024 * 1024;

/// What came is no command: a server answers with this and closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError(&'static str);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERR Protocol error: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

/// Takes the first command out of what has come; `None` if it has not come as a whole.
///
/// # Errors
///
/// If it is no array of bulk strings.
pub fn read_command(buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
    let mut reader = Reader { bytes: buffer, place: 0 };
    let Some(ranges) = reader.command()? else { return Ok(None) };
    let size = reader.place;
    let bytes = buffer.copy_to_bytes(size);
    Ok(Some(ranges.into_iter().map(|range| bytes.slice(range)).collect()))
}

struct Reader<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Reader<'_> {
    fn command(&mut self) -> Result<Option<Vec<std::ops::Range<usize>>>, ProtocolError> {
        let Some(count) = self.header(b'*', MOST_ARGUMENTS, "invalid multibulk length")? else { return Ok(None) };
        let mut ranges = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            let Some(size) = self.header(b'$', MOST_BYTES, "invalid bulk length")? else { return Ok(None) };
            if self.bytes.len() < self.place + size + 2 {
                return Ok(None);
            }
            ranges.push(self.place..self.place + size);
            self.place += size + 2;
        }
        Ok(Some(ranges))
    }

    /// A kind and a number, up to the end of the line.
    fn header(&mut self, kind: u8, most: usize, error: &'static str) -> Result<Option<usize>, ProtocolError> {
        let rest = &self.bytes[self.place..];
        if rest.first().is_some_and(|first| *first != kind) {
            return Err(ProtocolError("expected an array of bulk strings"));
        }
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let number = str::from_utf8(&rest[1..end]).ok().and_then(|text| text.parse().ok());
        self.place += end + 2;
        number.filter(|number| *number <= most).map(Some).ok_or(ProtocolError(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_one_by_one_however_they_come() {
        let all = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$0\r\n\r\n";
        for cut in 0..all.len() {
            let mut buffer = BytesMut::from(&all[..cut]);
            let mut commands = Vec::new();
            while let Some(command) = read_command(&mut buffer).unwrap() {
                commands.push(command);
            }
            buffer.extend_from_slice(&all[cut..]);
            while let Some(command) = read_command(&mut buffer).unwrap() {
                commands.push(command);
            }
            assert_eq!(commands, [vec![&b"GET"[..], b"\r\n"], vec![b""]]);
        }
    }

    #[test]
    fn what_is_no_command_is_an_error() {
        for bytes in [&b"GET\r\n"[..], b"*1\r\n+OK\r\n", b"*x\r\n", b"*1\r\n$-1\r\n"] {
            assert!(read_command(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
    }
}
