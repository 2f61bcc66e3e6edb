//! A run from its plan to its end.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep};

use super::World;
use super::client::{Client, policies};
use super::net::FIRST_PORT;
use super::plan::{Ask, Plan, Setting, Step, What};
use super::state::State;
use super::trace::Trace;
use crate::host;
use crate::server::{Node, SLOTS, SlotTable, Vm};

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    /// What must not be, in order.
    pub violations: Vec<String>,
    /// What happened.
    pub trace: Trace,
    /// Requests that were answered.
    pub decisions: u64,
}

/// Runs a plan, in a thread that does nothing else before and after.
pub fn run(plan: &Plan, vm: &Vm, keeps_lines: bool) -> Report {
    host::simulate(plan.seed);
    let runtime = new_runtime();
    let (world, clients) = runtime.block_on(async {
        let world = World::new(plan, vm, keeps_lines);
        let clients: Vec<Client> =
            (0..plan.setting.processes.len()).map(|number| Client::new(&world, &plan.setting, number)).collect();
        (world, clients)
    });
    let mut steps = plan.steps.iter();
    loop {
        let other = runtime.block_on(world.steps(&plan.setting, &clients, &mut steps));
        let Some((asks, lasts_ms)) = other else { break };
        let lasted = world.elsewhere(&clients, asks, lasts_ms);
        runtime.block_on(advance(lasted));
    }
    runtime.block_on(world.end(plan, clients));
    let mut state = world.lock();
    let mut violations = std::mem::take(&mut state.violations);
    violations.extend(host::take_panics().into_iter().map(|panic| format!("a panic: {panic}")));
    let trace = std::mem::replace(&mut state.trace, Trace::new(false));
    Report { violations, trace, decisions: state.decisions }
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
    let mut table = SlotTable::new();
    for node in 0..=count {
        let number = table.node(&address(node));
        if node < count {
            table.assign_all(
                SLOTS / count * node..if node + 1 == count { SLOTS } else { SLOTS / count * (node + 1) },
                number,
            );
        }
    }
    *slots.lock().unwrap_or_else(PoisonError::into_inner) = table;
    (0..=count).map(|node| Node::in_cluster(vm.clone(), address(node), Arc::clone(slots))).collect()
}

impl Report {
    /// Of a run that panicked.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let violations = vec![format!("a panic: {}", text.unwrap_or_default())];
        Self { violations, trace: Trace::new(false), decisions: 0 }
    }
}

impl World {
    fn new(plan: &Plan, vm: &Vm, keeps_lines: bool) -> Self {
        let slots = Arc::default();
        let nodes = nodes(&plan.setting, vm, &slots);
        Self(Arc::new(Mutex::new(State::new(plan, nodes, slots, keeps_lines))))
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
                    let client = clients[ask.process].clone();
                    tokio::spawn(self.clone().ask(client, ask.clone(), false));
                }
                What::Fault(fault) => self.befalls(*fault),
                What::Heal => self.lock().heal(),
                What::Replace { process, percent } => {
                    let mut state = self.lock();
                    state.trace.meet("policies replaced");
                    (state.disturbed, state.is_replaced) = (Some(Instant::now()), true);
                    drop(state);
                    let replaced = clients[*process].layer.clone().live().replace_policies(policies(setting, *percent));
                    replaced.expect("the policies are valid");
                }
                What::Reset { process, user } => {
                    tokio::spawn(self.clone().reset(clients[*process].clone(), *user));
                }
                What::Lift { process, user } => {
                    tokio::spawn(self.clone().lift(clients[*process].clone(), *user));
                }
                What::Runtime { asks, lasts_ms } => return Some((asks, *lasts_ms)),
            }
            tokio::task::yield_now().await;
        }
        None
    }

    /// Asks on a runtime of its own, which stops after a while. Returns how long that took.
    fn elsewhere(&self, clients: &[Client], asks: &[Ask], lasts_ms: u64) -> Duration {
        let runtime = new_runtime();
        let (from, to) = runtime.block_on(async {
            let from = Instant::now();
            self.lock().trace.say(format_args!("another runtime begins"));
            for ask in asks {
                let client = clients[ask.process].clone();
                tokio::spawn(self.clone().ask(client, ask.clone(), true));
            }
            sleep(Duration::from_millis(lasts_ms)).await;
            let mut state = self.lock();
            state.trace.meet("a runtime that stops");
            state.reported.stops += 1;
            state.excuse();
            (from, Instant::now())
        });
        drop(runtime);
        let mut state = self.lock();
        state.trace.say(format_args!("the other runtime has stopped"));
        for record in state.records.iter_mut().filter(|record| record.is_elsewhere && record.ended.is_none()) {
            (record.has_left, record.is_excused, record.ended) = (true, true, Some(to));
        }
        state.blocked.push((from, to));
        state.may_fail();
        to - from
    }
}
