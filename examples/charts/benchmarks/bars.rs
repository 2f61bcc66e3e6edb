//! Pictures of bars: one side in each row.

use crate::figures::{Figures, paired};
use crate::svg::{Anchor, LINE, Svg, number};

/// A side, as the figures and as readers call it, and whose it is.
type Side = (&'static str, &'static str, Owner);

#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Ours,
    Peer,
    Neither,
}

use Owner::{Neither, Ours, Peer};

const MEMORY: [Side; 5] = [
    ("memory-bare-no-handle", "tollgate", Ours),
    ("memory", "tollgate, all headers", Ours),
    ("tower_governor", "tower_governor", Peer),
    ("tower_governor-headers", "tower_governor, headers", Peer),
    ("headers", "no limit, five headers", Neither),
];

const REDIS: [Side; 4] = [
    ("redis-bare-no-handle", "tollgate", Ours),
    ("redis", "tollgate, all headers", Ours),
    ("tower-rate-limit-redis", "tower-rate-limit-redis", Peer),
    ("tower-redis-cell", "tower-redis-cell", Peer),
];

const BUILDS: [Side; 6] = [
    ("tollgate", "tollgate", Ours),
    ("tower_governor-axum", "tower_governor, axum", Peer),
    ("tower_governor", "tower_governor", Peer),
    ("tollgate-redis", "tollgate, Redis", Ours),
    ("tower-rate-limit-redis", "tower-rate-limit-redis", Peer),
    ("tower-redis-cell", "tower-redis-cell", Peer),
];

/// Where bars begin, and how long the longest is.
const LEFT: f64 = 232.0;
const LONGEST: f64 = 220.0;

/// A row: a name, and for each bar its value and what is written after it.
struct Row {
    name: &'static str,
    owner: Owner,
    bars: Vec<(f64, String)>,
}

/// Requests/s over HTTP, over those without a limit.
pub(crate) fn requests(figures: &Figures) -> Option<String> {
    let none = figures.rounds("requests", "none", "64")?;
    let row = |&(side, name, owner): &Side| {
        let rounds = figures.rounds("requests", side, "64")?;
        let ratio = paired(rounds, none, |ours, none| ours / none);
        let rate = figures.median("requests", side, "64")? / 1e3;
        Some(Row { name, owner, bars: vec![(ratio, format!("{ratio:.2} · {rate:.0}k/s"))] })
    };
    let notes = [
        "64 connections; 1 is the server without a limit.".to_owned(),
        "More is better. One bar is one web server of axum.".to_owned(),
    ];
    draw("Requests/s over HTTP, with a limit", &notes, &groups(row), 1.0)
}

/// Instructions that a limit adds to a request.
pub(crate) fn instructions(figures: &Figures) -> Option<String> {
    let added = |side, connections| {
        let rounds = figures.rounds("instructions", side, connections)?;
        let none = figures.rounds("instructions", "none", connections)?;
        let added = paired(rounds, none, |ours, none| ours - none);
        Some((added, number(added)))
    };
    let row =
        |&(side, name, owner): &Side| Some(Row { name, owner, bars: vec![added(side, "64")?, added(side, "1")?] });
    let notes =
        ["In the server's process. Less is better.".to_owned(), "Upper bar: 64 connections; lower: 1.".to_owned()];
    draw("Instructions that a limit adds to a request", &notes, &groups(row), 0.0)
}

/// Processor time of what a limit adds to a build.
pub(crate) fn compile_time(figures: &Figures) -> Option<String> {
    let row = |&(side, name, owner): &Side| {
        let [dev, release] = ["dev", "release"].map(|profile| figures.median("compile_cpu", side, profile));
        let crates = figures.median("compile_crates", side, "0")?;
        let (dev, release) = (dev?, release?);
        let bars = vec![(dev, format!("{dev:.0} s · {crates} crates")), (release, format!("{release:.0} s"))];
        Some(Row { name, owner, bars })
    };
    let floor = ["dev", "release"].map(|profile| figures.median("compile_cpu", "axum", profile));
    let notes = [
        "Seconds of processor time; axum is built already.".to_owned(),
        format!("Upper bar: dev, lower: release; the server alone: {:.0} s, {:.0} s.", floor[0]?, floor[1]?),
    ];
    let rows: Vec<Row> = BUILDS.iter().filter_map(row).collect();
    draw("What a limit adds to a build", &notes, &[("", rows)], 0.0)
}

fn groups(row: impl Fn(&Side) -> Option<Row>) -> [(&'static str, Vec<Row>); 2] {
    [
        ("Counters in memory", MEMORY.iter().filter_map(&row).collect()),
        ("Counters in Redis", REDIS.iter().filter_map(&row).collect()),
    ]
}

/// Draws groups of rows, if there is a row. The scale goes at least to `least`.
fn draw(title: &str, notes: &[String], groups: &[(&str, Vec<Row>)], least: f64) -> Option<String> {
    let mut svg = Svg::new(title);
    let bars = || groups.iter().flat_map(|(_, rows)| rows).flat_map(|row| &row.bars);
    let most = bars().map(|bar| bar.0).reduce(f64::max)?.max(least);
    let mut y = 56.0;
    for note in notes {
        svg.text(12.0, y, Anchor::Start, "soft", note);
        y += LINE;
    }
    for (head, rows) in groups.iter().filter(|(_, rows)| !rows.is_empty()) {
        if !head.is_empty() {
            y += 14.0;
            svg.text(12.0, y, Anchor::Start, "head", head);
            y += 10.0;
        }
        for Row { name, owner, bars } in rows {
            svg.text(LEFT - 10.0, y + 18.0, Anchor::End, "", name);
            for (number, (value, text)) in bars.iter().enumerate() {
                let class = match owner {
                    Ours => ["ours", "ours2"],
                    Peer => ["peer", "peer2"],
                    Neither => ["none", "none2"],
                }[number];
                let width = (value / most * LONGEST).max(1.0);
                svg.bar([LEFT, y + 3.0], [width, 18.0], class);
                svg.text(LEFT + width + 7.0, y + 18.0, Anchor::Start, "", text);
                y += 21.0;
            }
            y += 7.0;
        }
        y += 6.0;
    }
    Some(svg.end(y + 8.0))
}
