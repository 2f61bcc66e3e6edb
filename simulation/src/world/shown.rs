//! What a trace shows of what passes.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::plan::Mishap;

impl Mishap {
    /// Its name among the kinds of faults.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CutBefore => "cut before a decision ran",
            Self::CutAfter => "cut after a decision ran",
            Self::Half => "half an answer",
            Self::Pause(_) => "a pause within an answer",
            Self::StrayBytes => "bytes that nothing asked for",
            Self::Stray => "an answer to nothing asked",
            Self::Late(_) => "a late answer",
        }
    }

    /// How long the answer is on its way for it.
    pub(super) fn lasts(self) -> Duration {
        match self {
            Self::Pause(millis) | Self::Late(millis) => Duration::from_millis(millis),
            _ => Duration::ZERO,
        }
    }
}

/// A command, with what can be read of it.
pub(super) struct Shown<'a>(pub(super) &'a [Bytes]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.0.iter().take(4).enumerate() {
            let text = &part[..part.len().min(if place == 0 { 12 } else { 48 })];
            write!(f, "{}{}", if place > 0 { " " } else { "" }, text.escape_ascii())?;
        }
        if self.0.len() > 4 { write!(f, " and {} more", self.0.len() - 4) } else { Ok(()) }
    }
}

/// The beginning of a reply.
pub(super) struct Start<'a>(pub(super) &'a [u8]);

impl fmt::Display for Start<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.0.split(|byte| *byte == b'\r').next().unwrap_or_default();
        write!(f, "{}", line[..line.len().min(80)].escape_ascii())
    }
}
