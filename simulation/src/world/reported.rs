//! What must be true of reports and ratios.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::policy::PolicyName;
use tollgate::store::{Counter, Mode};
use tollgate::{Decision, Error, Key, Outcome, RedisStore, Source};
use tollgate_ratio::{CounterId, RatioStore, Report, Tally, Totals};

use super::World;
use super::client::{Answer, Client, key_of_user};
use super::plan::{Around, Ask, By, Patience, Plan, RatioPlan};
use super::record::Record;
use super::state::State;
use crate::ledger::{Name, Part, Sent, Told, Units};
use crate::server::Call;

/// Ticks after which all processes know each other, once all is well, with what connecting takes.
const TICKS: u64 = 8;
const CONNECTING: Duration = Duration::from_secs(3);

/// By how much a ratio may differ from what floating-point numbers come to.
const ROUNDING: f64 = 1e-6;

/// Calls that the first tick, and one that has begun, may add.
const MORE_CALLS: u64 = 3;

/// The tally of a process: what it is reported and tells is checked.
pub(super) struct Watched {
    world: World,
    redis: RedisStore,
    process: usize,
}

/// What is known of reports.
#[derive(Debug, Default)]
pub(super) struct Reported {
    made: Vec<Made>,
    /// What each process knows.
    known: BTreeMap<usize, Known>,
    /// Runtimes that stopped, with which a task may have.
    pub(super) stops: u64,
    /// Whether ratios were given up for good.
    is_closed: bool,
}

/// A report that a process made.
#[derive(Debug)]
struct Made {
    process: usize,
    target: u64,
    live: bool,
    parts: Vec<Part>,
    /// For which tick each shard was sent its part, and what it told.
    told: Vec<Option<(u64, Told)>>,
    /// Its process was told.
    is_heard: bool,
}

/// What a process was told.
#[derive(Debug, Default)]
struct Known {
    /// Processes of the last reply with any.
    seen: u64,
    live: u64,
    /// The totals that count, each with when they were heard; hot ones are told to all.
    heard: Vec<(Instant, BTreeMap<Name, Units>)>,
}

impl Watched {
    pub(super) fn new(world: World, redis: RedisStore, process: usize) -> Self {
        Self { world, redis, process }
    }
}

impl Tally for Watched {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        Box::pin(async move {
            let place = self.world.lock().reports(self.process, &report);
            let told = self.redis.report(report).await;
            let mut state = self.world.lock();
            match &told {
                Ok(totals) => state.hears(place, totals),
                Err(error) => state.trace.say(format_args!("report {place} failed: {error}")),
            }
            told
        })
    }
}

impl RatioPlan {
    fn tick(self) -> Duration {
        Duration::from_millis(self.tick_ms)
    }

    fn life(self) -> Duration {
        Duration::from_millis(self.life_ms)
    }
}

impl Made {
    fn of(process: usize, report: &Report) -> Self {
        let part = |offered: &tollgate_ratio::Offered| Part {
            name: *offered.id.as_bytes(),
            units: [offered.ordinary, offered.critical],
            limit: offered.limit,
        };
        let parts = report.counters.iter().map(part).collect();
        let told = vec![None; usize::from(report.shards)];
        Self { process, target: report.target, live: report.live, parts, told, is_heard: false }
    }

    /// Its counters of a shard.
    fn parts(&self, shard: usize) -> impl Iterator<Item = (usize, &Part)> {
        let shards = self.told.len();
        self.parts.iter().enumerate().filter(move |(_, part)| usize::from(part.name[0]) % shards == shard)
    }

    /// Whether a call may be its part of a shard: a shard on another server than the first counts by its own time.
    fn is(&self, sent: &Sent) -> bool {
        let shard = usize::from(sent.shard.1);
        let is_for_it = sent.target == self.target || sent.target == 0 && shard > 0;
        is_for_it && sent.live == self.live && self.parts(shard).map(|(_, part)| part).eq(&sent.parts)
    }

    /// Whether another report sends a shard the same: nobody can tell the calls of both apart.
    fn is_alike(&self, other: &Self, shard: usize) -> bool {
        let sent = other.told[shard].as_ref().map_or(other.target, |(target, _)| *target);
        let is_one = (self.process, self.live) == (other.process, other.live) && (sent == self.target || sent == 0);
        is_one && self.parts(shard).map(|(_, part)| part).eq(other.parts(shard).map(|(_, part)| part))
    }

    /// What the whole is told, if the shards told this.
    fn whole(&self, told: &[&Told]) -> Totals {
        let mut counters = vec![None; self.parts.len()];
        for (shard, told) in told.iter().enumerate() {
            self.parts(shard).zip(&told.totals).for_each(|((place, _), units)| counters[place] = Some(*units));
        }
        let hot = told.iter().flat_map(|told| &told.hot).map(|(name, units)| (CounterId::from_bytes(*name), *units));
        let live = told.iter().map(|told| told.live).min().unwrap_or_default();
        Totals::new(Duration::from_micros(told[0].now_us), live).counters(counters).hot(hot.collect())
    }
}

impl Reported {
    /// Notes that the process of a report hears totals; returns whether the shards told them. Where nobody can tell the
    /// calls of two reports apart, what either was told may be what is heard.
    fn hears(&mut self, place: usize, totals: &Totals) -> bool {
        let made = &self.made[place];
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new()];
        for shard in 0..made.told.len() {
            let is_its = |other: &Made| !other.is_heard && other.told[shard].is_some() && made.is_alike(other, shard);
            let alike: Vec<usize> = (0..self.made.len()).filter(|other| is_its(&self.made[*other])).collect();
            let with =
                |before: &Vec<usize>| alike.iter().map(|other| [&before[..], &[*other]].concat()).collect::<Vec<_>>();
            chosen = chosen.iter().flat_map(with).collect();
        }
        let told = |(shard, other): (usize, &usize)| self.made[*other].told[shard].as_ref().map(|(_, told)| told);
        let is_told = |chosen: &&Vec<usize>| {
            let told: Option<Vec<&Told>> = chosen.iter().enumerate().map(told).collect();
            told.is_some_and(|told| made.whole(&told) == *totals)
        };
        let Some(chosen) = chosen.iter().find(is_told).cloned() else { return false };
        for (shard, other) in chosen.into_iter().enumerate().filter(|(_, other)| *other != place) {
            let told = self.made[other].told[shard].take();
            self.made[other].told[shard] = std::mem::replace(&mut self.made[place].told[shard], told);
        }
        self.made[place].is_heard = true;
        true
    }
}

impl State {
    fn ratio_plan(&self, process: usize) -> Option<RatioPlan> {
        let Around::Ratio(plan) = self.processes[process].around else { return None };
        Some(plan)
    }

    /// Notes a report of a process, which makes one in a tick; returns its number.
    fn reports(&mut self, process: usize, report: &Report) -> usize {
        let place = self.reported.made.len();
        let (target, counters) = (report.target, report.counters.len());
        self.trace.say(format_args!("report {place}: process {process}, tick {target}, {counters} counters"));
        self.reported.made.push(Made::of(process, report));
        let ticks = self.trace.elapsed().as_micros() / report.tick.as_micros();
        let met = self.trace.met();
        let steps = ["a clock that steps back", "a clock that steps forward"].map(|step| met.get(step).unwrap_or(&0));
        let most = u64::try_from(ticks).unwrap_or(u64::MAX) + MORE_CALLS + steps[0] + steps[1] + self.reported.stops;
        let made = self.reported.made.iter().filter(|made| made.process == process).count() as u64;
        if made > most {
            self.violate(format_args!("process {process} has reported {made} times in {ticks} ticks"));
        }
        place
    }

    /// Notes a call that ran: it is one that a process made, and the first that ran of it.
    pub(super) fn counts(&mut self, number: u64, call: &Call) {
        let (sent, into, told) = match self.ledger.reports.ran(call) {
            Ok(ran) => ran,
            Err(wrong) => return self.violate(format_args!("the rules are broken: {wrong}")),
        };
        let process = self.connections.get(&number).map(|connection| connection.process);
        let shard = usize::from(sent.shard.1);
        let is_its = |made: &Made| Some(made.process) == process && made.told[shard].is_none() && made.is(&sent);
        let Some(place) = self.reported.made.iter().position(is_its) else {
            return self
                .violate(format_args!("process {process:?} has not made this report, or not so often: {sent:?}"));
        };
        if into.is_none() {
            self.trace.meet("a report that came too late");
        }
        let live = told.live;
        self.trace.say(format_args!(
            "  report {place} counts in {into:?}, shard {shard}: {live} were live, {:?}",
            told.totals
        ));
        self.reported.made[place].told[shard] = Some((sent.target, told));
    }

    /// A process hears what the servers told it of this very report.
    fn hears(&mut self, place: usize, totals: &Totals) {
        let now = Instant::now();
        self.trace.say(format_args!("report {place} is replied to: {} live", totals.live));
        if !self.reported.hears(place, totals) {
            let told = self.reported.made[place].told.clone();
            return self.violate(format_args!("report {place} hears {totals:?}, and was told {told:?}"));
        }
        let made = &self.reported.made[place];
        let own = made.parts.iter().map(|part| part.name).zip(totals.counters.iter().copied().flatten());
        let hot = totals.hot.iter().map(|(id, units)| (*id.as_bytes(), *units));
        let heard: BTreeMap<Name, Units> = own.chain(hot).collect();
        let known = self.reported.known.entry(made.process).or_default();
        if totals.live == 0 {
            return;
        }
        let before = std::mem::replace(&mut known.seen, totals.live);
        // Of fewer than three quarters of the processes before, some may be missing.
        if totals.live * 4 >= before * 3 {
            known.live = totals.live;
            known.heard.push((now, heard));
        }
    }

    /// How many processes a process knows to be live.
    fn live(&self, process: usize) -> Option<u64> {
        let (plan, known) = (self.ratio_plan(process)?, self.reported.known.get(&process)?);
        let (heard, _) = known.heard.last()?;
        (heard.elapsed() <= plan.life() && !self.reported.is_closed).then_some(known.live)
    }

    /// No request waits for a ratio.
    pub(super) fn checks_at_once(&mut self, place: usize, ask: &Ask) {
        let record = &self.records[place];
        let waited = record.decided.unwrap_or(record.began) - record.began;
        let is_late = !waited.is_zero() && matches!(ask.patience, Patience::Waits | Patience::Leaves(_));
        if self.ratio_plan(record.process).is_some() && is_late {
            self.violate(format_args!("{} waited {waited:?} for a ratio", record.name()));
        }
    }

    /// The totals of a counter that a process heard within a life, and whether those are the last that it heard.
    fn heard(&self, process: usize, name: Name) -> (Vec<Units>, bool) {
        let (Some(plan), Some(known)) = (self.ratio_plan(process), self.reported.known.get(&process)) else {
            return (Vec::new(), false);
        };
        let recent = known.heard.iter().rev().take_while(|(heard, _)| heard.elapsed() <= plan.life());
        let of_it: Vec<Option<Units>> = recent.map(|(_, totals)| totals.get(&name).copied()).collect();
        let is_last = of_it.first().is_some_and(Option::is_some);
        (of_it.into_iter().flatten().collect(), is_last)
    }

    /// A ratio is that of totals that were heard within a life.
    fn checks_ratio(
        &mut self,
        record: &Record,
        outcome: &Outcome,
        is_offered: bool,
        (counter, ratio): (&Counter, Option<f64>),
    ) {
        let (who, name) = (record.name(), outcome.policy());
        let (heard, is_last) = self.heard(record.process, *CounterId::new(counter).as_bytes());
        let Some(plan) = self.ratio_plan(record.process) else { return };
        let rate =
            fraction(outcome.quota().limit()) * plan.tick().as_secs_f64() / outcome.quota().window().as_secs_f64();
        let ratio_of = |units: &Units| (1.0 - rate / fraction(units[0] + units[1])).max(0.0);
        let is = |told: f64, units: &Units| (told - ratio_of(units)).abs() < ROUNDING;
        let is_right = match ratio {
            // Who is dropped before is not offered to it.
            None => !is_last || !is_offered,
            // One of another process's policies.
            Some(told) if self.is_replaced => (0.0..=1.0).contains(&told) && !heard.is_empty(),
            Some(told) if is_last => is(told, &heard[0]),
            Some(told) => heard.iter().any(|units| is(told, units)),
        };
        if !is_right {
            self.violate(format_args!(
                "{who}: the ratio of {name} is {ratio:?}, of totals {heard:?} and {rate} a tick"
            ));
        }
    }
}

impl World {
    /// A process decides by ratios while it knows some, which it heard within a life.
    pub(super) fn checks_ratios(&self, place: usize, client: &Client, answer: &Answer) {
        let Some(ratios) = &client.ratios else { return };
        let mut state = self.lock();
        let record = state.records[place].clone();
        let (due, told, who) = (state.live(record.process), ratios.live(), record.name());
        if due != told {
            return state.violate(format_args!("{who}: {told:?} processes are live, and {due:?} were heard of"));
        }
        let Some(decision) = answer.extensions().get::<Decision>() else { return };
        // One that was served for a while was decided before.
        if record.decided != Some(Instant::now()) {
            return;
        }
        let source = if due.is_some() { Source::Ratio } else { Source::Fallback };
        if decision.source() != source {
            return state.violate(format_args!("{who} is decided by {:?}, with {due:?} live", decision.source()));
        }
        if due.is_none() && state.reported.known.contains_key(&record.process) {
            state.trace.meet("ratios that are not known any more");
        }
        if due.is_some() && !decision.is_allowed() {
            state.trace.meet("a request dropped by a ratio");
        }
        let mut is_offered = true;
        for (outcome, by) in
            decision.outcomes().iter().zip(state.policies.iter().map(|plan| plan.by).collect::<Vec<_>>())
        {
            let key = if by == By::User { key_of_user(record.user) } else { Some(key_of_everybody()) };
            let (Some(key), Ok(policy)) = (key, PolicyName::try_from(outcome.policy())) else { continue };
            let counter = Counter::new(policy, key, *outcome.quota());
            // What never fits is not offered to anything.
            let fits = record.cost <= outcome.quota().capacity();
            state.checks_ratio(&record, outcome, is_offered && fits, (&counter, ratios.ratio(&counter)));
            is_offered &= outcome.is_allowed() || outcome.mode() == Mode::Shadow;
        }
    }

    /// Once all is well, and all processes are asked, each knows how many there are.
    pub(super) async fn knows_ratios(&self, clients: &[Client]) {
        let (Some(plan), Some(key)) = (self.lock().ratio_plan(0), key_of_user(0)) else { return };
        let until = Instant::now() + plan.tick() * u32::try_from(TICKS).unwrap_or(u32::MAX) + plan.life() + CONNECTING;
        let all = clients.len() as u64;
        while Instant::now() < until {
            for client in clients {
                let _ = client.layer_limiter().check(&key).await;
            }
            sleep(plan.tick()).await;
            if clients.iter().all(|client| client.ratios.as_ref().and_then(RatioStore::live) == Some(all)) {
                return;
            }
        }
        let known: Vec<_> = clients.iter().map(|client| client.ratios.as_ref().map(RatioStore::live)).collect();
        self.lock().violate(format_args!("of {all} processes there are known {known:?}"));
    }

    /// A process that ends reports once more, and knows nothing from then on.
    pub(super) async fn closes_ratios(&self, plan: &Plan, clients: &[Client]) {
        let closes = plan.seed % 32 < 16;
        for ratios in clients.iter().filter_map(|client| client.ratios.as_ref()).filter(|_| closes) {
            ratios.close().await;
            self.lock().reported.is_closed = true;
            if let Some(live) = ratios.live() {
                self.lock().violate(format_args!("a store that was closed knows {live} processes"));
            }
        }
    }
}

/// What a policy for all requests has as a key.
fn key_of_everybody() -> Key {
    Key::new("global", "")
}

#[allow(clippy::cast_precision_loss, reason = "sums are small")]
fn fraction(units: u64) -> f64 {
    units as f64
}
