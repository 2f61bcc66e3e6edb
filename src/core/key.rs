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
        Text::start(kind).with_value(value.as_ref())
    }

    /// A key of a kind and a value in which there is nothing to escape.
    #[cfg(feature = "axum")]
    pub(crate) fn plain(kind: &str, value: &[u8]) -> Self {
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
        Text::start(kind).with_hash(value.as_ref())
    }

    /// A key whose whole text is known.
    pub(crate) const fn fixed(text: &'static str) -> Self {
        Self { text: SmolStr::new_static(text) }
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

    /// The escaped kind and value of each key that was joined, or of this one.
    pub(crate) fn joined(&self) -> impl Iterator<Item = (&str, &str)> {
        // Neither is in what was escaped.
        let (kinds, values) = self.parts();
        kinds.split('+').zip(values.split(JOINED))
    }

    /// The escaped values of keys that were joined; else the only one.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.value().split(JOINED)
    }

    /// Whether a value is not there, but a hash of it.
    pub(crate) fn is_hash(value: &str) -> bool {
        value.as_bytes().first() == Some(&HASHED)
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_once(':').expect("a key has a kind")
    }
}

/// What all keys of a kind start with, rendered once.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// `<kind>:`, escaped.
    text: SmolStr,
}

impl Kind {
    pub(crate) fn new(kind: &str) -> Self {
        Self { text: Text::start(kind).into_text() }
    }

    /// A kind that is known with its colon, and in which there is nothing to escape.
    pub(crate) const fn fixed(text: &'static str) -> Self {
        Self { text: SmolStr::new_static(text) }
    }

    /// As [`Key::new`].
    pub(crate) fn key(&self, value: &[u8]) -> Key {
        Text::of(self).with_value(value)
    }

    /// As [`Key::hashed`].
    pub(crate) fn hashed(&self, value: &[u8]) -> Key {
        Text::of(self).with_hash(value)
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

    fn of(kind: &Kind) -> Self {
        Self { bytes: SmallVec::from_slice(kind.text.as_bytes()) }
    }

    fn with_value(mut self, value: &[u8]) -> Key {
        let kind = self.bytes.len();
        if value.len() <= LONGEST {
            self.escape(value, ESCAPED);
            if self.bytes.len() - kind <= LONGEST {
                return self.into_key();
            }
            self.bytes.truncate(kind);
        }
        self.with_hash(value)
    }

    fn with_hash(mut self, value: &[u8]) -> Key {
        self.push(&[HASHED]);
        self.push(&hex(blake3::hash(value).as_bytes()));
        self.into_key()
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
        Key { text: self.into_text() }
    }

    fn into_text(self) -> SmolStr {
        SmolStr::new(std::str::from_utf8(&self.bytes).expect("escaped text is ASCII"))
    }
}

/// The first half of a hash as text.
fn hex(hash: &[u8; 32]) -> [u8; 32] {
    let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    digits
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
    fn a_hash_is_the_first_half_of_the_values_own() {
        let digits = blake3::hash(b"ada").to_hex();
        assert_eq!(Key::hashed("k", "ada").as_str(), format!("k:#{}", &digits[..32]));
    }

    #[test]
    fn a_kind_rendered_before_makes_the_keys_it_would_make_each_time() {
        for kind in ["", "bearer", "header x-api-key", "a:b+c%d{e"] {
            for value in [String::new(), "a}b c".to_owned(), "x".repeat(65), "é".repeat(32)] {
                assert_eq!(Kind::new(kind).key(value.as_bytes()), Key::new(kind, &value));
                assert_eq!(Kind::new(kind).hashed(value.as_bytes()), Key::hashed(kind, &value));
            }
        }
        assert_eq!(Kind::fixed("bearer:").key(b"ada"), Key::new("bearer", "ada"));
        assert_eq!(Key::fixed("global:"), Key::new("global", ""));
    }

    #[test]
    fn joined_keys_do_not_run_into_each_other() {
        let join = |a: &str, b: &str| Key::new("a", a).join(&Key::new("b", b));
        assert_eq!(join("1", "2").as_str(), "a+b:1|2");
        assert_ne!(join("1|", "2"), join("1", "|2"));
        assert_ne!(join("", "x"), join("x", ""));
    }
}
