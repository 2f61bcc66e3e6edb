//! How a key is read, in words before it: `last:cookie:session`.

use std::mem;
use std::ops::Range;

use super::fault::Fault;
use crate::http::key::reading::Reading;

/// Which of several values counts, and whether the case of letters does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choices {
    pick: Option<Pick>,
    ignores_case: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    First,
    Last,
}

impl Choices {
    /// Reads the choices, and returns what is left of the text.
    pub(super) fn read<'a>(span: &Range<usize>, given: &'a str) -> Result<(Self, &'a str), Fault> {
        let (mut choices, mut rest) = (Self::default(), given);
        while let Some((word, after)) = rest.split_once(':') {
            let is_second = match word {
                "first" => choices.pick.replace(Pick::First).is_some(),
                "last" => choices.pick.replace(Pick::Last).is_some(),
                "ignore_case" => mem::replace(&mut choices.ignores_case, true),
                _ => break,
            };
            if is_second {
                let message = format!("key {given:?} chooses twice: give first or last, and ignore_case, once each");
                return Err(Fault::at(span.clone(), message));
            }
            rest = after;
        }
        Ok((choices, rest))
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    pub(super) fn picks(self) -> bool {
        self.pick.is_some()
    }

    pub(super) fn apply(self, reading: Reading) -> Reading {
        let reading = match self.pick {
            Some(Pick::First) => reading.first(),
            Some(Pick::Last) => reading.last(),
            None => reading,
        };
        if self.ignores_case { reading.ignore_case() } else { reading }
    }
}
