//! What every store must answer: the same tests, on memory and on Redis, by the same clock.

mod support {
    pub(crate) mod checks;
    pub(crate) mod clock;
    pub(crate) mod server;
}

mod conformance {
    mod counters;
    mod fixed_window;
    mod requests;
    mod rows;
    mod settlements;
    mod shadow;
    mod subject;
    mod token_bucket;
    mod traces;
}
