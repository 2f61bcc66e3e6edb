//! Numbers as decimal text, without the machinery of `Display`, for what is written for each request.

/// The digits of a number: at most 20, without leading zeros.
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    /// Writes a number.
    #[inline]
    pub(crate) fn of(mut number: u64) -> Self {
        let (mut bytes, mut start) = ([b'0'; 20], 20);
        loop {
            start -= 1;
            bytes[start] += (number % 10).to_le_bytes()[0];
            number /= 10;
            if number == 0 {
                return Self { bytes, start };
            }
        }
    }

    /// Returns the digits as ASCII.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Returns the digits as text.
    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).expect("digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_display() {
        let powers = (0..20).map(|power| 10_u64.pow(power)).flat_map(|power| [power - 1, power, power + 1]);
        for number in powers.chain([u64::MAX - 1, u64::MAX]).chain(0..2_000) {
            assert_eq!(Digits::of(number).as_str(), number.to_string());
        }
    }
}
