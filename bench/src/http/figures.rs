//! Figures of single sides, and of one side beside others.

use std::collections::BTreeSet;

use super::instructions::Counts;
use super::options::Options;
use super::pass::{self, Rounds, Run, Runner};
use super::sides::{self, Side};
use crate::table::Figure;
use crate::work::compare;

/// What is asked for: a figure of one side.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) side: &'static str,
    pub(crate) connections: u32,
    pub(crate) what: What,
}

#[derive(Clone, Copy)]
pub(crate) enum What {
    /// Instructions of a request over those without a limit.
    Instructions,
    /// Requests/s over those of another side.
    Requests(Over),
    /// Processor time of a request over that of another side.
    Processor(Over),
    /// Calls to Redis for 100 requests.
    Calls,
}

/// What a side is compared with.
#[derive(Clone, Copy)]
pub(crate) enum Over {
    /// The best of these in each round, which all do the same work.
    Equal(&'static [&'static str]),
    /// The same, but in some the work differs; the table says in what.
    Unequal(&'static [&'static str]),
}

/// Pairs of sides that `http` prints if both were measured, beside what it prints of each.
pub(super) const PAIRS: [(&str, Over); 6] = [
    ("redis-pool", Over::Equal(&["redis"])),
    ("redis-cluster", Over::Unequal(&["redis"])),
    ("redis-bare-no-handle", Over::Equal(&["tower-redis-cell"])),
    ("redis-bare-no-handle", Over::Equal(&["tower-rate-limit-redis"])),
    ("memory-bare-no-handle", Over::Equal(&["tower_governor"])),
    ("memory-legacy-no-handle", Over::Unequal(&["tower_governor-headers"])),
];

impl Over {
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Equal(names) | Self::Unequal(names) => names,
        }
    }

    /// In what the work differs, or how it is not as this says.
    fn differences(self, side: &Side, others: &[&Side]) -> Result<String, String> {
        let mut differences: Vec<_> = others.iter().flat_map(|other| side.differences(other)).collect();
        differences.dedup();
        compare(side.name, &self.names().join(" and "), matches!(self, Self::Equal(_)), &differences)
    }
}

impl Asked {
    /// All sides whose requests are measured for it.
    fn names(&self) -> Vec<&'static str> {
        match self.what {
            What::Instructions => Vec::new(),
            What::Calls => vec![self.side],
            What::Requests(over) | What::Processor(over) => [&[self.side], over.names()].concat(),
        }
    }
}

/// Measures what is asked for, and nothing else; returns a figure without a name for each.
pub(crate) async fn figures(asked: &[Asked], quick: bool) -> Result<Vec<Figure>, String> {
    let all = sides::all();
    for Asked { side, what, .. } in asked {
        let over = match what {
            What::Requests(over) | What::Processor(over) => *over,
            What::Instructions | What::Calls => Over::Equal(&[]),
        };
        if unequal(&all, side, over)?.is_none() {
            return Err(format!("{side} and {} need `--features peers`", over.names().join(" and ")));
        }
    }
    let counts = Counts::asked(asked, quick).await?;
    let mut figures: Vec<_> = asked.iter().map(|asked| Figure::new("", counts.asked_for(asked), None)).collect();
    let wanted: Vec<_> = asked.iter().flat_map(Asked::names).collect();
    if wanted.is_empty() {
        return Ok(figures);
    }
    let options = Options::parse(quick.then(|| "--quick".to_owned()).into_iter())?;
    let sides = all.into_iter().filter(|side| wanted.contains(&side.name)).collect();
    let mut runners = Runner::start_all(sides, &options).await?;
    let connections: BTreeSet<_> = asked.iter().map(|asked| asked.connections).collect();
    for connections in connections {
        let here = |asked: &Asked| asked.connections == connections;
        let names: Vec<_> = asked.iter().filter(|asked| here(asked)).flat_map(Asked::names).collect();
        let chosen = runners.iter_mut().filter(|runner| names.contains(&runner.side.name)).collect();
        let rounds = pass::rounds(chosen, &options, connections).await?;
        for (asked, figure) in asked.iter().zip(&mut figures).filter(|(asked, _)| here(asked)) {
            if let Some(seen) = of_rounds(&rounds, asked)? {
                *figure = seen;
            }
        }
    }
    Ok(figures)
}

/// In what the work of a side differs from that of others; nothing if one of them is not among these.
pub(super) fn unequal(sides: &[Side], name: &str, over: Over) -> Result<Option<String>, String> {
    let named = |name: &str| sides.iter().find(|side| side.name == name);
    let others: Option<Vec<_>> = over.names().iter().map(|name| named(name)).collect();
    named(name).zip(others).map(|(side, others)| over.differences(side, &others)).transpose()
}

/// The figure that is asked for, unless it is not one of requests.
fn of_rounds(rounds: &[Rounds<'_>], asked: &Asked) -> Result<Option<Figure>, String> {
    match asked.what {
        What::Instructions => Ok(None),
        What::Calls => {
            let ours = rounds.iter().find(|rounds| rounds.side.name == asked.side).expect("it was measured");
            Ok(Some(Figure { rounds: ours.each(|run| run.calls), ..Figure::default() }))
        }
        What::Requests(over) => pair(rounds, asked.side, over),
        What::Processor(over) => Ok(pair(rounds, asked.side, over)?.map(|figure| Figure {
            rounds: figure.processor,
            processor: Vec::new(),
            ..figure
        })),
    }
}

/// Requests/s, and the processor time of the same rounds, over the best of others in each round; nothing if a side was
/// not measured.
pub(super) fn pair(rounds: &[Rounds<'_>], side: &str, over: Over) -> Result<Option<Figure>, String> {
    let of = |name: &str| rounds.iter().find(|rounds| rounds.side.name == name);
    let Some((ours, others)) = of(side).zip(over.names().iter().map(|name| of(name)).collect::<Option<Vec<_>>>())
    else {
        return Ok(None);
    };
    let unequal = over.differences(ours.side, &others.iter().map(|other| other.side).collect::<Vec<_>>())?;
    let best = |(place, run): (usize, &Run)| {
        let others = others.iter().map(|other| &other.runs[place]);
        let best = others.max_by(|a, b| a.load.per_second.total_cmp(&b.load.per_second)).expect("there is one");
        (run.load.per_second / best.load.per_second, run.cpu / best.cpu)
    };
    let (rounds, processor) = ours.runs.iter().enumerate().map(best).unzip();
    Ok(Some(Figure { rounds, processor, unequal, ..Figure::default() }))
}
