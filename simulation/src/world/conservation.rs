//! Units are conserved: what servers have taken is what is owed.

use std::collections::BTreeMap;

use tollgate::Source;

use super::check::NOBODY;
use super::plan::{Around, FIRST_COST, PolicyPlan, Setting};
use super::record::Record;
use super::state::State;
use crate::ledger::{Event, What};

/// The number of the sliding log.
const LOG: u8 = 4;

/// What a counter has taken, and should have.
#[derive(Default)]
struct Account {
    /// How often each cost was asked.
    asked: BTreeMap<u64, usize>,
    net: i128,
    least: i128,
    most: i128,
    slack: i128,
    /// Whether charges may not have been made, as something was held up.
    may_lose_charges: bool,
}

impl State {
    /// What must be true once all has ended.
    pub(super) fn checks_at_the_end(&mut self, setting: &Setting) {
        let wrong = if setting.is_crowd { self.wrong_of_crowd(setting) } else { self.wrong_of_each(&setting.policies) };
        let endless = self.nodes.iter().flat_map(|node| node.node.keys()).filter(|(.., until)| until.is_none());
        let endless: Vec<String> = endless.map(|(key, ..)| format!("{} never expires", key.escape_ascii())).collect();
        for wrong in wrong.into_iter().chain(endless) {
            self.violate(format_args!("{wrong}"));
        }
    }

    /// Events of keys that requests were for.
    fn known_events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| !event.key.windows(NOBODY.len()).any(|part| part == NOBODY.as_bytes()))
    }

    /// Nothing ran twice, and all that is not owed was given back: request by request.
    fn wrong_of_each(&self, policies: &[PolicyPlan]) -> Vec<String> {
        let mut accounts: BTreeMap<&[u8], Account> = BTreeMap::new();
        let mut wrong = Vec::new();
        for event in self.known_events() {
            let account = accounts.entry(&event.key).or_default();
            account.may_lose_charges = self.is_held_up;
            account.note(event);
            let What::Take { cost, .. } = event.what else { continue };
            let mut alike = policies.iter().filter(|plan| plan.window_ms * 1_000 == event.rule.window_us);
            let asked = *account.asked.entry(cost).and_modify(|count| *count += 1).or_insert(1);
            if asked > alike.clone().count() && cost >= FIRST_COST {
                wrong.push(format!("cost {cost} was asked {asked} times of one counter"));
            }
            let record = self.records.iter().find(|record| record.cost == cost);
            if let (Some(policy), Some(record)) = (alike.next(), record) {
                account.owe(record, policy, event.what.taken());
            }
        }
        for (key, account) in &mut accounts {
            account.slack += self.lost.get(*key).copied().unwrap_or_default();
        }
        wrong.extend(accounts.iter().filter_map(|(key, account)| account.wrong(key)));
        wrong
    }

    /// Nobody spends what was not taken; and all that was taken was spent or given back, if nothing was lost.
    fn wrong_of_crowd(&self, setting: &Setting) -> Vec<String> {
        // A hybrid store charges within a budget, which is over when a handler has blocked for as long.
        let may_lose_charges = self.is_held_up || !self.blocked.is_empty();
        let mut all = Account { may_lose_charges, ..Account::default() };
        self.known_events().for_each(|event| all.note(event));
        let is_paid = |record: &&Record| {
            let by = record.decision.as_ref().map(tollgate::Decision::source);
            record.is_admitted && matches!(by, Some(Source::Store | Source::Lease))
        };
        for record in self.records.iter().filter(is_paid) {
            all.owe(record, &setting.policies[0], record.cost);
        }
        let pays_later = setting.processes.iter().any(|process| process.around == Around::Hybrid);
        if self.is_lossy || !setting.loses_nothing {
            let spent = all.least;
            let taken: i128 = self.known_events().map(|event| i128::from(event.what.taken())).sum();
            let charged: i128 = self.records.iter().map(|record| i128::from(record.charged)).sum();
            let is_wrong = !pays_later && spent > taken + charged;
            return is_wrong.then(|| format!("{spent} units were spent, and {taken} taken")).into_iter().collect();
        }
        if pays_later && self.is_held_up {
            // It gives a debt up whose payment was not answered twice.
            return Vec::new();
        }
        let policy = &setting.policies[0];
        if pays_later || policy.window_ms < 61_000 || policy.algorithm != LOG {
            // A hybrid store pays again what it had no answer for; and units that have returned by themselves,
            // as in a window that is over, are not given back by whoever leased them.
            all.most = all.most.max(all.net);
        }
        all.wrong(b"of all counters together,").into_iter().collect()
    }
}

impl Account {
    /// Notes what a server did.
    fn note(&mut self, event: &Event) {
        match event.what {
            What::Take { .. } => self.net += i128::from(event.what.taken()),
            What::Refund { asked, .. } => self.net -= i128::from(asked),
            What::Charge { asked, units } => {
                self.net += i128::from(asked);
                self.slack += i128::from(asked - units);
            }
            What::Look { .. } | What::Reset => {}
        }
    }

    /// Adds what a request owes by the end of which so much was taken: nothing, where it did not fit.
    fn owe(&mut self, record: &Record, policy: &PolicyPlan, taken: u64) {
        let (cost, charged) = (i128::from(taken), i128::from(record.charged));
        let refunded = i128::from(record.refunded);
        let is_served = record.is_admitted
            && record.decision.as_ref().is_some_and(|by| matches!(by.source(), Source::Store | Source::Lease));
        let whole = if policy.metered { (cost + charged - refunded).max(0) } else { cost };
        let most = if policy.metered { cost + charged } else { cost };
        let (least, wanted) = if record.has_left {
            (0, most)
        } else if !is_served {
            (0, 0)
        } else if policy.successes && record.status != Some(200) {
            // What is charged after the response stays.
            (0, if policy.metered { charged } else { 0 })
        } else {
            // A charge that could not be sent in time is not owed.
            let may_be_less = policy.metered && (self.may_lose_charges || record.is_excused);
            let least = if may_be_less { whole - charged.min(whole) } else { whole };
            (least, if policy.metered { whole.max(most.min(whole + refunded)) } else { whole })
        };
        // What is to be given back may be lost; what is kept is nobody's to give back.
        let most = if record.is_excused { most } else { wanted };
        self.least += least;
        self.most += most;
    }

    fn wrong(&self, key: &[u8]) -> Option<String> {
        let Self { net, least, most, slack, .. } = self;
        let is_right = (least - slack..=most + slack).contains(net);
        let key = key.escape_ascii();
        (!is_right).then(|| format!("{key} has {net} units taken, and owed are {least} to {most} (or {slack} more)"))
    }
}
