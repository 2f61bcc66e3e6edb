//! Latency by side and load: p50, p99 and p99.9 on one line each.

use crate::figures::Figures;
use crate::svg::{Anchor, LINE, Svg, number};

const LOADS: [&str; 3] = ["20", "50", "80"];
const QUANTILES: [&str; 3] = ["p50", "p99", "p99.9"];

/// A side as the figures and as readers call it, and its colour.
type Side = (&'static str, &'static str, &'static str);

/// Stores and their sides.
const STORES: [(&str, &str, &[Side]); 2] = [
    (
        "memory",
        "Counters in memory",
        &[
            ("none", "no limit", "none"),
            ("memory-bare-no-handle", "tollgate", "ours"),
            ("memory", "tollgate, headers", "ours"),
            ("tower_governor", "tower_governor", "peer"),
        ],
    ),
    (
        "redis",
        "Counters in Redis",
        &[
            ("none", "no limit", "none"),
            ("redis-bare-no-handle", "tollgate", "ours"),
            ("redis", "tollgate, headers", "ours"),
            ("tower-rate-limit-redis", "tower-rate-limit-redis", "peer"),
            ("tower-redis-cell", "tower-redis-cell", "peer"),
        ],
    ),
];

/// Where lines begin, and how long they are.
const LEFT: f64 = 205.0;
const LENGTH: f64 = 205.0;
const ROW: f64 = 24.0;

/// A side that waits longer is overloaded, and is drawn at the end.
const MOST: f64 = 20_000.0;

pub(crate) fn draw(figures: &Figures) -> Option<String> {
    let of = |store: &str, side, load| {
        let [p50, p99, p999] = QUANTILES.map(|name| figures.median(&format!("latency_{store}_{name}"), side, load));
        Some([p50?, p99?, p999?])
    };
    let each = || STORES.iter().flat_map(|(store, _, sides)| sides.iter().map(move |side| (store, side.0)));
    let all = || each().flat_map(|(store, side)| LOADS.map(|load| of(store, side, load))).flatten().flatten();
    let [low, high] = [f64::min, f64::max].map(|pick| all().reduce(pick));
    let (low, high) = (low?, high?.min(MOST));
    let at = |micros: f64| LEFT + (micros.min(high) / low).ln() / (high / low).ln() * LENGTH;
    let mut svg = Svg::new("Latency of a request with a limit");
    let notes = [
        "µs from when it was due. Load: of the most that the slowest",
        "side of a store can do. ● p50, ○ p99, end p99.9; logarithmic.",
    ];
    let mut y = 56.0;
    for note in notes {
        svg.text(12.0, y, Anchor::Start, "soft", note);
        y += LINE;
    }
    for (store, title, sides) in STORES {
        for load in LOADS {
            let rate = figures.median(&format!("latency_{store}_rate"), "all", load);
            let rate = rate
                .map_or_else(String::new, |rate| format!(", {} requests/s", number((rate / 100.0).round() * 100.0)));
            let rows: Vec<_> = sides.iter().filter_map(|side| Some((side, of(store, side.0, load)?))).collect();
            if rows.is_empty() {
                continue;
            }
            y += 14.0;
            svg.text(12.0, y, Anchor::Start, "head", &format!("{title}, {load} %{rate}"));
            y += 6.0;
            for ((_, name, class), values) in rows {
                svg.text(LEFT - 12.0, y + 17.0, Anchor::End, "", name);
                let [p50, p99, p999] = values.map(at);
                let middle = y + 12.0;
                svg.line(&[[p50, middle], [p999, middle]], &format!("line {class}"));
                svg.line(&[[p999, middle - 6.0], [p999, middle + 6.0]], &format!("line {class}"));
                svg.dot([p99, middle], 5.0, class);
                svg.dot([p99, middle], 2.5, "back");
                svg.dot([p50, middle], 5.0, class);
                let text = values.map(short).join(" · ");
                svg.text(592.0, y + 17.0, Anchor::End, "small", &text);
                y += ROW;
            }
            y += 6.0;
        }
    }
    Some(svg.end(y + 8.0))
}

fn short(micros: f64) -> String {
    if micros < 9_999.5 { number(micros) } else { format!("{:.0}k", micros / 1e3) }
}
