//! Numbers as decimal text, without the cost of `Display`, for values that are written for each request.

static SMALL: [[u8; 4]; 10_000] = {
    let (mut all, mut digits, mut number) = ([[b'0'; 4]; 10_000], [b'0'; 4], 0);
    while number < all.len() {
        all[number] = digits;
        number += 1;
        let mut place = 3;
        while digits[place] == b'9' && place > 0 {
            digits[place] = b'0';
            place -= 1;
        }
        digits[place] += 1;
    }
    all
};

/// Text of at most `N` bytes, written from its end to its beginning, because that is the order of digits.
#[derive(Debug)]
pub(crate) struct Backwards<const N: usize> {
    bytes: [u8; N],
    start: usize,
}

/// Digits of any number.
pub(crate) type Digits = Backwards<20>;

impl<const N: usize> Backwards<N> {
    pub(crate) const EMPTY: Self = Self { bytes: [b'0'; N], start: N };

    #[inline]
    pub(crate) fn new(number: u64) -> Self {
        let mut text = Self::EMPTY;
        text.number(number);
        text
    }

    #[inline]
    pub(crate) fn number(&mut self, mut number: u64) {
        // Four digits at a time, because each step waits for the division before it.
        loop {
            let four = small(number % 10_000);
            self.text(&SMALL[four]);
            number /= 10_000;
            if number == 0 {
                self.start += zeros(four);
                return;
            }
        }
    }

    #[inline]
    pub(crate) fn text(&mut self, text: &[u8]) {
        let end = self.start;
        self.start -= text.len();
        self.bytes[self.start..end].copy_from_slice(text);
    }

    /// Digits of a number below 10,000 as ASCII; `None` for others.
    #[inline]
    pub(crate) fn small(number: u64) -> Option<&'static [u8]> {
        let number = usize::try_from(number).ok()?;
        Some(&SMALL.get(number)?[zeros(number)..])
    }

    /// Digits of an octet, zeros behind them, and the number of digits.
    #[inline]
    pub(crate) fn of_octet(octet: u8) -> ([u8; 4], usize) {
        let zeros = zeros(octet.into());
        let digits = u32::from_le_bytes(SMALL[usize::from(octet)]) >> (8 * zeros);
        (digits.to_le_bytes(), 4 - zeros)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        N - self.start
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl<const N: usize> AsRef<[u8]> for Backwards<N> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

fn zeros(number: usize) -> usize {
    usize::from(number < 1_000) + usize::from(number < 100) + usize::from(number < 10)
}

#[allow(clippy::cast_possible_truncation, reason = "two bytes hold it")]
fn small(number: u64) -> usize {
    usize::from(number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_display_and_those_of_small_numbers_end_before_10_000() {
        let powers = (0..20).map(|power| 10_u64.pow(power)).flat_map(|power| [power - 1, power, power + 1]);
        for number in powers.chain([u64::MAX - 1, u64::MAX]).chain(0..10_000) {
            let shown = number.to_string();
            assert_eq!(Digits::new(number).as_bytes(), shown.as_bytes());
            assert_eq!(Digits::small(number), Some(shown.as_bytes()).filter(|_| number < 10_000));
        }
    }
}
