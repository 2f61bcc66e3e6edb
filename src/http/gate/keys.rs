//! Warns of policies whose key requests lack.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use super::clients::is_first;
use crate::core::Mode;
use crate::http::key::{Inputs, MissingKey};
use crate::http::policy::Policy;

/// Whether requests have the key of one policy.
pub(super) struct Keys {
    sources: Vec<TypeId>,
    inputs: Inputs,
    missing: MissingKey,
    /// A request had it, or may have had it.
    had: AtomicBool,
    /// A request lacked it.
    lacked: AtomicBool,
    warned: Arc<AtomicU8>,
}

/// It was warned of missing keys.
const KEY: u8 = 1;

impl Keys {
    /// Watches the key of a policy; nothing was warned of yet.
    pub(super) fn of(policy: &Policy) -> Self {
        let mut sources = Vec::new();
        policy.extractor().sources(&mut sources);
        Self {
            sources,
            inputs: policy.extractor().inputs(),
            missing: policy.rule_for_missing_key(),
            had: AtomicBool::new(false),
            lacked: AtomicBool::new(false),
            warned: Arc::default(),
        }
    }

    /// Takes over what was warned of the key before, if it is the same as far as is known.
    pub(super) fn continue_from(&mut self, before: &Self) {
        if (&self.sources, &self.inputs, self.missing) == (&before.sources, &before.inputs, before.missing) {
            self.warned = Arc::clone(&before.warned);
        }
    }

    /// Returns whether it took over what was warned of the key before.
    pub(super) fn continues(&self, before: &Self) -> bool {
        Arc::ptr_eq(&self.warned, &before.warned)
    }

    /// Returns whether anything was warned of.
    pub(super) fn has_warned(&self) -> bool {
        self.warned.load(Relaxed) != 0
    }

    /// A request has the key.
    #[inline]
    pub(super) fn has(&self) {
        // Nobody writes what all read.
        if !self.had.load(Relaxed) {
            self.had.store(true, Relaxed);
        }
    }

    /// A request lacks the key, and nobody has said that it may pass.
    pub(super) fn lacks(&self) {
        if !self.lacked.load(Relaxed) {
            self.lacked.store(true, Relaxed);
        }
    }

    /// A request lacks the key, and no policy limits it.
    pub(super) fn are_all(&self, policy: &Policy) {
        if !is_first(&self.warned, KEY) {
            return;
        }
        if policy.extractor().is_proven() && !self.had.load(Relaxed) {
            warn_of_server(policy);
        } else {
            tracing::warn!(
                code = "TG001",
                policy = policy.name(),
                "a request lacks the key of this policy, and no other policy limits it: add a policy by address, or \
                 refuse such requests with missing_key(MissingKey::Deny); if they are meant to pass, say \
                 missing_key(MissingKey::Skip)"
            );
        }
    }

    /// The last of the watched requests has been resolved.
    pub(super) fn end(&self, policy: &Policy) {
        if !self.lacked.load(Relaxed) || self.had.load(Relaxed) || !is_first(&self.warned, KEY) {
            return;
        }
        let name = policy.name();
        match policy.rule_for_missing_key() {
            MissingKey::Skip if policy.extractor().is_proven() => warn_of_server(policy),
            MissingKey::Skip => tracing::warn!(
                code = "TG001",
                policy = name,
                "none of the first 1000 requests had the key of this policy, so it limited none of them: check the \
                 name, and what sets it; if such requests are meant to pass, say missing_key(MissingKey::Skip)"
            ),
            MissingKey::Share => tracing::warn!(
                code = "TG001",
                policy = name,
                "none of the first 1000 requests had the key of this policy, so all share one counter: check the name, \
                 and what sets it; if none of them is to have the key, nothing is wrong"
            ),
            MissingKey::Deny if policy.rule().mode() == Mode::Shadow => tracing::warn!(
                code = "TG001",
                policy = name,
                "none of the first 1000 requests had the key of this policy, so all would be refused but for shadow \
                 mode: check the name, and what sets it; if none of them is to have the key, nothing is wrong"
            ),
            MissingKey::Deny => tracing::warn!(
                code = "TG001",
                policy = name,
                "none of the first 1000 requests had the key of this policy, so all are refused: check the name, and \
                 what sets it; if none of them is to have the key, nothing is wrong"
            ),
        }
    }
}

/// Logs that requests lack a key that the server sets.
fn warn_of_server(policy: &Policy) {
    tracing::warn!(
        code = "TG001",
        policy = policy.name(),
        "requests lack the key of this policy, so it does not limit them: the server sets this key, so put the layer \
         that sets it, such as authentication, outside of this one; if such requests are meant to pass, say \
         missing_key(MissingKey::Skip)"
    );
}
