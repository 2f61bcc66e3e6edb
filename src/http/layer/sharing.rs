//! Warns of layers that share counters unawares: two policies of one name over one store count together.
//!
//! Clones of a layer or of a policy share their counters on purpose. A layer is known once a service was made of it, so
//! the layers that it was set up from are not compared. A name is warned of once for each store, as it may be that of a
//! layer for each tenant, or of one that is made again and again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;

use crate::core::PolicyName;
use crate::http::gate::{Gate, SharedGate};
use crate::http::policy::Policy;
use crate::store::StoreId;

/// All layers of which services were made.
static LAYERS: LazyLock<Mutex<Layers>> = LazyLock::new(Mutex::default);

/// How many names are remembered of stores over which no layer is used for now.
const MOST_WARNED: usize = 1_024;

#[derive(Default)]
struct Layers {
    /// Their gates, as long as they are used.
    gates: Vec<(StoreId, Weak<ArcSwap<Gate>>)>,
    /// The names that were warned of; many are kept only as long as layers over the store are used.
    warned: HashSet<(StoreId, PolicyName)>,
}

/// Compares a layer of which a service is made with all others over its store, once.
pub(super) fn note(shared: &SharedGate, is_known: &AtomicBool) {
    if is_known.load(Ordering::Relaxed) || is_known.swap(true, Ordering::Relaxed) {
        return;
    }
    let gate = shared.load();
    let Some(store) = gate.limits.store_id() else { return };
    let mut layers = lock();
    layers.forget_unused();
    let others = layers.others(store, shared);
    layers.gates.push((store, Arc::downgrade(shared)));
    drop(layers);
    compare(store, &others, &gate.policies.iter().collect::<Vec<_>>());
}

/// Compares what is new in a layer whose policies were replaced, if it is known.
pub(super) fn note_replaced(shared: &SharedGate, before: &[Policy], is_known: &AtomicBool) {
    if !is_known.load(Ordering::Relaxed) {
        return;
    }
    let gate = shared.load();
    let Some(store) = gate.limits.store_id() else { return };
    let is_new = |policy: &&Policy| !before.iter().any(|other| policy.is_clone_of(other));
    let others = lock().others(store, shared);
    compare(store, &others, &gate.policies.iter().filter(is_new).collect::<Vec<_>>());
}

fn lock() -> MutexGuard<'static, Layers> {
    LAYERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Layers {
    fn forget_unused(&mut self) {
        self.gates.retain(|(_, layer)| layer.strong_count() > 0);
        if self.warned.len() > MOST_WARNED {
            let used: HashSet<StoreId> = self.gates.iter().map(|(store, _)| *store).collect();
            self.warned.retain(|(store, _)| used.contains(store));
        }
    }

    /// Returns all other layers over a store, so that nothing is compared or logged while they are locked.
    fn others(&self, store: StoreId, shared: &SharedGate) -> Vec<Arc<Gate>> {
        let of_store = self.gates.iter().filter(|(other, _)| *other == store);
        let used = of_store.filter_map(|(_, layer)| layer.upgrade()).filter(|other| !Arc::ptr_eq(other, shared));
        used.map(|other| other.load_full()).collect()
    }
}

/// Logs which of these policies share counters with another layer unawares: one line, however many layers there are.
fn compare(store: StoreId, others: &[Arc<Gate>], policies: &[&Policy]) {
    let is_shared = |policy: &&Policy| {
        let shares = |other: &Policy| policy.shares_counters(other) && !policy.is_clone_of(other);
        others.iter().any(|other| other.policies.iter().any(shares))
    };
    let shared: Vec<&PolicyName> =
        policies.iter().copied().filter(is_shared).map(|policy| policy.rule().name()).collect();
    if shared.is_empty() {
        return;
    }
    let mut layers = lock();
    let is_first = |name: &&PolicyName| layers.warned.insert((store, (*name).clone()));
    let names: Vec<&str> = shared.into_iter().filter(is_first).map(|name| &**name).collect();
    drop(layers);
    if !names.is_empty() {
        tracing::warn!(
            code = "TG005",
            policies = ?names,
            "two layers count these policies in the same counters where their keys are equal, as store, name, algorithm \
             and window are the same: rename those of one layer; if they are meant to share, give both layers clones of \
             one Policy"
        );
    }
}
