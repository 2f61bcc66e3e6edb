//! A run from its plan to its end.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep};

use super::client::{Client, policies};
use super::net::{FIRST_PORT, Server};
use super::plan::{Ask, Plan, Setting, Step, What};
use super::trace::Trace;
use super::{State, World};
use crate::host;
use crate::server::{Node, SLOTS, SlotTable, Vm};

/// Longer than a run.
const LONG: Duration = Duration::from_secs(3_600);

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    /// What must not be, in order.
    pub violations: Vec<String>,
    /// What happened.
    pub trace: Trace,
}

/// Runs a plan in a thread of its own; a panic is a violation.
///
/// # Panics
///
/// If no thread can be had.
pub fn run(plan: &Plan, vm: &Vm, keeps_lines: bool) -> Report {
    let (plan, vm) = (plan.clone(), vm.clone());
    let thread = std::thread::Builder::new().name(format!("seed {}", plan.seed));
    let thread = thread.spawn(move || run_here(&plan, &vm, keeps_lines)).expect("there is room for a thread");
    thread.join().unwrap_or_else(|panic| Report::of_panic(&*panic))
}

fn run_here(plan: &Plan, vm: &Vm, keeps_lines: bool) -> Report {
    host::simulate(plan.seed);
    let runtime = new_runtime();
    let (world, clients) = runtime.block_on(async {
        let world = World::new(plan, vm, keeps_lines);
        let setting = &plan.setting;
        let clients: Vec<Client> =
            setting.processes.iter().map(|process| Client::new(&world, setting, process)).collect();
        (world, clients)
    });
    let mut steps = plan.steps.iter();
    while let Some((asks, lasts_ms)) = runtime.block_on(world.steps(&plan.setting, &clients, &mut steps)) {
        let lasted = world.elsewhere(&clients, asks, lasts_ms);
        runtime.block_on(advance(lasted));
    }
    runtime.block_on(world.end(clients));
    let mut state = world.lock();
    let mut violations = std::mem::take(&mut state.violations);
    violations.extend(host::take_panics().into_iter().map(|panic| format!("a panic: {panic}")));
    let trace = std::mem::replace(&mut state.trace, Trace::new(false));
    Report { violations, trace }
}

fn new_runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    // Else it wakes those who wait for a channel in an order that differs from run to run.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(b"as in every other run"));
    builder.enable_all().start_paused(true).build().expect("a runtime needs nothing")
}

/// The servers of a run; a Cluster has one more, which has no slots at first.
fn nodes(setting: &Setting, vm: &Vm, slots: &Arc<Mutex<SlotTable>>) -> Vec<Node> {
    if setting.nodes == 1 {
        return vec![Node::new(vm.clone())];
    }
    let address = |node: u16| format!("node:{}", FIRST_PORT + node);
    let count = u16::try_from(setting.nodes).expect("there are few");
    let mut table = SlotTable::default();
    for node in 0..=count {
        let number = table.node(&address(node));
        let first = |node: u16| if node >= count { SLOTS } else { SLOTS / count * node };
        table.assign_all(first(node)..first(node + 1), number);
    }
    *slots.lock().unwrap_or_else(PoisonError::into_inner) = table;
    (0..=count).map(|node| Node::in_cluster(vm.clone(), &address(node), Arc::clone(slots))).collect()
}

impl Report {
    /// Of a run that panicked.
    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let violations = vec![format!("a panic: {}", text.unwrap_or_default())];
        Self { violations, trace: Trace::new(false) }
    }
}

impl World {
    fn new(plan: &Plan, vm: &Vm, keeps_lines: bool) -> Self {
        let slots = Arc::default();
        let nodes = nodes(&plan.setting, vm, &slots);
        Self(Arc::new(Mutex::new(State {
            plan: plan.clone(),
            nodes: nodes.into_iter().map(Server::new).collect(),
            slots,
            has_had: BTreeSet::new(),
            connections: BTreeMap::new(),
            last_connection: 0,
            trace: Trace::new(keeps_lines),
            rng: Rng::with_seed(plan.seed ^ 0x5eed_0fde_1a75),
            records: Vec::new(),
            blocked: Vec::new(),
            idle: Vec::new(),
            violations: Vec::new(),
            password: (0, 0),
            troubled: None,
            losses: Some(0),
            disturbed: Vec::new(),
            steps_us: Vec::new(),
            is_lossy: false,
            is_replaced: false,
            changes: Vec::new(),
            may_be_reset: false,
            open_since: vec![None; plan.setting.processes.len()],
            banned: BTreeMap::new(),
            auditor: None,
        })))
    }

    /// Takes steps up to one that is another runtime's, which it returns.
    async fn steps<'a>(
        &self,
        setting: &Setting,
        clients: &[Client],
        steps: &mut impl Iterator<Item = &'a Step>,
    ) -> Option<(&'a [Ask], u64)> {
        for step in steps {
            sleep(Duration::from_millis(step.after_ms)).await;
            match &step.what {
                What::Ask(ask) => {
                    drop(tokio::spawn(self.clone().ask(clients[ask.process].clone(), ask.clone(), false)));
                }
                What::Fault(fault) => self.befalls(*fault),
                What::Heal => self.lock().heal(),
                What::Replace(process, percent) => {
                    self.lock().is_replaced = true;
                    let replaced = clients[*process].layer.clone().live().replace_policies(policies(setting, *percent));
                    replaced.expect("the policies are valid");
                }
                What::Reset(process, user) => {
                    drop(tokio::spawn(self.clone().reset(clients[*process].clone(), *user, false)));
                }
                What::Lift(process, user) => {
                    drop(tokio::spawn(self.clone().reset(clients[*process].clone(), *user, true)));
                }
                What::Runtime(asks, lasts_ms) => return Some((asks, *lasts_ms)),
            }
            tokio::task::yield_now().await;
        }
        None
    }

    /// Resets the counters of a user, or lifts its bans.
    async fn reset(self, client: Client, user: u8, lifts: bool) {
        let (key, from) = (self.lock().plan.setting.policies[0].key(user), Instant::now());
        self.lock().is_changed(user);
        let place = self.lock().disturbed.len();
        if !lifts {
            // Until it is known to be done.
            self.lock().disturbed.push((from, from + LONG));
        }
        let done = if lifts { client.limiter.lift_ban(&key).await } else { client.limiter.reset(&key).await };
        let mut state = self.lock();
        state.trace.meet(if lifts { "a ban that is lifted" } else { "a reset" });
        state.trace.say(format_args!("the counters of user {user} are reset: {}", done.is_ok()));
        state.is_changed(user);
        state.may_be_reset |= done.is_err();
        if !lifts && done.is_ok() {
            state.disturbed[place].1 = Instant::now();
        }
    }

    /// Asks on a runtime of its own, which stops after a while. Returns how long that took.
    fn elsewhere(&self, clients: &[Client], asks: &[Ask], lasts_ms: u64) -> Duration {
        let runtime = new_runtime();
        let (from, to) = runtime.block_on(async {
            let from = Instant::now();
            self.lock().trace.say(format_args!("another runtime begins"));
            for ask in asks {
                tokio::spawn(self.clone().ask(clients[ask.process].clone(), ask.clone(), true));
            }
            sleep(Duration::from_millis(lasts_ms)).await;
            let mut state = self.lock();
            state.trace.meet("a runtime that stops");
            state.is_lossy = true;
            (from, Instant::now())
        });
        drop(runtime);
        let mut state = self.lock();
        state.trace.say(format_args!("the other runtime has stopped"));
        for record in state.records.iter_mut().filter(|record| record.is_elsewhere && record.ended.is_none()) {
            (record.has_left, record.ended) = (true, Some(to));
        }
        state.blocked.push((from, to));
        state.may_fail();
        to - from
    }
}

impl State {
    /// Counters of a user change other than by requests.
    fn is_changed(&mut self, user: u8) {
        self.changes.push((Instant::now(), user));
        self.banned.remove(&user);
    }
}
