//! Requests are made of bytes: of a generator's, or of a fuzzer's.

/// Bytes that choose what is written, one a choice; zeros when they are used up.
#[derive(Debug)]
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    #[allow(dead_code, reason = "only the fuzz target makes several requests of one input")]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A number below another.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % end
    }

    /// Whether one of so many is met.
    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == many - 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Up to so many pieces, one after the other.
    pub(crate) fn text(&mut self, pieces: &[&str], most: usize) -> String {
        let many = self.below(most + 1);
        (0..many).map(|_| self.pick(pieces)).collect()
    }

    /// A text of which some bytes are percent-encoded, in digits of either case.
    pub(crate) fn encoded(&mut self, text: &str) -> String {
        if self.one_in(2) {
            return text.to_owned();
        }
        let each = text.bytes().map(|byte| match self.below(4) {
            0 => format!("%{byte:02X}"),
            1 => format!("%{byte:02x}"),
            _ if byte.is_ascii() => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        });
        each.collect()
    }

    /// A text of which some letters have the other case.
    pub(crate) fn cased(&mut self, text: &str) -> String {
        match self.below(4) {
            0 => text.to_ascii_uppercase(),
            1 => text.to_ascii_lowercase(),
            _ => text.to_owned(),
        }
    }

    /// A text with white space around it.
    pub(crate) fn spaced(&mut self, text: &str) -> String {
        const SPACE: &[&str] = &["", "", "", " ", "\t", "  ", " \t"];
        format!("{}{text}{}", self.pick(SPACE), self.pick(SPACE))
    }

    /// One to three lines of a header.
    pub(crate) fn lines(&mut self, line: impl Fn(&mut Self) -> Vec<u8>) -> Vec<Vec<u8>> {
        let many = 1 + self.pick(&[0, 0, 0, 1, 1, 2]);
        (0..many).map(|_| line(self)).collect()
    }
}
