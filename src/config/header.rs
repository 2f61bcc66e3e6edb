//! Headers by their names in files.

use std::ops::Range;

use http::HeaderName;

use super::fault::Fault;
use crate::http::key::field_value::is_normal;

/// Reads `header:NAME`, which is all that `what` can be.
pub(super) fn from_header(what: &str, span: Range<usize>, text: &str) -> Result<HeaderName, Fault> {
    match text.split_once(':') {
        Some(("header", name)) => header_name(&format!("{what} header:NAME"), span, name),
        _ => Err(Fault::at(span, format!("{what} {text:?} is unknown: give header:NAME"))),
    }
}

/// Reads the name of a header, which stands in `what`.
pub(super) fn header_name(what: &str, span: Range<usize>, name: &str) -> Result<HeaderName, Fault> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
        let message = format!("{what} has {name:?} for a name: give one such as x-api-key");
        Fault::at(span, message).caused_by(error)
    })
}

/// A text to compare with the values of a header, which come without white space around them.
pub(super) fn normal_value<'a>(what: &str, span: Range<usize>, text: &'a str) -> Result<&'a str, Fault> {
    if is_normal(text.as_bytes()) {
        return Ok(text);
    }
    Err(Fault::at(
        span,
        format!(
            "{what} has {text:?}, which no header can say: leave out white space around it, and control characters"
        ),
    ))
}
