//! Events of decisions for operators: log lines, fields of the current span, and a callback.

use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use crate::core::{Decision, Key, Lines, Mode, Outcome, PolicyName, Source};
use crate::telemetry::{Telemetry, log_ban};

/// How keys of clients are logged.
///
/// # Examples
///
/// ```
/// use tollgate::status::LogKeys;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
///
/// let policy = Policy::new("api", Quota::per_minute(100));
/// let layer = RateLimitLayer::new(MemoryStore::new(), policy).log_denials().log_keys(LogKeys::Plain);
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogKeys {
    /// Lines have no key. The default, because a key may be personal data, such as an address.
    #[default]
    Omitted,
    /// Lines have the kind of the key and a hash of its value, so that lines about one client can be matched. A hash of
    /// an address can be guessed.
    Hashed,
    /// Lines have the key as it is in the store: secrets are hashed.
    Plain,
}

pub(crate) type OnDecision = dyn Fn(&Decision) + Send + Sync;

#[derive(Clone, Default)]
pub(crate) struct Events {
    pub(crate) logs_denials: bool,
    /// Share of the capacity below which the limit is near.
    pub(crate) near_limit: Option<f64>,
    pub(crate) keys: LogKeys,
    pub(crate) records: bool,
    pub(crate) on_decision: Option<Arc<OnDecision>>,
    lines: Arc<Bounds>,
}

struct Bounds {
    denied: Lines,
    forbidden: Lines,
    shadow: Lines,
    near: Lines,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { denied: Lines::ten(), forbidden: Lines::ten(), shadow: Lines::ten(), near: Lines::ten() }
    }
}

impl Events {
    #[inline]
    pub(crate) fn decided(&self, telemetry: &Telemetry, decision: &Decision) {
        if self.records {
            self.record(decision);
        }
        self.checked(telemetry, decision);
    }

    /// For a check by a handler, which leaves the fields of the span to the layer's decision.
    #[inline]
    pub(crate) fn checked(&self, telemetry: &Telemetry, decision: &Decision) {
        if let Some(on_decision) = &self.on_decision {
            on_decision(decision);
        }
        for outcome in decision.outcomes() {
            if !outcome.is_allowed() {
                self.denied(decision, outcome);
            } else if let Some(share) = self.near_limit {
                self.allowed(telemetry, decision, outcome, share);
            }
        }
    }

    pub(crate) fn forbidden(&self, policy: &str) {
        if self.logs_denials {
            self.lines.forbidden.log(policy, |more| {
                tracing::info!(code = "forbidden", policy, more, "deny list of a policy denied a request");
            });
        }
    }

    fn denied(&self, decision: &Decision, outcome: &Outcome) {
        let (policy, retry_after) = (outcome.policy(), outcome.retry_after());
        let (source, remaining) = (decision.source().as_str(), outcome.remaining());
        if outcome.has_begun_ban() {
            self.ban_began(outcome.policy_name(), outcome.key(), outcome.mode(), outcome.banned_for());
        }
        match outcome.mode() {
            Mode::Enforce if !self.logs_denials => {}
            Mode::Enforce => self.lines.denied.log(policy, |more| {
                let key = self.key(outcome.key());
                tracing::info!(
                    code = "denied",
                    policy,
                    key,
                    remaining,
                    ?retry_after,
                    source,
                    more,
                    "policy denied a request"
                );
            }),
            Mode::Shadow => self.lines.shadow.log(policy, |more| {
                let key = self.key(outcome.key());
                tracing::info!(
                    code = "shadow_denied",
                    policy,
                    key,
                    remaining,
                    ?retry_after,
                    source,
                    more,
                    "policy in shadow mode would deny this request"
                );
            }),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a share of more than 2^53 units need not be exact")]
    fn allowed(&self, telemetry: &Telemetry, decision: &Decision, outcome: &Outcome, share: f64) {
        let remaining = outcome.remaining();
        // A cached denial, or one by an override, does not know the units left of the other policies.
        let is_known = !matches!(decision.source(), Source::DenyCache | Source::Override);
        if !is_known || outcome.is_hidden() || outcome.mode() != Mode::Enforce {
            return;
        }
        if remaining as f64 >= share * outcome.quota().capacity() as f64 {
            return;
        }
        telemetry.near_limit(outcome.policy_name());
        self.lines.near.log(outcome.policy(), |more| {
            let (policy, key, source) = (outcome.policy(), self.key(outcome.key()), decision.source().as_str());
            tracing::info!(code = "near_limit", policy, key, remaining, source, more, "limit is near");
        });
    }

    pub(crate) fn ban_began(&self, policy: &PolicyName, key: &Key, mode: Mode, length: Option<Duration>) {
        log_ban(policy, || self.key(key), mode, length);
    }

    fn key(&self, key: &Key) -> Option<String> {
        match self.keys {
            LogKeys::Omitted => None,
            LogKeys::Plain => Some(key.as_str().to_owned()),
            LogKeys::Hashed if Key::is_hash(key.value()) && !key.value().contains('|') => Some(key.as_str().to_owned()),
            LogKeys::Hashed => Some(Key::hashed(key.kind(), key.value()).as_str().to_owned()),
        }
    }

    /// Fields that the span does not have are ignored.
    fn record(&self, decision: &Decision) {
        let span = Span::current();
        span.record("ratelimit.allowed", decision.is_allowed());
        span.record("ratelimit.source", decision.source().as_str());
        if let Some(outcome) = decision.binding() {
            span.record("ratelimit.policy", outcome.policy());
            // tracing-opentelemetry exports unsigned integers as text.
            let signed = |units| i64::try_from(units).unwrap_or(i64::MAX);
            span.record("ratelimit.limit", signed(outcome.limit()));
            span.record("ratelimit.remaining", signed(outcome.remaining()));
            let key = span.has_field("ratelimit.key").then(|| self.key(outcome.key())).flatten();
            if let Some(key) = key {
                span.record("ratelimit.key", key);
            }
        }
    }
}
