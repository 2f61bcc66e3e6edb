//! A request, as it is written.

use std::fmt;

use http::{HeaderName, HeaderValue, Request};

/// What a client writes.
#[derive(Clone)]
pub(crate) struct Spelling {
    pub(crate) method: String,
    /// In origin form or in absolute form.
    pub(crate) target: String,
    pub(crate) lines: Vec<(&'static str, Vec<u8>)>,
}

impl fmt::Debug for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{} {}", self.method, self.target)?;
        self.lines.iter().try_for_each(|(name, line)| write!(f, ", {name}: \"{}\"", line.escape_ascii()))?;
        f.write_str("`")
    }
}

impl Spelling {
    pub(crate) fn get(target: impl Into<String>) -> Self {
        Self { method: "GET".to_owned(), target: target.into(), lines: Vec::new() }
    }

    /// A request with lines of one header.
    pub(crate) fn with(name: &'static str, lines: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        let lines = lines.into_iter().map(|line| (name, line.into())).collect();
        Self { lines, ..Self::get("/") }
    }

    /// The request, if there can be one.
    pub(crate) fn request(&self) -> Option<Request<()>> {
        let mut request = Request::builder().method(self.method.as_str()).uri(self.target.as_str()).body(()).ok()?;
        for (name, line) in &self.lines {
            let value = HeaderValue::from_bytes(line).ok()?;
            request.headers_mut().append(HeaderName::from_static(name), value);
        }
        Some(request)
    }
}
