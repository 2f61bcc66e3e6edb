//! Draws how the cost of a request grows, by the figures of the benchmark program, as an SVG.
//!
//! `cargo run --release -p tollgate-bench --features peers -- growth --out FIGURES` writes the figures, and
//! `cargo run -p tollgate-charts --example growth FIGURES [FILE]` writes `docs/growth.svg`, or `FILE`.

use std::error::Error;
use std::fs;

use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (1_000, 1_220);

const COLOURS: [RGBColor; 8] = [
    RGBColor(38, 111, 178),
    RGBColor(226, 137, 60),
    RGBColor(58, 145, 80),
    RGBColor(170, 50, 60),
    RGBColor(120, 90, 160),
    RGBColor(110, 110, 110),
    RGBColor(60, 170, 180),
    RGBColor(200, 110, 170),
];

/// A panel: its title, its cause, and the tables whose sides it draws, each with what their names are followed by.
struct Panel {
    title: &'static str,
    cause: &'static str,
    tables: &'static [(&'static str, &'static str)],
}

const PANELS: [Panel; 5] = [
    Panel {
        title: "policies of a layer: time",
        cause: "policies",
        tables: &[("policies_memory", ", in memory"), ("policies_redis", ", Redis")],
    },
    Panel {
        title: "keys in use: time of a check",
        cause: "keys",
        tables: &[("keys_memory", ", in memory"), ("keys_redis", ", Redis")],
    },
    Panel {
        title: "requests in flight: checks/s, and median latency",
        cause: "in flight",
        tables: &[("in_flight_rate", ": checks/s"), ("in_flight_latency", ": latency")],
    },
    Panel {
        title: "processes on one Redis, 64 in flight together",
        cause: "processes",
        tables: &[("processes_rate", ": checks/s"), ("processes_cpu", ": server's processor time")],
    },
    Panel {
        title: "units in a full sliding log: time of a check",
        cause: "units",
        tables: &[("log_memory", ", in memory"), ("log_redis", ", Redis")],
    },
];

/// A line of the figures.
struct Figure {
    table: String,
    side: String,
    cause: String,
    ratio: f64,
}

/// A line of the chart.
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let figures = arguments.next().ok_or("give the file that `growth --out` has written")?;
    let file = arguments.next().unwrap_or_else(|| "docs/growth.svg".to_owned());
    let figures = parse(&fs::read_to_string(&figures)?)?;
    let root = SVGBackend::new(&file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled("how cost grows: ratios to the first point of each line", ("sans-serif", 20))?;
    let cells = root.split_evenly((3, 2));
    for (panel, area) in PANELS.iter().zip(&cells) {
        draw(area, panel, &curves(panel, &figures)?)?;
    }
    explain(&cells[PANELS.len()])?;
    root.present()?;
    println!("{file}");
    Ok(())
}

fn parse(text: &str) -> Result<Vec<Figure>, Box<dyn Error>> {
    let mut lines = text.lines();
    if lines.next() != Some("table,side,unit,cause,median,ratio") {
        return Err("the first line is not that of `growth --out`".into());
    }
    lines.map(figure).collect()
}

fn figure(line: &str) -> Result<Figure, Box<dyn Error>> {
    let fields: Vec<&str> = line.split(',').collect();
    let [table, side, _, cause, _, ratio] = fields[..] else { return Err(format!("not a figure: {line}").into()) };
    let [table, side, cause] = [table, side, cause].map(str::to_owned);
    Ok(Figure { table, side, cause, ratio: ratio.parse()? })
}

/// Returns the lines of a panel, in the order of the figures.
fn curves(panel: &Panel, figures: &[Figure]) -> Result<Vec<Curve>, Box<dyn Error>> {
    let mut curves: Vec<Curve> = Vec::new();
    for (table, suffix) in panel.tables {
        for figure in figures.iter().filter(|figure| figure.table == *table) {
            let (name, point) = (format!("{}{suffix}", figure.side), (figure.cause.parse()?, figure.ratio));
            match curves.last_mut().filter(|curve| curve.name == name) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve { name, points: vec![point] }),
            }
        }
    }
    if curves.is_empty() { Err(format!("no figures of {}", panel.cause).into()) } else { Ok(curves) }
}

fn draw(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let [from, to] = [f64::min, f64::max].map(|pick| points().map(|point| point.0).reduce(pick).unwrap_or(1.0));
    let [low, high] = [f64::min, f64::max].map(|pick| points().map(|point| point.1).fold(1.0, pick));
    let (low, high) = (low / 1.5, high * 1.5);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(18)
        .caption(panel.title, ("sans-serif", 16))
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d((from..to).log_scale(), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(panel.cause)
        .x_label_formatter(&|cause| number(*cause))
        .y_label_formatter(&|ratio| number(*ratio))
        .light_line_style(TRANSPARENT)
        .draw()?;
    // What grew as its cause did, as far as the panel goes.
    let end = to.min(from * high);
    chart.draw_series(DashedLineSeries::new([(from, 1.0), (end, end / from)], 5, 5, BLACK.mix(0.5).into()))?;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let legend = |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled());
        let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2));
        chart.draw_series(line)?.label(&curve.name).legend(legend);
        chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    let labels = &mut chart.configure_series_labels();
    let labels = labels.position(SeriesLabelPosition::UpperLeft).label_font(("sans-serif", 12));
    labels.background_style(WHITE.mix(0.7)).border_style(TRANSPARENT).draw()?;
    Ok(())
}

/// Formats a number with as many digits as it needs.
fn number(value: f64) -> String {
    if value >= 10_000.0 {
        return format!("10^{:.0}", value.log10());
    }
    if value >= 10.0 { format!("{value:.0}") } else { format!("{}", (value * 100.0).round() / 100.0) }
}

fn explain(area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
    let lines = [
        "Each line starts at 1, and both scales are logarithmic.",
        "Dashed: what grows as its cause does. A cost below it",
        "grows more slowly than its cause.",
        "Lines of checks/s are better the higher they are, all",
        "others the lower.",
        "docs/benchmark-tables.md has the unit of work of each.",
    ];
    for (place, line) in (0_i32..).zip(lines) {
        area.draw(&Text::new(line, (50, 60 + 24 * place), ("sans-serif", 15)))?;
    }
    Ok(())
}
