//! Strikes by the outcome of a request: a failure that a ban counts is known only from the response.
//!
//! A strike is one settlement, sent in the background with what else goes to the store: the response does not wait for
//! it. A request that is dropped before its response strikes nobody.

use std::mem;

use tokio::runtime::Handle as Runtime;

use crate::core::Decision;
use crate::http::gate::Gate;
use crate::http::policy::{Count, Policy};
use crate::store::{Answer, Change, Receipt, Settlement, Store};

/// What may be struck when the outcome of a request is known, mostly nothing: for each policy that bans by outcome its
/// place in the gate, and what its check took.
#[derive(Debug)]
pub(super) struct Strikes(Vec<(usize, Receipt)>);

impl Strikes {
    /// Returns those of a layer's decision, if there are any; `policies` are the places of the policies in it.
    ///
    /// The check of a policy has a ban unless clients share its key, or the policy does not apply.
    pub(super) fn of_layer(
        gate: &Gate,
        decision: &Decision,
        receipt: &Receipt,
        policies: &[usize],
    ) -> Option<Box<Self>> {
        let mut each = Vec::new();
        for ((taken, outcome), place) in receipt.taken().iter().zip(decision.outcomes()).zip(policies) {
            if gate.policies[*place].options().bans_on.is_some() && outcome.has_ban() && !outcome.is_hidden() {
                each.push((*place, Receipt::new(receipt.store(), [taken.clone()])));
            }
        }
        (!each.is_empty()).then(|| Box::new(Self(each)))
    }

    /// Strikes where the response counts, by `counts`. Those for which it is not known yet stay; returns whether there
    /// are any.
    pub(super) fn settle(&mut self, gate: &Gate, counts: impl Fn(&Count) -> Option<bool>) -> bool {
        for (place, receipt) in mem::take(&mut self.0) {
            let policy = &gate.policies[place];
            match policy.options().bans_on.as_ref().map_or(Some(false), &counts) {
                Some(true) => strike(gate, policy, receipt),
                Some(false) => {}
                None => self.0.push((place, receipt)),
            }
        }
        !self.0.is_empty()
    }
}

fn strike(gate: &Gate, policy: &Policy, receipt: Receipt) {
    let Some(ban) = policy.rule().banning() else { return };
    let (name, mode, telemetry) = (policy.rule().name().clone(), policy.rule().mode(), gate.limits.telemetry.clone());
    let settling = gate.limits.store.settle(receipt, &[Settlement::new(0, Change::Strike(ban))]);
    let reported = settling.map(move |settled| {
        if settled.is_ok_and(|applied| applied.iter().any(|applied| applied.began)) {
            telemetry.banned(&name, mode);
        }
    });
    if let (Answer::Pending(reported), Ok(runtime)) = (reported, Runtime::try_current()) {
        runtime.spawn(reported);
    }
}
