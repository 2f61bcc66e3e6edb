//! The text of a key: escaped, bounded, and the same in every store.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use smallvec::SmallVec;
use smol_str::SmolStr;

/// Escaped text longer than this is replaced by its hash.
const LONGEST: usize = 64;

/// What a hash starts with: escaping never yields it.
const HASHED: u8 = b'#';

/// Between the parts of joined keys.
const JOINED: &str = "|";

/// What is not printable ASCII is escaped anyway.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'{').add(b'}').add(b'%').add(b'#').add(b'|');

/// Who is counted: a kind, and a value of that kind.
///
/// A key's text is safe to put into a Redis key whatever bytes it was made from: braces, control
/// characters, spaces and non-ASCII bytes are percent-encoded, and what is then longer than 64
/// bytes is replaced by a 128-bit hash (BLAKE3). Different values have different texts.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
///
/// assert_eq!(Key::new("user", "ada").as_str(), "user:ada");
/// assert_eq!(Key::new("user", "a}b c").as_str(), "user:a%7Db%20c");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `<kind>:<value>`, escaped.
    text: SmolStr,
}

impl Key {
    /// A key of a value that may be seen by whoever can read the store.
    pub fn new(kind: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        if value.len() > LONGEST {
            return Self::hashed(kind, value);
        }
        let mut text = Text::start(kind);
        let from = text.bytes.len();
        text.escape(value, ESCAPED);
        if text.bytes.len() - from > LONGEST {
            return Self::hashed(kind, value);
        }
        text.into_key()
    }

    /// A key of a kind and a value in which there is nothing to escape.
    #[cfg(feature = "axum")]
    pub(super) fn plain(kind: &str, value: &[u8]) -> Self {
        let mut text = Text::default();
        text.push(kind.as_bytes());
        text.push(b":");
        text.push(value);
        text.into_key()
    }

    /// A key of a secret: only a hash of it leaves the process.
    ///
    /// The hash is not salted, so that all processes count alike: a secret that can be guessed can
    /// be found by trying.
    pub fn hashed(kind: &str, value: impl AsRef<[u8]>) -> Self {
        let hash = blake3::hash(value.as_ref());
        let mut hashed = [HASHED; 33];
        for (digits, byte) in hashed[1..].chunks_exact_mut(2).zip(hash.as_bytes()) {
            digits.copy_from_slice(&[byte >> 4, byte & 15].map(|nibble| b"0123456789abcdef"[usize::from(nibble)]));
        }
        let mut text = Text::start(kind);
        text.push(&hashed);
        text.into_key()
    }

    /// A key of two: as many counters as there are pairs.
    pub fn join(&self, other: &Key) -> Self {
        let ((kind, value), (other_kind, other_value)) = (self.parts(), other.parts());
        let mut text = Text::default();
        for part in [kind, "+", other_kind, ":", value, JOINED, other_value] {
            text.push(part.as_bytes());
        }
        text.into_key()
    }

    /// The escaped text: `<kind>:<value>`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The escaped value, without the kind.
    pub(crate) fn value(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_once(':').expect("a key has a kind")
    }
}

/// A key's text, being written: ASCII.
#[derive(Default)]
struct Text {
    bytes: SmallVec<[u8; 128]>,
}

impl Text {
    /// The escaped kind and a colon; a colon in the kind is escaped too.
    fn start(kind: &str) -> Self {
        const KIND: &AsciiSet = &CONTROLS.add(b'{').add(b'}').add(b'%').add(b':').add(b'+');
        let mut text = Self::default();
        text.escape(kind.as_bytes(), KIND);
        text.push(b":");
        text
    }

    fn escape(&mut self, bytes: &[u8], escaped: &'static AsciiSet) {
        for part in percent_encode(bytes, escaped) {
            self.push(part.as_bytes());
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn into_key(self) -> Key {
        let text = std::str::from_utf8(&self.bytes).expect("escaped text is ASCII");
        Key { text: SmolStr::new(text) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_value_can_leave_its_braces() {
        for byte in 0..=255_u8 {
            let key = Key::new("k", [byte]);
            let text = key.as_str().strip_prefix("k:").unwrap();
            assert!(text.bytes().all(|b| b.is_ascii_graphic() && !b"{}#|".contains(&b)), "{byte}: {text}");
        }
    }

    #[test]
    fn different_values_have_different_texts() {
        let values: [&[u8]; 9] = [b"", b"a", b"%61", b"a|b", b"a%7Cb", b"#a", b"{a}", b"\xff", b"%FF"];
        let texts: std::collections::HashSet<_> = values.map(|value| Key::new("k", value)).into();
        assert_eq!(texts.len(), values.len());
    }

    #[test]
    fn a_long_value_is_a_hash_which_no_short_value_can_forge() {
        let long = Key::new("k", vec![b'x'; 1 << 20]);
        assert_eq!(long.as_str().len(), "k:#".len() + 32);
        let forged = Key::new("k", long.as_str().strip_prefix("k:").unwrap());
        assert_ne!(long, forged);
        assert_eq!(Key::new("k", "é".repeat(32)).as_str().len(), 35, "escaped it is longer than 64");
    }

    #[test]
    fn joined_keys_do_not_run_into_each_other() {
        let join = |a: &str, b: &str| Key::new("a", a).join(&Key::new("b", b));
        assert_eq!(join("1", "2").as_str(), "a+b:1|2");
        assert_ne!(join("1|", "2"), join("1", "|2"));
        assert_ne!(join("", "x"), join("x", ""));
    }
}
