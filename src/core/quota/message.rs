//! Messages with numbers, for constants, where `format!` is not available.

use std::time::Duration;

const MAX_LEN: usize = 256;

pub(super) struct Message {
    bytes: [u8; MAX_LEN],
    length: usize,
}

impl Message {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; MAX_LEN], length: 0 }
    }

    pub(super) const fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    pub(super) const fn text(&mut self, text: &str) {
        let mut at = 0;
        while at < text.len() {
            self.push(text.as_bytes()[at]);
            at += 1;
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "it is a digit")]
    pub(super) const fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.push(b'0' + (number % 10) as u8);
    }

    pub(super) const fn time(&mut self, time: Duration) {
        let (seconds, nanos) = (time.as_secs(), time.subsec_nanos() as u64);
        let (unit, name) = match (seconds, nanos) {
            (0, 0..1_000) => (1, "ns"),
            (0, 0..1_000_000) => (1_000, "µs"),
            (0, _) => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        self.number(seconds + nanos / unit);
        let (mut rest, mut digit) = (nanos % unit, unit / 10);
        if rest > 0 {
            self.push(b'.');
        }
        while rest > 0 {
            self.number(rest / digit);
            rest %= digit;
            digit /= 10;
        }
        self.text(name);
    }

    pub(super) const fn as_str(&self) -> &str {
        match str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(text) => text,
            Err(_) => panic!("it is of whole texts"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_are_written_as_usual(seconds in 0..u64::MAX, nanos in 0..1_000_000_000_u32, cut in 0..9_u32) {
            let short = nanos / 10_u32.pow(cut);
            for time in [
                Duration::new(seconds, short),
                Duration::new(0, short),
                Duration::new(0, short * 10_u32.pow(cut)),
                Duration::ZERO,
                Duration::MAX,
            ] {
                let mut message = Message::new();
                message.time(time);
                prop_assert_eq!(message.as_str(), format!("{time:?}"));
            }
        }
    }
}
