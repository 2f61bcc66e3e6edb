//! What is wrong with a file, and on which line.

use std::error::Error as StdError;
use std::ops::Range;

use toml::Spanned;

use crate::Error;

/// A mistake in a file, at a range of its bytes.
#[derive(Debug)]
pub(super) struct Fault {
    span: Option<Range<usize>>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Fault {
    /// A mistake in the value that stands at `span`.
    pub(super) fn at(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span: Some(span), message: message.into(), source: None }
    }

    /// A file that stops being text after `valid` bytes.
    pub(super) fn no_text(valid: usize, source: std::str::Utf8Error) -> Self {
        Self::at(valid..valid, "the file is not UTF-8 text: save it as UTF-8").caused_by(source)
    }

    pub(super) fn caused_by(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The error: one line of text that starts with the file, if it has a name, and the line.
    pub(super) fn in_file(self, file: Option<&str>, text: &[u8]) -> Error {
        let file = file.map(|file| format!("{file} ")).unwrap_or_default();
        let line = self.span.map_or(1, |span| line_of(span.start, text));
        let error = Error::invalid(one_line(&format!("{file}line {line}: {}", self.message)));
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

impl From<toml::de::Error> for Fault {
    fn from(mut error: toml::de::Error) -> Self {
        let span = error.span();
        // Without the input it shows no excerpt of the file, and names the field.
        error.set_input(None);
        let text = error.to_string();
        Self { span, message: text.trim_end().replace('\n', " "), source: None }
    }
}

/// The line of a byte, from 1; the end of the file belongs to its last line.
pub(super) fn line_of(place: usize, text: &[u8]) -> usize {
    let last = text.trim_ascii_end().len();
    text[..place.min(last)].split(|&byte| byte == b'\n').count()
}

/// The text with control characters escaped: some of it may come from the file.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}

/// Finds a value by its name, or lists the names there are.
pub(super) fn choose<T: Copy>(what: &str, name: &Spanned<String>, known: &[(&str, T)]) -> Result<T, Fault> {
    choose_word(what, name.span(), name.get_ref(), known)
}

/// As [`choose`], for a name that stands at `span`.
pub(super) fn choose_word<T: Copy>(
    what: &str,
    span: Range<usize>,
    name: &str,
    known: &[(&str, T)],
) -> Result<T, Fault> {
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Fault::at(span, format!("{what} {name:?} is unknown: give one of {}", names.join(", ")))
    })
}
