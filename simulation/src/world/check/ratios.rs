//! Ratios keep a steady load to the limit, whatever was before; and without totals they end with their life, so that
//! each process admits its share.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Limiter;
use tollgate_ratio::RatioStore;

use super::super::World;
use super::super::client::{Client, LIFE, NAMES};
use super::super::plan::Around;

/// Ticks until all processes know each other, and their ratios.
const LEARNING: u64 = 12;

/// Ticks of a measure.
const MEASURED: u64 = 10;

/// Parts of a tick in which load comes.
const PARTS: u64 = 10;

/// What may be admitted, in percent of the limit: units are dropped at random.
const LEAST: u64 = 65;
const MOST: u64 = 140;

impl World {
    pub(super) async fn keeps_ratios(&self, clients: &[Client]) {
        let setting = self.lock().plan.setting.clone();
        let (policy, Around::Ratio(tick_ms)) = (&setting.policies[0], setting.processes[0].around) else { return };
        let (key, of_tick) = (policy.key(0), policy.limit * tick_ms / policy.window_ms);
        let by = |client: &Client| client.layer.clone().live().limiter().only([NAMES[0]]).expect("it has the policy");
        let limiters: Vec<Limiter> = clients.iter().map(by).collect();
        // As many times the limit, for so many ticks; returns what is admitted.
        let load = async |times: u64, ticks: u64| {
            let (mut admitted, mut offered) = (0, 0);
            for part in 1..=ticks * PARTS {
                sleep(Duration::from_millis(tick_ms / PARTS)).await;
                while offered < times * of_tick * part / PARTS {
                    let place = usize::try_from(offered).unwrap_or_default() % limiters.len();
                    let decided = limiters[place].check(&key).await;
                    admitted += u64::from(decided.is_ok_and(|decision| decision.is_allowed()));
                    offered += 1;
                }
            }
            admitted
        };
        load(3, LEARNING).await;
        let known: Vec<_> = clients.iter().map(|client| client.ratios.as_ref().and_then(RatioStore::live)).collect();
        let admitted = load(3, MEASURED).await * 100 / MEASURED / of_tick;
        self.lock().trace.say(format_args!("of three times the limit, {admitted} % of it are admitted: {known:?}"));
        if known.iter().any(|live| *live != Some(clients.len() as u64)) {
            self.lock().violate(format_args!("of {} processes there are known {known:?}", clients.len()));
        }
        if !(LEAST..=MOST).contains(&admitted) {
            self.lock().violate(format_args!("ratios admit {admitted} % of the limit"));
        }
        {
            let mut state = self.lock();
            (0..state.nodes.len()).for_each(|node| state.cut(node));
            state.nodes.iter_mut().for_each(|node| node.is_up = false);
        }
        // What shares hold at first is a second's.
        load(6, LIFE + 2 + 2_000 / tick_ms).await;
        let admitted = load(6, MEASURED).await * 100 / MEASURED / of_tick;
        if admitted > MOST {
            self.lock().violate(format_args!("without totals, shares admit {admitted} % of the limit"));
        }
        self.lock().heal();
    }
}
