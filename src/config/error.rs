//! Errors with their position in a file.
//!
//! A span of bytes and a message come in; an [`Error`] goes out whose message is one line:
//! `FILE line N: MESSAGE (column N)`, without the file where only a text is known. Lines and columns begin at 1, and
//! columns count characters.

use std::fmt::Display;
use std::ops::Range;

use crate::core::Error;

/// A file's text, and its name if it has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// The path it was read from.
    pub(super) name: Option<&'a str>,
    /// All of its text, which places refer to.
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Returns an error in the text at `span`.
    pub(super) fn error(&self, span: &Range<usize>, message: impl Display) -> Error {
        let name = self.name.map(|name| format!("{name} ")).unwrap_or_default();
        let (line, column) = self.place(span.start);
        let message = message.to_string().replace('\n', " ");
        Error::invalid(one_line(&format!("{name}line {line}: {message} (column {column})")))
    }

    /// The line of a byte, and which of the line's characters it begins, both from 1; the end of the file belongs to
    /// its last line.
    pub(super) fn place(&self, byte: usize) -> (usize, usize) {
        let text = self.text.as_bytes();
        let before = &text[..byte.min(text.trim_ascii_end().len())];
        let line = before.split(|byte| *byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        (line, String::from_utf8_lossy(&before[start..]).chars().count() + 1)
    }
}

/// Returns the text with control characters escaped, as some of it may come from the file.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}
