//! Numbers as decimal text, without the machinery of `Display`, for what is written for each request.

/// The digits of the numbers below 100, two of each.
const PAIRS: [[u8; 2]; 100] = {
    let (mut pairs, mut number) = ([[b'0'; 2]; 100], 0);
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// The digits of a number: at most 20, without leading zeros.
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    /// Writes a number, two digits at a time, as each step waits for the division before it.
    #[inline]
    pub(crate) fn of(mut number: u64) -> Self {
        let (mut bytes, mut start) = ([b'0'; 20], 20);
        while number >= 10 {
            start -= 2;
            bytes[start..start + 2].copy_from_slice(&PAIRS[usize::from((number % 100).to_le_bytes()[0])]);
            number /= 100;
        }
        if number > 0 || start == 20 {
            start -= 1;
            bytes[start] = PAIRS[usize::from(number.to_le_bytes()[0])][1];
        }
        Self { bytes, start }
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
