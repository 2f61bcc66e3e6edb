//! Continues a policy whose key or quota is being looked up.

use tokio::time::Instant;

use super::judge::Judge;
use super::resolved::{Resolved, Skip, Stage, Waiting};
use crate::http::key::Extracted;
use crate::http::response::Refusal;
use crate::limiter::{PendingCheck, in_time, late};
use crate::store::Check;

impl PendingCheck for Waiting {
    type Refusal = Box<Refusal>;

    fn place(&self) -> usize {
        self.keyless.draft.place
    }

    /// If the time ends first, the lookup has failed.
    async fn resolve(&mut self, until: Option<Instant>) -> Result<Option<Check>, Box<Refusal>> {
        let place = self.place();
        loop {
            let resolved = match &mut self.stage {
                Stage::Key(pending) => {
                    let extracted = in_time(until, pending).await;
                    let extracted = extracted.unwrap_or_else(|| Extracted::Failed(Box::new(late("key"))));
                    Judge::without_parts(&self.gate, place).resolve_key(self.keyless.clone(), extracted)
                }
                Stage::Tier(key, pending) => {
                    let found = in_time(until, pending).await.unwrap_or_else(|| Err(late("tier")));
                    let draft = self.keyless.draft.clone();
                    Judge::without_parts(&self.gate, place).check_tiered(draft, key.clone(), found)
                }
            };
            match resolved {
                // A key may be followed by a quota.
                Resolved::Waiting(next) => (self.keyless, self.stage) = (next.keyless, next.stage),
                Resolved::Check(check) => {
                    if self.is_observed && check.is_only_for_ban() {
                        Skip::Scope.observe(&self.gate, place);
                    }
                    return Ok(Some(check));
                }
                Resolved::Skip(skip) => {
                    self.skipped = Some(skip);
                    if self.is_observed {
                        skip.observe(&self.gate, place);
                    }
                    return Ok(None);
                }
                Resolved::Refused(_) if self.in_shadow => return Ok(None),
                Resolved::Refused(refusal) => return Err(refusal),
            }
        }
    }
}
