//! Draws when 200 clients of a real server try again after they were denied together, as an SVG.
//!
//! `cargo run -p tollgate-charts --example retries [FILE]` runs them without jitter and with it, which takes about 20 s.
//! It prints what it measured, and writes `crates/tollgate-client/docs/retries.svg`, or `FILE`.

use std::error::Error;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;

#[path = "../../crates/tollgate-client/tests/client/herd.rs"]
mod herd;

const CLIENTS: u32 = 200;
const WINDOW: Duration = Duration::from_secs(4);
/// Tenths of a second that are drawn.
const END: usize = 90;

const DENIED: RGBColor = RGBColor(170, 50, 60);
const AGAIN: RGBColor = RGBColor(38, 111, 178);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "crates/tollgate-client/docs/retries.svg".to_owned());
    let without = herd::run(CLIENTS, WINDOW, Duration::ZERO).await;
    let with = herd::run(CLIENTS, WINDOW, Duration::from_secs(5)).await;
    let root = SVGBackend::new(&file, (900, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled("requests per 100 ms: red are denied, blue are the retries", ("sans-serif", 20))?;
    let panels = root.split_evenly((2, 1));
    let most = [&without, &with].map(|attempts| histogram(&attempts.again).into_iter().max().expect("some"));
    let top = most[0].max(most[1]) + 10;
    for (panel, name, attempts) in [(&panels[0], "without jitter", &without), (&panels[1], "with jitter", &with)] {
        let (denied, again) = (histogram(&attempts.denied), histogram(&attempts.again));
        draw(panel, name, top, &denied, &again)?;
        let at = |place: usize| attempts.again[place].as_secs_f64();
        let busiest = again.iter().max().expect("some");
        println!(
            "{name}: retries from {:.2} s to {:.2} s, at most {busiest} in 100 ms",
            at(0),
            at(CLIENTS as usize - 1)
        );
    }
    root.present()?;
    println!("{file}");
    Ok(())
}

fn histogram(times: &[Duration]) -> [u32; END] {
    let mut counts = [0; END];
    for at in times {
        let tenth = usize::try_from(at.as_millis() / 100).unwrap_or(END);
        counts[tenth.min(END - 1)] += 1;
    }
    counts
}

fn draw(
    panel: &DrawingArea<SVGBackend<'_>, Shift>,
    name: &str,
    top: u32,
    denied: &[u32; END],
    again: &[u32; END],
) -> Result<(), Box<dyn Error>> {
    let mut chart = ChartBuilder::on(panel)
        .margin(4)
        .margin_right(14)
        .caption(name, ("sans-serif", 15))
        .x_label_area_size(22)
        .y_label_area_size(34)
        .build_cartesian_2d(0.0..9.0, 0..top)?;
    chart
        .configure_mesh()
        .x_labels(10)
        .y_labels(5)
        .x_label_formatter(&|at| format!("{at:.0} s"))
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (counts, colour) in [(denied, DENIED), (again, AGAIN)] {
        let bars = (0_u32..).zip(counts).filter(|(_, count)| **count > 0).map(|(tenth, count)| {
            let from = f64::from(tenth) / 10.0;
            Rectangle::new([(from, 0), (from + 0.1, (*count).min(top))], colour.filled())
        });
        chart.draw_series(bars)?;
    }
    Ok(())
}
