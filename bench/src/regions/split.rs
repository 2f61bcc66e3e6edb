//! One counter as several, each with its part of the limit: a request draws one of them.

use tollgate::{Decision, Key, Limiter};

/// The parts, and on how many a request is tried.
pub(super) struct Split {
    /// Each with its key.
    parts: Vec<(Limiter, Key)>,
    tries: usize,
}

impl Split {
    pub(super) fn new(parts: Vec<Limiter>, tries: usize) -> Self {
        let key = |part: usize| Key::new("part", part.to_string());
        Self { parts: parts.into_iter().enumerate().map(|(part, limiter)| (limiter, key(part))).collect(), tries }
    }

    /// Returns the decision of the last part that was tried.
    pub(super) async fn check(&self) -> Decision {
        let first = fastrand::usize(..self.parts.len());
        let mut tried = 0;
        loop {
            let (limiter, key) = &self.parts[(first + tried) % self.parts.len()];
            let decision = limiter.check(key).await.expect("the key is valid");
            tried += 1;
            if decision.is_allowed() || tried == self.tries {
                return decision;
            }
        }
    }
}
