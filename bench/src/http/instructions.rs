//! Instructions of a request in the server, which neither other processes nor the machine change.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::callgrind::Loads;
use super::check;
use super::figures::{Asked, What};
use super::options::Options;
use super::sides::{self, Side};
use crate::record::Record;
use crate::table::{Figure, Target, median, print, print_figures};

/// Sides that are counted unless others are asked for; with one of other crates if it is linked.
const SIDES: [&str; 11] = [
    "none",
    "memory-bare-no-handle",
    "memory",
    "redis-bare-no-handle",
    "redis",
    "redis-pool",
    "redis-cluster",
    "tower_governor",
    "tower_governor-headers",
    "tower-rate-limit-redis",
    "tower-redis-cell",
];

const CONNECTIONS: [u32; 2] = [1, 64];

/// What a request may cost over what it cost before.
const WORSE: f64 = 1.02;

/// They differ a little with one connection, where a worker of the runtime is now and then woken in vain.
const ROUNDS: u32 = 3;

/// Instructions of a request, by side and connections, in each round.
pub(super) struct Counts(HashMap<(String, u32), Vec<f64>>);

/// Counts and prints, beside what an earlier run has saved if that is asked for. Says which sides became worse.
pub(super) async fn run(options: Options) -> Result<(), String> {
    let mut record = Record::new(options.out.as_deref());
    let sides = options.choose(sides::all().into_iter().filter(|side| SIDES.contains(&side.name)).collect())?;
    let counts = Counts::of(&each(&sides).collect::<Vec<_>>(), options.rounds.min(ROUNDS)).await?;
    print_all(&sides, &counts);
    if let Some(path) = &options.save {
        fs::write(path, counts.text()).map_err(|fault| format!("{}: {fault}", path.display()))?;
    }
    for (side, connections) in each(&sides) {
        if let Some(counts) = counts.get(side.name, connections) {
            record.add(["instructions", side.name, "instructions", &connections.to_string()], counts);
        }
    }
    record.write();
    options.against.as_deref().map_or(Ok(()), |path| compare(&sides, &counts, path))
}

fn compare(sides: &[Side], counts: &Counts, path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|fault| format!("{}: {fault}", path.display()))?;
    let before = Counts::parse(&text).ok_or_else(|| format!("{} was not saved by this program", path.display()))?;
    let (mut ratios, mut worse) = (Vec::new(), Vec::new());
    for (side, connections) in each(sides) {
        if let Some((now, before)) = counts.get(side.name, connections).zip(before.get(side.name, connections)) {
            let ratio = median(now.clone()) / median(before.clone());
            let name = format!("{}, connections: {connections}, over before", side.title);
            if ratio > WORSE {
                worse.push(name.clone());
            }
            ratios.push(Figure::new(name, vec![ratio], Target::AtMost { must: WORSE, stretch: 1.0 }));
        }
    }
    print_figures(&ratios);
    if worse.is_empty() { Ok(()) } else { Err(format!("more than {WORSE}: {}", worse.join("; "))) }
}

fn print_all(sides: &[Side], counts: &Counts) {
    println!("Instructions of a request in the server's process (callgrind, difference of two loads):\n");
    let text = |counts: Option<Vec<f64>>| counts.map_or_else(String::new, |counts| format!("{:.0}", median(counts)));
    let row = |side: &Side| {
        let cells = CONNECTIONS.map(|connections| {
            [counts.get(side.name, connections).cloned(), counts.added(side.name, connections)].map(text)
        });
        [vec![side.title.clone()], cells.concat()].concat()
    };
    let rows: Vec<_> = sides.iter().map(row).collect();
    print(&["side", "1 connection", "over no limit", "64 connections", "over no limit"], &rows);
}

fn each(sides: &[Side]) -> impl Iterator<Item = (&Side, u32)> {
    sides.iter().flat_map(|side| CONNECTIONS.map(|connections| (side, connections)))
}

impl Counts {
    /// Of the sides that are asked about, and of no limit.
    pub(super) async fn asked(asked: &[Asked], quick: bool) -> Result<Self, String> {
        let all = sides::all();
        let is_counted = |side: &Side, connections| {
            let asked = asked.iter().filter(|asked| matches!(asked.what, What::Instructions));
            let mut asked = asked.filter(|asked| asked.connections == connections);
            asked.any(|asked| asked.side == side.name || side.name == "none")
        };
        let counted: Vec<_> = each(&all).filter(|(side, connections)| is_counted(side, *connections)).collect();
        Self::of(&counted, if quick { 1 } else { ROUNDS }).await
    }

    async fn of(sides: &[(&Side, u32)], rounds: u32) -> Result<Self, String> {
        let mut counts = HashMap::<_, Vec<_>>::new();
        for (side, _) in sides {
            drop(check::started(side).await?);
        }
        for round in 1..=rounds {
            for (side, connections) in sides {
                eprintln!("round {round} of {rounds}: {}, connections: {connections}", side.name);
                let loads = Loads { connections: *connections, first: 3_000, counted: 6_000 };
                let [first, second] = loads.profiles(side).await?;
                let count = (second.instructions()? - first.instructions()?) / f64::from(loads.counted);
                counts.entry((side.name.to_owned(), *connections)).or_default().push(count);
            }
        }
        Ok(Self(counts))
    }

    fn get(&self, side: &str, connections: u32) -> Option<&Vec<f64>> {
        self.0.get(&(side.to_owned(), connections))
    }

    /// What a limit adds, if that is asked for.
    pub(super) fn asked_for(&self, asked: &Asked) -> Vec<f64> {
        match asked.what {
            What::Instructions => self.added(asked.side, asked.connections).expect("it was counted"),
            _ => Vec::new(),
        }
    }

    /// Over no limit, round by round.
    fn added(&self, side: &str, connections: u32) -> Option<Vec<f64>> {
        let (counts, none) = self.get(side, connections).zip(self.get("none", connections))?;
        Some(counts.iter().zip(none).map(|(count, none)| count - none).collect())
    }

    /// A line for each side and number of connections.
    fn text(&self) -> String {
        let line = |((side, connections), counts): (&(String, u32), &Vec<f64>)| {
            let counts: Vec<_> = counts.iter().map(|count| format!("{count:.1}")).collect();
            format!("{side} {connections} {}\n", counts.join(" "))
        };
        let mut lines: Vec<_> = self.0.iter().map(line).collect();
        lines.sort();
        lines.concat()
    }

    fn parse(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let mut words = line.split(' ');
            let (side, connections) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
            let counts = words.map(|count| count.parse().ok()).collect::<Option<Vec<_>>>()?;
            (!counts.is_empty()).then_some(((side, connections), counts))
        };
        text.lines().map(line).collect::<Option<_>>().map(Self)
    }
}
