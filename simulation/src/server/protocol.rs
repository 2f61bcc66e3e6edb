//! Commands, as they come over a connection.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// Takes the first command out of what has come; `None` if it has not come as a whole.
///
/// # Panics
///
/// If it is no array of bulk strings, which no client sends that is right.
pub fn read_command(buffer: &mut BytesMut) -> Option<Vec<Bytes>> {
    let mut reader = Reader { bytes: buffer, place: 0 };
    let ranges = reader.command()?;
    let size = reader.place;
    let bytes = buffer.copy_to_bytes(size);
    Some(ranges.into_iter().map(|range| bytes.slice(range)).collect())
}

struct Reader<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Reader<'_> {
    fn command(&mut self) -> Option<Vec<Range<usize>>> {
        let mut ranges = Vec::new();
        for _ in 0..self.header(b'*')? {
            let start = self.header(b'$').map(|size| self.place..self.place + size)?;
            self.place = start.end + 2;
            ranges.push(start);
        }
        (self.place <= self.bytes.len()).then_some(ranges)
    }

    /// A kind and a number, up to the end of the line.
    fn header(&mut self, kind: u8) -> Option<usize> {
        let rest = self.bytes.get(self.place..)?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        assert_eq!(rest[0], kind, "a command is an array of bulk strings: {}", rest.escape_ascii());
        self.place += end + 2;
        Some(str::from_utf8(&rest[1..end]).ok()?.parse().expect("a size is a number"))
    }
}
