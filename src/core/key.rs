//! Keys, which identify the clients whose requests are counted.
//!
//! An extractor makes a [`Key`] from bytes that a client may have chosen. Its text is escaped, bounded in length and
//! the same in every process, so stores and logs can use it as it is: it cannot end a Redis key early, nor pass for
//! another key. Secrets are hashed.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use smallvec::SmallVec;

use super::Error;
use super::ascii::Ascii;

const MAX_LEN: usize = 64;

const MAX_PARSED: usize = 1_024;

/// First byte of a hash, which escaped text never has.
const HASHED: u8 = b'#';

const JOINED: &str = "|";

/// Printable characters that are escaped. Bytes outside of printable ASCII are always escaped.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'{').add(b'}').add(b'%').add(b'#').add(b'|');

/// Bytes that are not escaped in values.
const PLAIN: [bool; 256] = {
    let (mut plain, mut byte) = ([false; 256], 0_u8);
    while byte < u8::MAX {
        plain[byte as usize] = byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'%' | b'#' | b'|');
        byte += 1;
    }
    plain
};

const ESCAPED_IN_KINDS: &AsciiSet = &CONTROLS.add(b'{').add(b'}').add(b'%').add(b':').add(b'+');

/// The identity under which requests are counted: a kind, such as `user`, and a value of that kind.
///
/// The text of a key is safe in a Redis key whatever bytes it was made from: control characters, spaces, `{`, `}`, `%`,
/// `#`, `|` and bytes that are not ASCII are percent-encoded. A value that is then longer than 64 bytes is replaced by
/// a 128-bit hash (BLAKE3). Different values have different texts, up to collisions of that hash.
///
/// Up to 30 bytes of text are kept inline. Cloning is cheap in any case.
///
/// With the feature `serde` a key is serialized as its text, and deserialized by parsing the text.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
///
/// assert_eq!(Key::new("user", "ada").as_str(), "user:ada");
/// assert_eq!(Key::new("user", "a}b c").as_str(), "user:a%7Db%20c");
///
/// let long = Key::new("path", "a".repeat(65));
/// assert_eq!(long.as_str().len(), "path:#".len() + 32);
/// ```
///
/// A key can be parsed from its displayed text, which logs and the names of counters contain:
///
/// ```
/// use tollgate::Key;
///
/// let key: Key = "user:a%7Db%20c".parse()?;
/// assert_eq!(key, Key::new("user", "a}b c"));
/// assert!("user:a}b c".parse::<Key>().is_err(), "it is not escaped");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[must_use]
pub struct Key {
    text: Ascii,
}

impl Key {
    /// Creates a key whose value is readable in the store and in logs.
    ///
    /// Use [`hashed`](Self::hashed) for secrets. A kind is escaped as well, including `:` and `+`. Its length is not
    /// bounded, because code chooses it.
    pub fn new(kind: &str, value: impl AsRef<[u8]>) -> Self {
        KeyText::start(kind).with_value(value.as_ref())
    }

    /// The start of the array is the whole text: a kind, a colon and a value that needs no escaping.
    #[inline]
    pub(crate) fn plain<const N: usize>(ascii: &[u8; N], length: usize) -> Self {
        Self { text: Ascii::start_of(ascii, length) }
    }

    /// Creates a key from a secret. Only a 128-bit hash leaves the process.
    ///
    /// The hash is not salted, so that all processes have the same key. Anyone who can read the store can verify a
    /// guessed secret.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let key = Key::hashed("token", "s3cret");
    /// assert!(key.as_str().starts_with("token:#"));
    /// assert_eq!(key, Key::hashed("token", "s3cret"));
    /// ```
    pub fn hashed(kind: &str, value: impl AsRef<[u8]>) -> Self {
        KeyText::start(kind).with_hash(value.as_ref())
    }

    pub(crate) const fn fixed(text: &'static str) -> Self {
        Self { text: Ascii::constant(text) }
    }

    /// Joins two keys into one, with a counter for each pair of values, like the keys of a
    /// [tuple](crate::key::KeyExtractor) of extractors.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let key = Key::new("user", "ada").join(&Key::new("route", "/search"));
    /// assert_eq!(key.as_str(), "user+route:ada|/search");
    /// ```
    pub fn join(&self, other: &Key) -> Self {
        let ((kind, value), (other_kind, other_value)) = (self.parts(), other.parts());
        let mut text = KeyText::default();
        for part in [kind, "+", other_kind, ":", value, JOINED, other_value] {
            text.push(part.as_bytes());
        }
        text.into_key()
    }

    /// Returns the escaped text: `<kind>:<value>`.
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    pub(crate) fn kind(&self) -> &str {
        self.parts().0
    }

    pub(crate) fn value(&self) -> &str {
        self.parts().1
    }

    pub(crate) fn joined(&self) -> impl Iterator<Item = (&str, &str)> {
        // Escaped kinds have no `+`, escaped values no `|`.
        let (kinds, values) = self.parts();
        kinds.split('+').zip(values.split(JOINED))
    }

    pub(crate) fn is_hash(value: &str) -> bool {
        value.as_bytes().first() == Some(&HASHED)
    }

    fn parts(&self) -> (&str, &str) {
        self.as_str().split_once(':').expect("a key has a kind")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyKind {
    text: Ascii,
}

impl KeyKind {
    pub(crate) fn new(kind: &str) -> Self {
        Self { text: Ascii::new(&KeyText::start(kind).bytes) }
    }

    /// `text` needs no escaping, and ends with a colon.
    pub(crate) const fn fixed(text: &'static str) -> Self {
        Self { text: Ascii::constant(text) }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.text.as_str().trim_end_matches(':')
    }

    /// Most values are short and need no escaping, so they are copied at once.
    pub(crate) fn key(&self, value: &[u8]) -> Key {
        let is_plain = value.iter().all(|byte| PLAIN[usize::from(*byte)]);
        let text = if is_plain { Ascii::joined(self.text.as_bytes(), value) } else { None };
        text.map_or_else(|| KeyText::from_kind(self).with_value(value), |text| Key { text })
    }

    pub(crate) fn hashed(&self, value: &[u8]) -> Key {
        KeyText::from_kind(self).with_hash(value)
    }
}

#[derive(Default)]
struct KeyText {
    bytes: SmallVec<[u8; 128]>,
}

impl KeyText {
    fn start(kind: &str) -> Self {
        let mut text = Self::default();
        text.escape(kind.as_bytes(), ESCAPED_IN_KINDS);
        text.push(b":");
        text
    }

    fn from_kind(kind: &KeyKind) -> Self {
        Self { bytes: SmallVec::from_slice(kind.text.as_bytes()) }
    }

    fn with_value(mut self, value: &[u8]) -> Key {
        let kind = self.bytes.len();
        if value.len() <= MAX_LEN {
            self.escape(value, ESCAPED);
            if self.bytes.len() - kind <= MAX_LEN {
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
        Key { text: Ascii::new(&self.bytes) }
    }
}

fn hex(hash: &[u8; 32]) -> [u8; 32] {
    let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    digits
}

/// Parses the displayed text of a key: escaped, with a value of at most 64 bytes or a hash. Do not parse text from
/// requests, because it would choose a counter.
///
/// # Errors
///
/// If no key has this text, or it is longer than 1,024 bytes.
impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_key = text.len() <= MAX_PARSED
            && text.split_once(':').is_some_and(|(kinds, values)| {
                kinds.split('+').count() == values.split(JOINED).count()
                    && kinds.split('+').all(is_kind)
                    && values.split(JOINED).all(is_value)
            });
        if !is_key {
            return Err(Error::invalid(
                "the text of a key must be a kind, a colon and an escaped value, as a key displays them",
            ));
        }
        Ok(Self { text: Ascii::new(text.as_bytes()) })
    }
}

fn is_kind(text: &str) -> bool {
    is_escaped(text, ESCAPED_IN_KINDS) && percent_decode_str(text).decode_utf8().is_ok()
}

fn is_value(text: &str) -> bool {
    match text.strip_prefix(char::from(HASHED)) {
        Some(hash) => hash.len() == 32 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        None => text.len() <= MAX_LEN && is_escaped(text, ESCAPED),
    }
}

fn is_escaped(text: &str, escaped: &'static AsciiSet) -> bool {
    let decoded: Cow<'_, [u8]> = percent_decode_str(text).into();
    Cow::from(percent_encode(&decoded, escaped)) == text
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
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
            assert_eq!(key, KeyKind::new("k").key(&[byte]), "{byte}");
        }
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
