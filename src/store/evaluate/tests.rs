//! Decisions of every algorithm, without a store: the tables of `tests/decisions/algorithms/`, on the arithmetic alone.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../../../tests/support/checks.rs"]
mod checks;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../../../tests/support/clock.rs"]
mod clock;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../../../tests/decisions/algorithms/rows.rs"]
mod rows;
#[path = "tests/subject.rs"]
mod subject;
#[path = "../../../tests/decisions/algorithms/tables.rs"]
mod tables;
