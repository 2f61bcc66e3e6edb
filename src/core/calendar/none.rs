//! What stands for calendars where the feature `calendar` is off: there are none, so that no signature depends on it.

use super::window::{Around, Unit, Window};

/// A unit in a time zone, of which there is none.
pub(super) enum Zoned {}

impl Zoned {
    pub(super) fn unit(&self) -> Unit {
        match *self {}
    }

    pub(super) fn zone(&self) -> &str {
        match *self {}
    }

    pub(super) fn name(&self) -> &str {
        match *self {}
    }

    pub(super) fn number(&self) -> u64 {
        match *self {}
    }

    pub(super) fn window_at(&self, _: u64) -> Window {
        match *self {}
    }

    pub(super) fn around(&self, _: u64) -> Around {
        match *self {}
    }
}
