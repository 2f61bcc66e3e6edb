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
        let characters = String::from_utf8_lossy(&before[start..]);
        // A byte order mark is no character of the line.
        (line, characters.trim_start_matches('\u{feff}').chars().count() + 1)
    }
}

/// Returns the first 64 characters of a text, and an ellipsis if there are more.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the text with control characters escaped, as some of it may come from the file.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        // Line separators and marks of direction would change how the line is shown.
        let is_hidden =
            matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || is_hidden { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}
