//! Draws how every algorithm decides the same traffic, on a simulated clock, as an SVG.
//!
//! `cargo run -p tollgate-charts --example algorithms [FILE]` writes `docs/algorithms.svg`, or `FILE`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;
use tollgate::store::{Ask, Check, Counter, MaybeFuture, Store};
use tollgate::{Key, MemoryStore, Quota};

const LIMIT: u64 = 10;
const WINDOW: Duration = Duration::from_secs(10);
const END: f64 = 60.0;
/// The width of a bar, in seconds.
const BAR: f64 = 0.5;

const ADMITTED: RGBColor = RGBColor(38, 111, 178);
const REFUSED: RGBColor = RGBColor(226, 137, 60);
const ROLLING: RGBColor = RGBColor(40, 40, 40);

/// The result of one request.
struct Request {
    /// In seconds; of an admitted one, when it starts.
    at: f64,
    admitted: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "docs/algorithms.svg".to_owned());
    let root = SVGBackend::new(&file, (900, 1040)).into_drawing_area();
    root.fill(&WHITE)?;
    let root =
        root.titled("10 units per 10 s: requests admitted and refused, in bars of half a second", ("sans-serif", 20))?;
    let (legend, panels) = root.split_vertically(26);
    draw_legend(&legend)?;
    for (panel, (name, quota)) in panels.split_evenly((quotas().len(), 1)).iter().zip(quotas()) {
        draw(panel, name, &run(quota))?;
    }
    root.present()?;
    println!("{file}");
    Ok(())
}

fn quotas() -> Vec<(&'static str, Quota)> {
    vec![
        ("fixed window: twice the limit around a boundary", Quota::fixed_window(LIMIT, WINDOW)),
        ("sliding log: never more than the limit in any window", Quota::sliding_log(LIMIT, WINDOW)),
        ("sliding window: nearly so, from two counts", Quota::sliding_window(LIMIT, WINDOW)),
        ("token bucket (GCRA), burst 10: saves up for bursts, then one a second", Quota::token_bucket(LIMIT, WINDOW)),
        ("token bucket (GCRA), burst 3", Quota::token_bucket(LIMIT, WINDOW).burst(3)),
        ("leaky bucket, queue 5: delays requests to one a second", Quota::leaky_bucket(LIMIT, WINDOW).queue(5)),
    ]
}

/// When requests arrive, in milliseconds: steadily, then all at once, then around a window's boundary.
fn traffic() -> Vec<u64> {
    let steady = (0..20).map(|second| second * 1_000 + 250);
    let burst = (0..15).map(|index| 24_000 + index * 20);
    let before = (0..10).map(|index| 49_000 + index * 80);
    let after = (0..10).map(|index| 50_100 + index * 80);
    steady.chain(burst).chain(before).chain(after).collect()
}

fn run(quota: Quota) -> Vec<Request> {
    // The simulated time starts at a multiple of the window.
    let start = 1_700_000_000_000;
    let now = Arc::new(AtomicU64::new(start));
    let clock = Arc::clone(&now);
    let store = MemoryStore::builder().clock(move || Duration::from_millis(clock.load(Ordering::Relaxed))).build();
    let counter = Counter::new("chart".try_into().expect("a valid name"), Key::new("user", "ada"), quota);
    let decide = |at: u64| {
        now.store(start + at, Ordering::Relaxed);
        let MaybeFuture::Ready(Ok(decided)) = store.decide(&[Check::new(counter.clone(), 1)], Ask::default()) else {
            unreachable!("memory decides at once");
        };
        let at = Duration::from_millis(at) + decided.decision.delay();
        Request { at: at.as_secs_f64(), admitted: decided.decision.is_allowed() }
    };
    traffic().into_iter().map(decide).collect()
}

fn draw(panel: &DrawingArea<SVGBackend<'_>, Shift>, name: &str, requests: &[Request]) -> Result<(), Box<dyn Error>> {
    let mut chart = ChartBuilder::on(panel)
        .margin(4)
        .margin_right(14)
        .caption(name, ("sans-serif", 15))
        .x_label_area_size(22)
        .y_label_area_size(30)
        .build_cartesian_2d(0.0..END, 0.0..22.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_labels(7)
        .y_labels(4)
        .x_label_formatter(&|seconds| format!("{seconds:.0} s"))
        .y_label_formatter(&|units| format!("{units:.0}"))
        .bold_line_style(BLACK.mix(0.25))
        .light_line_style(TRANSPARENT)
        .draw()?;
    chart.draw_series(bars(requests))?;
    chart.draw_series(DashedLineSeries::new([(0.0, 10.0), (END, 10.0)], 4, 4, ROLLING.mix(0.6).into()))?;
    chart.draw_series(LineSeries::new(rolling(requests), ROLLING.stroke_width(2)))?;
    Ok(())
}

/// Draws admitted requests, with refused ones on top.
fn bars(requests: &[Request]) -> Vec<Rectangle<(f64, f64)>> {
    let mut bars = Vec::new();
    let mut from = 0.0;
    while from < END {
        let inside = |request: &&Request| request.at >= from && request.at < from + BAR;
        let count = |admitted: bool| {
            f64::from(
                u32::try_from(requests.iter().filter(inside).filter(|r| r.admitted == admitted).count()).unwrap_or(0),
            )
        };
        let (admitted, refused) = (count(true), count(false));
        let bar = |low: f64, high: f64, colour: RGBColor| {
            Rectangle::new([(from + 0.04, low), (from + BAR - 0.04, high)], colour.filled())
        };
        if admitted > 0.0 {
            bars.push(bar(0.0, admitted, ADMITTED));
        }
        if refused > 0.0 {
            bars.push(bar(admitted, admitted + refused, REFUSED));
        }
        from += BAR;
    }
    bars
}

/// Returns how many requests started in the last 10 seconds, at each tenth of a second.
fn rolling(requests: &[Request]) -> Vec<(f64, f64)> {
    let points = (0..=600_u32).map(|tenth| f64::from(tenth) / 10.0);
    let count = |at: f64| {
        let inside = |request: &&Request| request.admitted && request.at <= at && request.at > at - 10.0;
        f64::from(u32::try_from(requests.iter().filter(inside).count()).unwrap_or(0))
    };
    points.map(|at| (at, count(at))).collect()
}

fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
    let entries = [
        (ADMITTED, "admitted (when it goes on)"),
        (REFUSED, "refused"),
        (ROLLING, "line: admitted in the last 10 s; dashed: the limit"),
    ];
    for (index, (colour, text)) in (0_i32..).zip(entries) {
        let x = 40 + index * 230;
        area.draw(&Rectangle::new([(x, 6), (x + 12, 18)], colour.filled()))?;
        area.draw(&Text::new(text, (x + 18, 6), ("sans-serif", 14)))?;
    }
    Ok(())
}
