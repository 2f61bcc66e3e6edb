//! Draws the pictures of docs/benchmarks.md as SVG, by the figures that benchmarks have written.
//!
//! `cargo run -p tollgate-charts --example benchmarks FOLDER [TARGET]` reads all `.csv` files of `FOLDER` and writes each
//! picture of which they have the figures into `TARGET`, or `docs`. With `B` for `cargo run --release -p tollgate-bench
//! --features peers --`, the figures are those of `B growth --out FOLDER/growth.csv`, `B http --redis-cell --out
//! FOLDER/http.csv`, `B instructions --redis-cell --out FOLDER/instructions.csv`, `B latency --out FOLDER/latency.csv`
//! and `scripts/compile-time --out FOLDER/compile-time.csv`.

mod bars;
mod figures;
mod growth;
mod latency;
mod svg;

use std::error::Error;
use std::fs;
use std::path::Path;

use figures::Figures;

/// Draws a picture, if its figures are there.
type Draw = fn(&Figures) -> Option<String>;

const PICTURES: [(&str, Draw); 5] = [
    ("growth.svg", growth::draw),
    ("requests.svg", bars::requests),
    ("instructions.svg", bars::instructions),
    ("latency.svg", latency::draw),
    ("compile-time.svg", bars::compile_time),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("give the folder of the .csv files")?;
    let target = arguments.next().unwrap_or_else(|| "docs".to_owned());
    let figures = Figures::read(Path::new(&folder))?;
    for (name, draw) in PICTURES {
        if let Some(text) = draw(&figures) {
            let file = Path::new(&target).join(name);
            fs::write(&file, text)?;
            println!("{}", file.display());
        } else {
            println!("no figures of {name}");
        }
    }
    Ok(())
}
