//! What each side answers, by which its work is compared with that of another.

pub(crate) const NO_HEADERS: &[&str] = &[];
pub(crate) const IETF: &[&str] = &["ratelimit", "ratelimit-policy"];
pub(crate) const LEGACY: &[&str] = &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
pub(crate) const BOTH: &[&str] =
    &["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
/// Those of `tower_governor`.
#[cfg(feature = "peers")]
pub(crate) const TWO: &[&str] = &["x-ratelimit-limit", "x-ratelimit-remaining"];

/// Every response of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) status: u16,
    /// The names of all that a limit adds, in the order of the alphabet.
    pub(crate) headers: &'static [&'static str],
}

impl Answers {
    pub(crate) const fn admitted(headers: &'static [&'static str]) -> Self {
        Self { status: 200, headers }
    }

    pub(crate) const fn refused(headers: &'static [&'static str]) -> Self {
        Self { status: 429, headers }
    }

    pub(crate) fn differences(self, other: Self) -> Vec<String> {
        let mut differences = Vec::new();
        if self.headers.len() != other.headers.len() {
            differences.push(format!("{} headers against {}", self.headers.len(), other.headers.len()));
        } else if self.headers != other.headers {
            differences.push(format!("{} against {}", self.headers.join(", "), other.headers.join(", ")));
        }
        if self.status != other.status {
            differences.push(format!("status {} against {}", self.status, other.status));
        }
        differences
    }
}

/// Returns in what the work of two sides differs, as the table says it.
///
/// # Errors
///
/// If it differs and is said to be equal, or the other way round.
pub(crate) fn compare(ours: &str, theirs: &str, is_equal: bool, differences: &[String]) -> Result<String, String> {
    if is_equal == differences.is_empty() {
        return Ok(differences.join(", "));
    }
    let said = if is_equal { "equal" } else { "unequal" };
    let found = if is_equal { differences.join(", ") } else { "nothing differs".to_owned() };
    Err(format!("the work of {ours} and of {theirs} is said to be {said}, but: {found}"))
}

#[cfg(test)]
mod tests {
    use super::{Answers, BOTH, IETF, LEGACY, compare};

    #[test]
    fn work_that_differs_is_not_equal_and_equal_work_is_not_unequal() {
        let [both, legacy, refused] = [Answers::admitted(BOTH), Answers::admitted(LEGACY), Answers::refused(IETF)];
        let said = |is_equal, ours: Answers, theirs| compare("ours", "theirs", is_equal, &ours.differences(theirs));
        assert_eq!(said(true, both, both), Ok(String::new()));
        assert_eq!(said(false, both, legacy), Ok("5 headers against 3".to_owned()));
        let wrong =
            "the work of ours and of theirs is said to be equal, but: 5 headers against 2, status 200 against 429";
        assert_eq!(said(true, both, refused), Err(wrong.to_owned()));
        assert!(said(false, both, both).is_err_and(|fault| fault.ends_with("unequal, but: nothing differs")));
    }
}
