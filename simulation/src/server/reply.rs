//! Answers, and their bytes in RESP2.

use std::borrow::Cow;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status, such as `OK`.
    Simple(Cow<'static, str>),
    /// An error: its code and text, without the `-` before them.
    Error(String),
    /// A whole number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// Several answers.
    Array(Vec<Reply>),
}

impl Reply {
    /// `OK`.
    pub const OK: Self = Self::Simple(Cow::Borrowed("OK"));

    /// Bytes of a text.
    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    /// A number of bytes, keys or fields.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).expect("there is not so much memory"))
    }

    /// An error of a code and a text.
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    /// Writes its bytes behind those that are there.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => line(out, b'-', text.as_bytes()),
            Self::Integer(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Bulk(bytes) => {
                line(out, b'$', bytes.len().to_string().as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Array(items) => {
                line(out, b'*', items.len().to_string().as_bytes());
                for item in items {
                    item.write(out);
                }
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}
