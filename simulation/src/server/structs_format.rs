//! Formats of Lua's `struct` library, as Redis has it.

use super::lua::Raised;

/// The most bytes of a number.
const MOST_BYTES: usize = 32;

/// The alignment of a C compiler's doubles.
const MOST_ALIGNED: usize = 8;

/// Reads a format item by item.
pub(super) struct Format<'a> {
    rest: &'a [u8],
    pub(super) big: bool,
    align: usize,
}

impl<'a> Format<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Self { rest: &text[..end], big: false, align: 1 }
    }

    /// The next item and its size: those that only say how to read the others are taken in.
    pub(super) fn next(&mut self) -> Result<Option<(u8, usize)>, Raised> {
        while let Some((option, rest)) = self.rest.split_first() {
            self.rest = rest;
            match option {
                b'b' | b'B' | b'x' => return Ok(Some((*option, 1))),
                b'h' | b'H' => return Ok(Some((*option, 2))),
                b'f' => return Ok(Some((*option, 4))),
                b'l' | b'L' | b'T' | b'd' => return Ok(Some((*option, 8))),
                b'c' => return Ok(Some((*option, self.number(1)?))),
                b's' => return Ok(Some((*option, 0))),
                b'i' | b'I' => return Ok(Some((*option, self.size()?))),
                other => self.control(*other)?,
            }
        }
        Ok(None)
    }

    /// How many bytes there are before an item that begins at `place`, so that it is aligned.
    pub(super) fn padding(&self, place: usize, (option, size): (u8, usize)) -> usize {
        let size = size.min(self.align);
        if option == b'c' || !size.is_power_of_two() {
            return 0;
        }
        (size - (place & (size - 1))) & (size - 1)
    }

    fn size(&mut self) -> Result<usize, Raised> {
        let size = self.number(4)?;
        if size > MOST_BYTES {
            return Err(Raised::Error(format!("integral size {size} is larger than limit of {MOST_BYTES}")));
        }
        Ok(size)
    }

    fn control(&mut self, option: u8) -> Result<(), Raised> {
        match option {
            b' ' => {}
            b'>' => self.big = true,
            b'<' => self.big = false,
            b'!' => self.align = self.number(MOST_ALIGNED)?,
            other => return Err(Raised::Argument(1, format!("invalid format option '{}'", char::from(other)))),
        }
        if self.align.is_power_of_two() {
            return Ok(());
        }
        Err(Raised::Error(format!("alignment {} is not a power of 2", self.align)))
    }

    fn number(&mut self, otherwise: usize) -> Result<usize, Raised> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if text.is_empty() {
            return Ok(otherwise);
        }
        let number: Option<i32> = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| Raised::Error("integral size overflow".to_owned()))?;
        Ok(usize::try_from(number).expect("digits have no sign"))
    }
}
