//! How cost grows: small multiples, one for each cause.

use crate::figures::{Figures, paired};
use crate::svg::{Anchor, LINE, Svg, WIDTH, number};

/// A panel: what it is of, its table, and the side of tollgate and of others, with the name of the latter. Figures a
/// second are drawn as the time for each.
struct Panel {
    title: &'static str,
    table: &'static str,
    ours: &'static str,
    peer: (&'static str, &'static str),
    is_rate: bool,
}

const fn panel(
    title: &'static str,
    table: &'static str,
    ours: &'static str,
    peer: (&'static str, &'static str),
    is_rate: bool,
) -> Panel {
    Panel { title, table, ours, peer, is_rate }
}

const GOVERNOR: (&str, &str) = ("tower_governor", "tower_governor");
const GOVERNORS: (&str, &str) = ("tower_governor 0.8 in layers", "tower_governor");
const CELL: (&str, &str) = ("tower-redis-cell", "tower-redis-cell");
const INCR: (&str, &str) = ("INCR", "INCR");

const PANELS: [Panel; 10] = [
    panel("policies, memory", "policies_memory", "tollgate without headers", GOVERNORS, false),
    panel("policies, Redis", "policies_redis", "RedisStore", INCR, false),
    panel("keys, memory", "keys_memory", "tollgate", ("governor", "governor"), false),
    panel("keys, Redis", "keys_redis", "RedisStore", INCR, false),
    panel("connections, memory", "connections_memory", "memory-bare-no-handle", GOVERNOR, false),
    panel("connections, Redis", "connections_redis", "redis-bare-no-handle", CELL, false),
    panel("in flight, Redis", "in_flight_rate", "RedisStore", INCR, true),
    panel("processes, Redis", "processes_cpu", "RedisStore", INCR, false),
    panel(
        "units of a log, memory",
        "log_memory",
        "sliding log admitted",
        ("token bucket admitted", "token bucket"),
        false,
    ),
    panel(
        "units of a log, Redis",
        "log_redis",
        "sliding log admitted",
        ("token bucket admitted", "token bucket"),
        false,
    ),
];

/// The box of a panel, and that of its lines within.
const BOX: [f64; 2] = [WIDTH / 2.0, 208.0];
const INNER: [f64; 4] = [44.0, 54.0, 188.0, 118.0];

/// Cause and ratio to the first.
type Points = Vec<[f64; 2]>;

pub(crate) fn draw(figures: &Figures) -> Option<String> {
    let mut svg = Svg::new("How the cost of a request grows");
    let notes = [("ours", "tollgate"), ("peer", "the other that a panel names")];
    let mut x = 12.0;
    for (class, text) in notes {
        svg.line(&[[x, 51.0], [x + 26.0, 51.0]], &format!("line {class}"));
        svg.text(x + 34.0, 56.0, Anchor::Start, "soft", text);
        x += 140.0;
    }
    svg.line(&[[12.0, 51.0 + LINE], [38.0, 51.0 + LINE]], "line none dash");
    svg.text(46.0, 56.0 + LINE, Anchor::Start, "soft", "what grows as its cause does. Both scales are logarithmic.");
    let mut place = 0.0;
    for panel in &PANELS {
        if let Some(curves) = curves(panel, figures) {
            let corner = [(place % 2.0) * BOX[0], 92.0 + (place / 2.0_f64).floor() * BOX[1]];
            draw_panel(&mut svg, panel, &curves, corner);
            place += 1.0;
        }
    }
    (place > 0.0).then(|| svg.end(92.0 + (place / 2.0).ceil() * BOX[1]))
}

/// The lines of tollgate and of the other, if it is there.
fn curves(panel: &Panel, figures: &Figures) -> Option<Vec<(&'static str, Points)>> {
    let of = |class, side| {
        let causes = figures.causes(panel.table, side);
        let first = figures.rounds(panel.table, side, causes.first()?)?;
        let point = |cause: &&str| {
            let rounds = figures.rounds(panel.table, side, cause)?;
            let ratio = paired(rounds, first, |now, first| now / first);
            Some([cause.parse().ok()?, if panel.is_rate { 1.0 / ratio } else { ratio }])
        };
        Some((class, causes.iter().map(point).collect::<Option<Points>>()?))
    };
    let ours = of("ours", panel.ours)?;
    Some([of("peer", panel.peer.0), Some(ours)].into_iter().flatten().collect())
}

fn draw_panel(svg: &mut Svg, panel: &Panel, curves: &[(&str, Points)], [x, y]: [f64; 2]) {
    svg.text(x + 12.0, y + 20.0, Anchor::Start, "head", panel.title);
    svg.text(x + 12.0, y + 40.0, Anchor::Start, "small", &format!("beside {}", panel.peer.1));
    let points = || curves.iter().flat_map(|(_, points)| points);
    let fold = |axis: usize, pick: fn(f64, f64) -> f64| points().map(|point| point[axis]).reduce(pick).unwrap_or(1.0);
    let (from, to) = (fold(0, f64::min), fold(0, f64::max));
    // At least a decade, so that small changes look small.
    let (low, high) = (fold(1, f64::min).min(1.0), fold(1, f64::max).max(10.0 * fold(1, f64::min).min(1.0)));
    let (low, high) = (low / 1.25, high * 1.25);
    let [left, top, width, height] = INNER;
    let at = |[cause, ratio]: [f64; 2]| {
        [
            x + left + (cause / from).ln() / (to / from).ln() * width,
            y + top + (1.0 - (ratio / low).ln() / (high / low).ln()) * height,
        ]
    };
    for power in -3..6 {
        let ratio = 10_f64.powi(power);
        if (low..=high).contains(&ratio) {
            svg.line(&[at([from, ratio]), at([to, ratio])], "grid");
            svg.text(x + left - 6.0, at([from, ratio])[1] + 5.0, Anchor::End, "small", &number(ratio));
        }
    }
    let bottom = y + top + height + 18.0;
    svg.text(x + left, bottom, Anchor::Middle, "small", &number(from));
    svg.text(x + left + width, bottom, Anchor::Middle, "small", &cause(to));
    let end = to.min(from * high);
    svg.line(&[at([from, 1.0]), at([end, end / from])], "line none dash");
    let mut ends = Vec::new();
    for (class, points) in curves {
        let places: Vec<_> = points.iter().map(|point| at(*point)).collect();
        svg.line(&places, &format!("line {class}"));
        if let Some(([end_x, end_y], [_, ratio])) = places.last().zip(points.last()) {
            svg.dot([*end_x, *end_y], 4.0, class);
            ends.push((*class, *end_y, *ratio));
        }
    }
    apart(&mut ends);
    for (class, end_y, ratio) in ends {
        svg.text(x + left + width + 9.0, end_y + 5.0, Anchor::Start, class, &format!("×{}", short(ratio)));
    }
}

/// Moves two labels apart that would cover each other.
fn apart(ends: &mut [(&str, f64, f64)]) {
    if let [(_, first, _), (_, second, _)] = ends {
        let (middle, gap) = (f64::midpoint(*first, *second), 18.0);
        if (*first - *second).abs() < gap {
            let side = if *first < *second { -1.0 } else { 1.0 };
            (*first, *second) = (middle + side * gap / 2.0, middle - side * gap / 2.0);
        }
    }
}

fn cause(value: f64) -> String {
    if value < 1e5 { number(value) } else { format!("10^{:.0}", value.log10()) }
}

/// Two digits, as a ratio needs.
fn short(ratio: f64) -> String {
    let digits = if ratio < 0.095 { 2 } else { usize::from(ratio < 9.95) };
    format!("{ratio:.digits$}")
}
