//! Constructors that panic where they are called, with the sentence of the error of their fallible version.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use tollgate::Error;

thread_local! {
    /// The file in which this thread panicked last.
    static FILE: RefCell<String> = RefCell::default();
}

/// Checks that a call panics in the file of the caller, and with this error.
#[track_caller]
pub(crate) fn assert_panics<T, E>(call: impl FnOnce() -> T, fallible: Result<E, Error>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            FILE.set(panic.location().map(|location| location.file().to_owned()).unwrap_or_default());
            usual(panic);
        }));
    });
    let error = fallible.err().expect("it would work");
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(call()))).expect_err("it panics");
    let text = panicked.downcast_ref().cloned().or_else(|| panicked.downcast_ref().map(|text: &&str| text.to_string()));
    assert_eq!(text, Some(format!("{error:#}")));
    assert_eq!(FILE.take(), Location::caller().file(), "{error}");
}
