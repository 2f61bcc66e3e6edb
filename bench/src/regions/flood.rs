//! What one process can have decided about one key on a Cluster, below its limit: the work that is left to the busiest
//! primary says how much all processes could.

use std::sync::Arc;

use super::plan::Plan;
use super::sides::{Gate, Place, Side};
use super::sites::Site;
use crate::effort::Effort;
use crate::load::{self, Entrant, Keys};
use crate::table::{median, print};

/// A limit that is not reached.
const LIMIT: u64 = 10_000_000;
const IN_FLIGHT: usize = 256;

#[derive(Clone)]
struct Flood(Arc<Gate>);

impl load::Side for Flood {
    async fn check(&self, _: Keys) {
        let decision = self.0.check().await.expect("there is a limit");
        assert!(decision.is_allowed(), "{decision:?}");
    }
}

/// Prints the table.
pub(super) async fn run(sides: &[Side], site: &Site, plan: Plan) {
    let sides: Vec<_> = sides.iter().filter(|side| side.place == Place::Cluster).collect();
    if sides.is_empty() {
        return;
    }
    let Plan { rounds, flood: span, .. } = plan;
    let effort = Effort { rounds, span, keys: 1, calls: 0 };
    println!("Medians of {rounds} rounds of {span:?}, one process, {IN_FLIGHT} in flight, all admitted.\n");
    let (mut entrants, urls) = (Vec::new(), site.urls(Place::Cluster, 0));
    for side in sides {
        let flood = Flood(Arc::new(Gate::of(*side, 0, &urls, LIMIT).await));
        entrants.push((side.name, Entrant::new(side.name, flood), Vec::new()));
    }
    for round in 0..rounds {
        for (_, entrant, figures) in &mut entrants {
            // Leases and ratios know their rate then.
            entrant.measure(effort, IN_FLIGHT, round).await;
            site.take_work(Place::Cluster).await;
            let sample = entrant.measure(effort, IN_FLIGHT, round).await;
            let work = site.take_work(Place::Cluster).await;
            let count = sample.count as f64;
            figures.push([sample.per_second, 1e3 * work.calls / count, work.busiest_us / count]);
        }
    }
    let rows: Vec<_> = entrants.iter().map(|(name, _, figures)| row(name, figures)).collect();
    print(&["side", "requests a second", "calls for 1,000 requests", "busiest primary, µs a request"], &rows);
}

fn row(name: &str, figures: &[[f64; 3]]) -> Vec<String> {
    let typical = |place: usize| median(figures.iter().map(|figures| figures[place]).collect());
    let [per_second, calls, busiest] = [typical(0), typical(1), typical(2)];
    vec![name.to_owned(), format!("{per_second:.0}"), format!("{calls:.2}"), format!("{busiest:.3}")]
}
