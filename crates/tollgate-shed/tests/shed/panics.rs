//! What can be wrong only in code panics where it is written, and says what its fallible version says.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use tollgate::{Ban, Error, Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_shed::{BackPressureLayer, FleetShedLayer, Ramp, WorkerShedLayer};

const HOUR: Duration = Duration::from_secs(3_600);
const ZERO: Duration = Duration::ZERO;
const HOURLY: Quota = Quota::per_hour(1);
const FOUR: NonZeroU32 = NonZeroU32::new(4).expect("it is not zero");

/// A function, the sentence with which it panics, a call that does, and the error of the same call of its fallible form.
struct Row {
    function: &'static str,
    sentence: &'static str,
    call: Box<dyn FnOnce()>,
    error: Error,
}

fn row<T: 'static, E>(
    function: &'static str,
    sentence: &'static str,
    call: impl FnOnce() -> T + 'static,
    twin: Result<E, Error>,
) -> Row {
    Row { function, sentence, call: Box::new(move || drop(call())), error: twin.err().expect(function) }
}

fn rows() -> Vec<Row> {
    let name =
        "policy name \"a name\" is not allowed: start with a letter, then up to 63 letters, digits, '.', '_' or '-'";
    let limiter = || Limiter::new(MemoryStore::new(), [Rule::new("a", HOURLY).ban(Ban::new(1, HOUR, HOUR))]);
    let job = || Key::new("job", "mail");
    vec![
        row(
            "FleetShedLayer::new",
            "a fleet shedder counts requests at once, not 1 per 3600s (token_bucket): give \
             Quota::concurrency(...)",
            || FleetShedLayer::new(MemoryStore::new(), "a", HOURLY, 0.5),
            FleetShedLayer::try_new(MemoryStore::new(), "a", HOURLY, 0.5),
        ),
        row(
            "WorkerShedLayer::new",
            name,
            || WorkerShedLayer::new("a name", FOUR),
            WorkerShedLayer::try_new("a name", FOUR),
        ),
        row(
            "WorkerShedLayer::measured",
            name,
            || WorkerShedLayer::measured("a name", || 0.5),
            WorkerShedLayer::try_measured("a name", || 0.5),
        ),
        row(
            "BackPressureLayer::new",
            "rule \"a\" bans keys that wait: leave out the ban",
            move || BackPressureLayer::new(limiter(), job()),
            BackPressureLayer::try_new(limiter(), job()),
        ),
        row(
            "Ramp::thresholds",
            "thresholds 0.8 and 0.7 are out of order: give good above 0 and below bad",
            || Ramp::new().thresholds(0.8, 0.7),
            Ramp::new().try_thresholds(0.8, 0.7),
        ),
        row(
            "Ramp::after",
            "shedding from 3600s to 3600s is out of order: give a first time of at least 1s, and a \
             later one for all, at most 1 day",
            || Ramp::new().after(HOUR, HOUR),
            Ramp::new().try_after(HOUR, HOUR),
        ),
        row(
            "Ramp::recovery",
            "recovery 0ns is faster than shedding, 120s: it would flap; give at least that",
            || Ramp::new().recovery(ZERO),
            Ramp::new().try_recovery(ZERO),
        ),
    ]
}

thread_local! {
    /// Where and with what message this thread panicked last.
    static PANIC: RefCell<(String, String)> = RefCell::default();
}

/// Calls what panics; returns the file of its location, and its message.
fn panicked(call: Box<dyn FnOnce()>) -> (String, String) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let message = panic.payload().downcast_ref::<String>().cloned();
            let file = panic.location().map(|location| location.file().to_owned());
            PANIC.set((file.unwrap_or_default(), message.unwrap_or_default()));
            usual(panic);
        }));
    });
    catch_unwind(AssertUnwindSafe(call)).expect_err("it panics");
    PANIC.take()
}

#[test]
fn a_constructor_panics_where_it_is_called_with_the_sentence_of_its_error() {
    for Row { function, sentence, call, error } in rows() {
        assert_eq!(error.to_string(), sentence, "{function}");
        assert_eq!(panicked(call), (file!().to_owned(), format!("{error:#}")), "{function}");
    }
}

#[test]
fn each_function_with_a_fallible_version_is_in_the_table() {
    let mut fallible = BTreeSet::new();
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("a folder") {
        let path = file.expect("an entry").path();
        let text = if path.is_file() { std::fs::read_to_string(&path).expect("it is text") } else { continue };
        let mut owner = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("impl ").and_then(|rest| rest.strip_suffix(" {")) {
                owner = name;
            }
            if let Some((function, _)) = line.trim().strip_prefix("pub fn try_").and_then(|rest| rest.split_once('(')) {
                fallible.insert(format!("{owner}::{function}"));
            }
        }
    }
    assert_eq!(fallible, rows().iter().map(|row| row.function.to_owned()).collect());
}
