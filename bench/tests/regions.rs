//! What `regions` measures is true: the figures of sides for which they are known beforehand.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Both at once would disturb each other.
static ONE: Mutex<()> = Mutex::new(());

/// The cells of a side's row in the first table, after its name.
fn row(side: &str) -> Vec<String> {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bench = Command::new(env!("CARGO_BIN_EXE_tollgate-bench"));
    let output = bench.args(["regions", "--quick", "--only", side]).output().expect("it runs");
    let [text, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let cells = text.lines().find_map(|line| line.strip_prefix(&format!("| {side} | ")));
    cells.unwrap_or_else(|| panic!("{text}{errors}")).trim_end_matches(" |").split(" | ").map(str::to_owned).collect()
}

/// The first number of a cell.
fn number(cell: &str) -> f64 {
    cell.split([',', '%']).next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{cell}"))
}

#[test]
fn what_no_limit_admits_is_what_was_offered() {
    let row = row("no limit");
    for load in [3, 4] {
        assert!((2.7..3.3).contains(&number(&row[load])), "{row:?}");
    }
    assert_eq!((&*row[6], &*row[7]), ("0.0%", "0, 0"), "{row:?}");
}

#[test]
fn a_far_redis_is_exact_and_far() {
    let row = row("far Redis");
    assert!(number(&row[0]) >= 160.0, "{row:?}");
    assert!((0.8..1.2).contains(&number(&row[3])), "{row:?}");
    assert!(number(&row[7]) > 10.0 && number(&row[8]) > 1.0, "{row:?}");
}
