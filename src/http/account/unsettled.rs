//! What may change of a request after it was admitted: its debts, its slots and the bytes of its bodies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::response::Parts;

use super::debts::Debts;
use super::metered::{ByteChecks, Meter};
use super::slots::RequestSlots;
use crate::core::Lines;
use crate::http::gate::Gate;
use crate::http::policy::Direction;
use crate::store::SlotGuard;

/// Limits how often `unlimited_bytes` is logged.
static UNLIMITED: Lines = Lines::new();

/// What may change of a request.
pub(super) struct Unsettled {
    debts: Mutex<Debts>,
    /// What bodies are limited by.
    pub(super) bytes: ByteChecks,
    /// Whether the body of the request is limited.
    limits_request: AtomicBool,
    pub(super) slots: RequestSlots,
    /// Whether the handler checked a metered policy of its own.
    has_metered_check: AtomicBool,
}

impl Unsettled {
    /// What a layer's decision may change.
    pub(super) fn new(debts: Debts, bytes: ByteChecks, slots: SlotGuard) -> Self {
        let (debts, slots) = (Mutex::new(debts), RequestSlots::new(slots));
        let (limits_request, has_metered_check) = Default::default();
        Self { debts, bytes, limits_request, slots, has_metered_check }
    }

    /// What a handler's checks may change, where the layer has nothing to settle; the request may have ended.
    pub(super) fn of_handler(is_ended: bool) -> Self {
        let unsettled = Self::new(Debts::default(), ByteChecks::default(), SlotGuard::default());
        if is_ended {
            unsettled.debts().ends_as_decided();
            drop(unsettled.slots.pass());
        }
        unsettled
    }

    /// Locks the debts. A panic elsewhere leaves it usable.
    pub(super) fn debts(&self) -> MutexGuard<'_, Debts> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the handler checked a metered policy of its own.
    pub(super) fn note_metered_check(&self) {
        self.has_metered_check.store(true, Ordering::Relaxed);
    }

    /// Returns whether the handler checked a metered policy of its own.
    pub(super) fn has_metered_check(&self) -> bool {
        self.has_metered_check.load(Ordering::Relaxed)
    }

    /// Returns what the body of the request takes its bytes from, once; `None` if they are not limited.
    pub(super) fn request_meter(&self, gate: &Gate) -> Option<Box<Meter>> {
        let meter = self.bytes.meter(gate, Direction::Request)?;
        (!self.limits_request.swap(true, Ordering::Relaxed)).then_some(meter)
    }

    /// Logs that nobody limits the body of a request whose bytes are limited. A service that fails may not have read
    /// it.
    pub(super) fn warn_of_unlimited(&self, gate: &Gate, response: Option<&Parts>) {
        let is_served = response.is_some_and(|head| head.status.is_success());
        let is_limited = || self.limits_request.load(Ordering::Relaxed);
        if is_served && self.bytes.has_request(gate) && !is_limited() {
            UNLIMITED.log("", |more| {
                tracing::warn!(
                    code = "unlimited_bytes",
                    more,
                    "a policy limits the bytes of request bodies, and nobody limited one: put a RequestBodyLayer inside \
                     of its layer, or call Handle::limit_body"
                );
            });
        }
    }
}
