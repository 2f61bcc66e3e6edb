//! Commands, as they come over a connection.

use bytes::{Buf, Bytes, BytesMut};

/// The most arguments of a command.
const MOST_ARGUMENTS: usize = 1024 * 1024;

/// The most bytes of an argument.
const MOST_BYTES: usize = 512 * 1024 * 1024;

/// Takes the first command out of what has come; `None` if it has not come as a whole.
///
/// # Errors
///
/// If it is no array of bulk strings.
pub fn read_command(buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, &'static str> {
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
    fn command(&mut self) -> Result<Option<Vec<std::ops::Range<usize>>>, &'static str> {
        let Some(count) = self.header(b'*', MOST_ARGUMENTS, "ERR Protocol error: invalid multibulk length")? else {
            return Ok(None);
        };
        let mut ranges = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            let Some(size) = self.header(b'$', MOST_BYTES, "ERR Protocol error: invalid bulk length")? else {
                return Ok(None);
            };
            if self.bytes.len() < self.place + size + 2 {
                return Ok(None);
            }
            ranges.push(self.place..self.place + size);
            self.place += size + 2;
        }
        Ok(Some(ranges))
    }

    /// A kind and a number, up to the end of the line.
    fn header(&mut self, kind: u8, most: usize, error: &'static str) -> Result<Option<usize>, &'static str> {
        let rest = &self.bytes[self.place..];
        if rest.first().is_some_and(|first| *first != kind) {
            return Err("ERR Protocol error: expected an array of bulk strings");
        }
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let number = str::from_utf8(&rest[1..end]).ok().and_then(|text| text.parse().ok());
        self.place += end + 2;
        number.filter(|number| *number <= most).map(Some).ok_or(error)
    }
}
