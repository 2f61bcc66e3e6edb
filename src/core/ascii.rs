//! ASCII text that is copied, compared and hashed far more often than it is read as text.
//!
//! Up to [`SHORT`] bytes are kept inline. Reading them as bytes is free. Reading them as text checks them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use smol_str::SmolStr;

/// Bytes kept inline: an [`Ascii`] then has four words, and fits an address with its kind.
const SHORT: usize = 30;

#[derive(Clone)]
pub(super) enum Ascii {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(SmolStr),
}

impl Ascii {
    /// Keeps bytes that the caller knows to be ASCII.
    ///
    /// # Panics
    ///
    /// If they are not UTF-8 and longer than [`SHORT`]. Shorter ones panic when they are read as text.
    #[inline]
    pub(super) fn new(ascii: &[u8]) -> Self {
        debug_assert!(ascii.is_ascii(), "{ascii:?}");
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..ascii.len()), u8::try_from(ascii.len())) {
            (Some(room), Ok(length)) => {
                room.copy_from_slice(ascii);
                Self::Short { length, bytes }
            }
            _ => Self::Long(SmolStr::new(str::from_utf8(ascii).expect("ASCII is UTF-8"))),
        }
    }

    /// Keeps the first bytes of an array, all of which must be ASCII.
    ///
    /// It copies `SHORT` bytes whatever the length, so that no branch depends on it.
    #[inline]
    pub(super) fn start_of<const N: usize>(ascii: &[u8; N], length: usize) -> Self {
        match (ascii.first_chunk(), u8::try_from(length)) {
            (Some(bytes), Ok(short)) if length <= SHORT => Self::Short { length: short, bytes: *bytes },
            _ => Self::new(&ascii[..length]),
        }
    }

    /// `None` if both together are too long to be kept inline.
    #[inline]
    pub(super) fn joined(start: &[u8], end: &[u8]) -> Option<Self> {
        let length = start.len() + end.len();
        let mut bytes = [0; SHORT];
        let (first, second) = bytes.get_mut(..length)?.split_at_mut(start.len());
        first.copy_from_slice(start);
        second.copy_from_slice(end);
        Some(Self::Short { length: u8::try_from(length).ok()?, bytes })
    }

    pub(super) const fn constant(text: &'static str) -> Self {
        Self::Long(SmolStr::new_static(text))
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(text) => text.as_bytes(),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Short { .. } => str::from_utf8(self.as_bytes()).expect("ASCII is UTF-8"),
            Self::Long(text) => text,
        }
    }
}

impl PartialEq for Ascii {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Ascii {}

impl PartialOrd for Ascii {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ascii {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Ascii {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
        // Not an ASCII byte, so that hashed text cannot run into the value that follows.
        state.write_u8(0xff);
    }
}

impl fmt::Debug for Ascii {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn text_is_the_same_wherever_it_is_kept() {
        let hasher = std::hash::RandomState::new();
        let long = "0123456789".repeat(7);
        for length in 0..=long.len() {
            let text = &long[..length];
            let (kept, other) = (Ascii::new(text.as_bytes()), Ascii::Long(text.into()));
            assert_eq!((kept.as_str(), kept.as_bytes()), (text, text.as_bytes()));
            assert!(kept == other && hasher.hash_one(&kept) == hasher.hash_one(&other));
            assert_eq!(kept.cmp(&Ascii::constant("0123456")), text.cmp("0123456"));
            assert_eq!(matches!(kept, Ascii::Short { .. }), length <= SHORT);
            let (start, end) = text.as_bytes().split_at(length / 3);
            assert_eq!(Ascii::joined(start, end), (length <= SHORT).then_some(kept));
        }
    }

    #[test]
    fn what_is_behind_the_length_is_no_part_of_the_text() {
        let (some, other) = (*b"ip:203.0.113.9 and what was written before that, or spaces", [b'x'; 58]);
        for length in 0..=some.len() {
            let kept = Ascii::start_of(&some, length);
            assert_eq!(kept.as_bytes(), &some[..length]);
            assert!(kept == Ascii::new(&some[..length]));
            assert_eq!(kept == Ascii::start_of(&other, length), length == 0);
        }
    }
}
