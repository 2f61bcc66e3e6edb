//! Units are conserved: what servers have taken is what is owed.

use std::collections::BTreeMap;

use tollgate::Source;

use super::check::NOBODY;
use super::plan::{Around, FIRST_COST, PolicyPlan, Setting};
use super::record::Record;
use super::state::State;
use crate::ledger::{Algorithm, Event, What};

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
    /// Units that charges came to less than was asked.
    cut: i128,
    /// What is owed at least, had nothing been charged.
    uncharged: i128,
    /// Units that were to go back and did not.
    lost: i128,
}

impl State {
    /// What must be true once all has ended.
    pub(super) fn checks_at_the_end(&mut self, setting: &Setting) {
        let wrong = if setting.is_crowd { self.wrong_of_crowd(setting) } else { self.wrong_of_each(&setting.policies) };
        let endless = self.nodes.iter().flat_map(|node| node.node.keys()).filter(|(.., until)| until.is_none());
        let endless: Vec<String> = endless.map(|(key, ..)| format!("{} never expires", key.escape_ascii())).collect();
        let (slots, bans) = (self.wrong_of_slots(setting), self.wrong_of_bans());
        for wrong in wrong.into_iter().chain(slots).chain(bans).chain(endless) {
            self.violate(format_args!("{wrong}"));
        }
    }

    /// Events of keys that requests were for.
    pub(super) fn known_events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| !event.key.windows(NOBODY.len()).any(|part| part == NOBODY.as_bytes()))
    }

    /// Nothing ran twice, and all that is not owed was given back: request by request.
    fn wrong_of_each(&self, policies: &[PolicyPlan]) -> Vec<String> {
        let mut accounts: BTreeMap<&[u8], Account> = BTreeMap::new();
        let mut wrong = Vec::new();
        for event in self.known_events() {
            // Slots are held only for a while.
            let is_owed = event.rule.algorithm != Algorithm::Concurrency;
            let account = accounts.entry(&event.key).or_default();
            if is_owed {
                account.note(event);
            }
            let What::Take { cost, .. } = event.what else { continue };
            let mut alike = policies.iter().filter(|plan| plan.window_ms * 1_000 == event.rule.window_us);
            let asked = *account.asked.entry(cost).and_modify(|count| *count += 1).or_insert(1);
            if asked > alike.clone().count() && cost >= FIRST_COST {
                wrong.push(format!("cost {cost} was asked {asked} times of one counter"));
            }
            let record = self.records.iter().find(|record| record.cost == cost);
            if let (Some(policy), Some(record), true) = (alike.next(), record, is_owed) {
                account.owe(record, policy, event.what.taken());
            }
        }
        for (key, account) in &mut accounts {
            account.lost = self.lost.get(*key).copied().unwrap_or_default();
        }
        wrong.extend(accounts.iter().filter_map(|(key, account)| account.wrong(key)));
        wrong
    }

    /// What all counters of a crowd have together, and should have.
    fn account_of_crowd(&self, setting: &Setting) -> Account {
        let (mut all, mut given_up) = (Account::default(), 0);
        self.known_events().for_each(|event| all.note(event));
        let is_paid = |record: &&Record| {
            let by = record.decision.as_ref().map(tollgate::Decision::source);
            record.is_admitted && matches!(by, Some(Source::Store | Source::Lease))
        };
        for record in self.records.iter().filter(is_paid) {
            let is_overdrawn = setting.processes[record.process].around == Around::Overdraft;
            // Decisions have a budget, which is over when a handler has blocked for as long.
            let may_lose_charges = record.is_held_up || is_overdrawn && !self.blocked.is_empty();
            if is_overdrawn && may_lose_charges {
                // It gives a debt up whose charge was not answered.
                given_up += i128::from(record.cost);
            }
            let record = Record { is_held_up: may_lose_charges, ..record.clone() };
            all.owe(&record, &setting.policies[0], record.cost);
        }
        (all.least, all.uncharged) = (all.least - given_up, all.uncharged - given_up);
        all
    }

    /// Nobody spends what was not taken; and all that was taken was spent or given back, if nothing was lost.
    fn wrong_of_crowd(&self, setting: &Setting) -> Vec<String> {
        let mut all = self.account_of_crowd(setting);
        let pays_later = setting.processes.iter().any(|process| process.around == Around::Overdraft);
        if self.is_lossy || !setting.loses_nothing {
            let spent = all.least;
            let taken: i128 = self.known_events().map(|event| i128::from(event.what.taken())).sum();
            let charged: i128 = self.records.iter().map(|record| i128::from(record.charged)).sum();
            let is_wrong = !pays_later && spent > taken + charged;
            return is_wrong.then(|| format!("{spent} units were spent, and {taken} taken")).into_iter().collect();
        }
        let policy = &setting.policies[0];
        if pays_later || policy.window_ms < 61_000 || policy.algorithm != LOG {
            // An overdrawn lease is paid again if it had no answer; and units that have returned by themselves,
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
                self.net += i128::from(units);
                self.cut += i128::from(asked - units);
            }
            _ => {}
        }
    }

    /// Adds what a request owes by the end of which so much was taken: nothing, where it did not fit.
    fn owe(&mut self, record: &Record, policy: &PolicyPlan, taken: u64) {
        let (least, most) = owed(record, policy, i128::from(taken));
        self.least += least;
        self.uncharged += least.min((i128::from(taken) - i128::from(record.refunded)).max(0));
        self.most += most;
    }

    fn wrong(&self, key: &[u8]) -> Option<String> {
        let Self { net, least, most, cut, uncharged, lost, .. } = self;
        // What was not charged is owed by nobody, and what was not given back is still taken.
        // Nor does more go back than was taken.
        let (least, most) = ((least - cut).max(*uncharged), most + lost);
        let key = key.escape_ascii();
        let is_right = (least..=most).contains(net);
        (!is_right).then(|| format!("{key} has {net} units taken, and owed are {least} to {most}"))
    }
}

/// The least and the most that a request owes which took so much.
fn owed(record: &Record, policy: &PolicyPlan, cost: i128) -> (i128, i128) {
    let is_served = record.is_admitted
        && record.decision.as_ref().is_some_and(|by| matches!(by.source(), Source::Store | Source::Lease));
    if !is_served {
        // Where nobody waits for the answer its units may stay taken.
        return (0, if record.has_left || record.is_excused { cost } else { 0 });
    }
    let (charged, refunded) = (i128::from(record.charged), i128::from(record.refunded));
    let (charged, refunded) = if policy.metered { (charged, refunded) } else { (0, 0) };
    let returns = policy.refund_dropped || policy.successes;
    if record.has_left && policy.refund_dropped && !record.is_handled && !record.is_excused && !record.is_held_up {
        return (0, charged);
    }
    if record.has_left && returns || record.is_excused && policy.successes && record.status != Some(200) {
        return (0, cost + charged);
    }
    if policy.successes && record.status != Some(200) {
        // What is charged after the response stays.
        return (0, charged);
    }
    let whole = (cost + charged - refunded).max(0);
    // A charge that could not be sent in time is not owed, and what may have been charged is not given back.
    let may_be_less = record.is_held_up || record.is_excused || record.has_left;
    // After what was refunded has gone back a unit is charged at most.
    let least = if may_be_less { (whole - charged.min(1)).clamp(0, cost) } else { whole };
    // What was refunded of nothing does not count: a unit may be charged after that.
    let most = if whole > 0 { whole } else { charged.min(1) };
    (least, if may_be_less { cost + charged } else { most })
}
