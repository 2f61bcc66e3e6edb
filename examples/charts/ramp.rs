//! Draws what the ramp of the worker shedder does to a load, as an SVG.
//!
//! `cargo run -p tollgate-charts --example ramp [FILE]` writes `crates/tollgate-shed/docs/shedding.svg`, or `FILE`.

use std::error::Error;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;
use tollgate_shed::{Class, Ramp};

const END: u32 = 900;

const UTILIZATION: RGBColor = RGBColor(40, 40, 40);
/// Each class, its part of all requests, and its colour.
const CLASSES: [(Class, &str, f64, RGBColor); 4] = [
    (Class::Test, "test traffic", 0.1, RGBColor(226, 137, 60)),
    (Class::Read, "reads", 0.6, RGBColor(38, 111, 178)),
    (Class::Write, "writes", 0.25, RGBColor(58, 145, 80)),
    (Class::Critical, "critical", 0.05, RGBColor(170, 50, 60)),
];

/// A second: the utilization, and the share of each class that is served.
struct Second {
    utilization: f64,
    served: [f64; CLASSES.len()],
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "crates/tollgate-shed/docs/shedding.svg".to_owned());
    let root = SVGBackend::new(&file, (900, 760)).into_drawing_area();
    root.fill(&WHITE)?;
    let root =
        root.titled("the worker shedder: utilization, and the share of each class served", ("sans-serif", 20))?;
    let (legend, panels) = root.split_vertically(26);
    draw_legend(&legend)?;
    let panels = panels.split_evenly((3, 1));
    draw(&panels[0], "utilization 0.95 for 4 minutes, whatever is shed", &open(|at| load(at, 240, 0.95)))?;
    draw(&panels[1], "1.2 times the capacity for 7 minutes", &closed(|at| load(at, 420, 1.2)))?;
    draw(&panels[2], "3 times the capacity for 7 minutes", &closed(|at| load(at, 420, 3.0)))?;
    root.present()?;
    println!("{file}");
    Ok(())
}

/// Half of the capacity, but for a time after the first minute.
fn load(at: u32, seconds: u32, bad: f64) -> f64 {
    if (60..60 + seconds).contains(&at) { bad } else { 0.5 }
}

/// What is served of each class by a history of utilization.
fn served(history: &[(Duration, f64)]) -> [f64; CLASSES.len()] {
    let level = Ramp::new().level(history.iter().copied());
    CLASSES.map(|(class, ..)| 1.0 - Ramp::share(level, class))
}

/// The utilization does not depend on what is shed.
fn open(load: impl Fn(u32) -> f64) -> Vec<Second> {
    run(|at, _| load(at))
}

/// The utilization is the load less what is shed.
fn closed(load: impl Fn(u32) -> f64) -> Vec<Second> {
    run(|at, served| load(at) * CLASSES.iter().zip(served).map(|((_, _, part, _), served)| part * served).sum::<f64>())
}

fn run(utilization: impl Fn(u32, &[f64; CLASSES.len()]) -> f64) -> Vec<Second> {
    let (mut history, mut now) = (Vec::new(), [1.0; CLASSES.len()]);
    let second = |at| {
        let utilization = utilization(at, &now);
        history.push((Duration::from_secs(at.into()), utilization));
        now = served(&history);
        Second { utilization, served: now }
    };
    (0..END).map(second).collect()
}

fn draw(panel: &DrawingArea<SVGBackend<'_>, Shift>, name: &str, seconds: &[Second]) -> Result<(), Box<dyn Error>> {
    let mut chart = ChartBuilder::on(panel)
        .margin(4)
        .margin_right(14)
        .caption(name, ("sans-serif", 15))
        .x_label_area_size(22)
        .y_label_area_size(30)
        .build_cartesian_2d(0..END, 0.0..1.5)?;
    chart
        .configure_mesh()
        .x_labels(10)
        .y_labels(7)
        .x_label_formatter(&|at| format!("{at} s"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for threshold in [0.7, 0.8] {
        chart.draw_series(DashedLineSeries::new([(0, threshold), (END, threshold)], 4, 4, BLACK.mix(0.4).into()))?;
    }
    for (class, (.., colour)) in CLASSES.iter().enumerate() {
        let points = (0..).zip(seconds).map(|(at, second)| (at, second.served[class]));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    let points = (0..).zip(seconds).map(|(at, second)| (at, second.utilization.min(1.5)));
    chart.draw_series(LineSeries::new(points, UTILIZATION.stroke_width(1)))?;
    Ok(())
}

fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
    let classes = CLASSES.iter().map(|(_, name, _, colour)| (*colour, *name));
    let lines = [(UTILIZATION, "utilization (at most 1.5 is drawn); dashed: good below 0.7, bad above 0.8")];
    let mut from = 20;
    for (colour, text) in classes.chain(lines) {
        area.draw(&Rectangle::new([(from, 8), (from + 12, 20)], colour.filled()))?;
        area.draw(&Text::new(text, (from + 18, 8), ("sans-serif", 14)))?;
        from += 40 + 7 * i32::try_from(text.len())?;
    }
    Ok(())
}
