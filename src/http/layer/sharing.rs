//! Warns of layers that share counters unawares: two policies of one name over one store count together.
//!
//! Clones of a layer or of a policy share their counters on purpose. A layer is known once a service was made of it, so
//! the layers that it was set up from are not compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;

use crate::http::gate::{Gate, SharedGate};
use crate::http::policy::Policy;
use crate::store::StoreId;

/// The gates of all layers of which services were made, as long as they are used.
static LAYERS: Mutex<Vec<(StoreId, Weak<ArcSwap<Gate>>)>> = Mutex::new(Vec::new());

/// Compares a layer of which a service is made with all others over its store, once.
pub(super) fn note(shared: &SharedGate, is_known: &AtomicBool) {
    if is_known.load(Ordering::Relaxed) || is_known.swap(true, Ordering::Relaxed) {
        return;
    }
    let gate = shared.load();
    let Some(store) = gate.limits.store_id() else { return };
    let mut layers = LAYERS.lock().unwrap_or_else(PoisonError::into_inner);
    layers.retain(|(_, layer)| layer.strong_count() > 0);
    let others = others(&layers, store, shared);
    layers.push((store, Arc::downgrade(shared)));
    drop(layers);
    compare(&others, &gate.policies.iter().collect::<Vec<_>>());
}

/// Compares what is new in a layer whose policies were replaced, if it is known.
pub(super) fn note_replaced(shared: &SharedGate, before: &[Policy], is_known: &AtomicBool) {
    if !is_known.load(Ordering::Relaxed) {
        return;
    }
    let gate = shared.load();
    let Some(store) = gate.limits.store_id() else { return };
    let is_new = |policy: &&Policy| !before.iter().any(|other| policy.is_clone_of(other));
    let others = others(&LAYERS.lock().unwrap_or_else(PoisonError::into_inner), store, shared);
    compare(&others, &gate.policies.iter().filter(is_new).collect::<Vec<_>>());
}

/// Returns all other layers over a store, so that nothing is logged while they are locked.
fn others(layers: &[(StoreId, Weak<ArcSwap<Gate>>)], store: StoreId, shared: &SharedGate) -> Vec<Arc<Gate>> {
    let of_store = layers.iter().filter(|(other, _)| *other == store).filter_map(|(_, layer)| layer.upgrade());
    of_store.filter(|other| !Arc::ptr_eq(other, shared)).map(|other| other.load_full()).collect()
}

/// Logs which of these policies share counters with another layer unawares: one line, however many layers there are.
fn compare(others: &[Arc<Gate>], policies: &[&Policy]) {
    let is_shared = |policy: &&Policy| {
        let shares = |other: &Policy| policy.shares_counters(other) && !policy.is_clone_of(other);
        others.iter().any(|other| other.policies.iter().any(shares))
    };
    let names: Vec<&str> = policies.iter().copied().filter(is_shared).map(Policy::name).collect();
    if !names.is_empty() {
        tracing::warn!(
            code = "TG005",
            policies = ?names,
            "two layers count these policies in the same counters, as store, name, algorithm and window are the same: \
             rename those of one layer; if they are meant to share, give both layers clones of one Policy"
        );
    }
}
