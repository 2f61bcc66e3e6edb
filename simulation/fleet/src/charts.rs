//! The charts of crates/tollgate-ratio/docs/ratios.md.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::cases::{fair, steps, unavailable};
use crate::fleet::Plan;
use crate::load::Load;
use crate::measure::Measured;

const ADMITTED: RGBColor = RGBColor(38, 111, 178);
const OFFERED: RGBColor = RGBColor(226, 137, 60);

/// Draws `ratios.svg` into a folder.
///
/// # Errors
///
/// If the file cannot be written.
pub(crate) fn draw(folder: &Path, seed: u64, largest: usize) -> Result<(), Box<dyn Error>> {
    let file = folder.join("ratios.svg");
    let root = SVGBackend::new(&file, (900, 1_180)).into_drawing_area();
    root.fill(&WHITE)?;
    let root =
        root.titled("admitted (blue) and offered (orange) in each second, over the limit", ("sans-serif", 20))?;
    let panels = root.split_evenly((4, 2));
    let plan = |processes, limit, load| Plan::new(processes, limit, load, seed);
    let large = format!("{largest} processes, even × 5, limit 1,000/s");
    let plans = [
        ("100 processes, even × 5, limit 10,000/s", plan(100, 10_000, Load::Even(5.0))),
        ("2, 10, 0.5 and 3 × the limit", steps(100, 10_000, seed)),
        ("on × 5 for 5 s, off for 5 s", plan(100, 10_000, Load::OnOff(5.0, 5))),
        ("no tally from 10 s to 30 s", unavailable(100, 10_000, seed)),
        (&*large, plan(largest, 1_000, Load::Even(5.0))),
        ("on × 5 for 1 s, off for 1 s", plan(100, 10_000, Load::OnOff(5.0, 1))),
    ];
    for (panel, (name, plan)) in panels.iter().zip(&plans) {
        lines(panel, name, plan)?;
    }
    callers(&panels[6], seed)?;
    calls(&panels[7], seed)?;
    root.present()?;
    Ok(())
}

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn lines(panel: &Panel<'_>, name: &str, plan: &Plan) -> Result<(), Box<dyn Error>> {
    let run = plan.run();
    let admitted = Measured::new(plan, &run).seconds;
    let offered: Vec<f64> = run.offered.iter().map(|units| *units as f64 / plan.limit as f64).collect();
    let mut chart = ChartBuilder::on(panel)
        .margin(6)
        .caption(name, ("sans-serif", 15))
        .x_label_area_size(22)
        .y_label_area_size(30)
        .build_cartesian_2d(0.0..f64::from(plan.seconds), 0.0..6.0)?;
    chart.configure_mesh().x_labels(9).y_labels(7).light_line_style(TRANSPARENT).draw()?;
    let points = |seconds: &[f64]| -> Vec<(f64, f64)> {
        seconds.iter().enumerate().map(|(second, units)| (second as f64 + 0.5, units.min(6.0))).collect()
    };
    chart.draw_series(LineSeries::new(points(&offered), OFFERED.stroke_width(1)))?;
    chart.draw_series(LineSeries::new(points(&admitted), ADMITTED.stroke_width(2)))?;
    Ok(())
}

/// Draws which share of each caller's requests is admitted: the first one sends 5 times the limit.
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn callers(panel: &Panel<'_>, seed: u64) -> Result<(), Box<dyn Error>> {
    let plan = fair(8, 1_000, seed);
    let runs = [plan.run(), Plan { fair: false, ..plan }.run()];
    let mut chart = ChartBuilder::on(panel)
        .margin(6)
        .caption("share admitted by caller: fair (blue), or not (orange)", ("sans-serif", 15))
        .x_label_area_size(22)
        .y_label_area_size(30)
        .build_cartesian_2d(0.0..21.0, 0.0..1.05)?;
    chart.configure_mesh().x_labels(5).y_labels(5).light_line_style(TRANSPARENT).draw()?;
    for ((run, colour), from) in runs.iter().zip([ADMITTED, OFFERED]).zip([0.1, 0.5]) {
        let bar = |(caller, [offered, kept]): (usize, &[u64; 2])| {
            let (left, share) = (caller as f64 + from, *kept as f64 / (*offered).max(1) as f64);
            Rectangle::new([(left, 0.0), (left + 0.4, share)], colour.filled())
        };
        chart.draw_series(run.callers.iter().enumerate().map(bar))?;
    }
    Ok(())
}

/// Draws the calls of 8 processes in a second by the requests that they decide.
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn calls(panel: &Panel<'_>, seed: u64) -> Result<(), Box<dyn Error>> {
    let mut points = Vec::new();
    for times in [0.1, 1.0, 5.0, 20.0, 50.0] {
        let plan = Plan { seconds: 13, ..Plan::new(8, 1_000, Load::Even(times), seed) };
        points.push((times * 1_000.0, plan.run().calls as f64 / 13.0));
    }
    let mut chart = ChartBuilder::on(panel)
        .margin(6)
        .caption("calls a second of 8 processes, by requests a second", ("sans-serif", 15))
        .x_label_area_size(22)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..50_000.0, 0.0..20.0)?;
    chart.configure_mesh().x_labels(6).y_labels(5).light_line_style(TRANSPARENT).draw()?;
    chart.draw_series(LineSeries::new(points.clone(), ADMITTED.stroke_width(2)))?;
    chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, ADMITTED.filled())))?;
    Ok(())
}
