//! What can be wrong only in code panics where it is written, and says what its fallible version says.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

use tollgate::{Error, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};

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
    let limits = || RateLimitLayer::new(MemoryStore::new(), Policy::new("a", Quota::per_hour(1)).cost(1).metered());
    let metered = "policy \"a\": it counts content-bytes, of which a request takes none: leave out metered";
    vec![
        row(
            "BandwidthLayer::requests",
            metered,
            move || BandwidthLayer::requests(limits(), OnLimit::Abort),
            BandwidthLayer::try_requests(limits(), OnLimit::Abort),
        ),
        row(
            "BandwidthLayer::responses",
            metered,
            move || BandwidthLayer::responses(limits(), OnLimit::Abort),
            BandwidthLayer::try_responses(limits(), OnLimit::Abort),
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
    let folders = ["src", "src/flow"].map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    for file in folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder")) {
        let path = file.expect("an entry").path();
        let text = if path.is_file() { std::fs::read_to_string(&path).expect("it is text") } else { continue };
        let mut owner = "";
        // `Flow::try_acquire` makes nothing.
        for line in text.lines().filter(|line| line.starts_with("impl ") || line.contains("-> Result<Self, Error>")) {
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
