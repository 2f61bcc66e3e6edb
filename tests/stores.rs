//! What every store must answer: the same tests, on memory and on Redis, by the same clock.

mod support {
    pub(crate) mod checks;
    pub(crate) mod clock;
    pub(crate) mod server;
}

mod conformance {
    mod counters;
    mod requests;
    #[allow(dead_code, unused_imports, reason = "shared with other tests")]
    #[path = "../algorithms/rows.rs"]
    mod rows;
    mod settlements;
    mod shadow;
    #[allow(dead_code, reason = "shared with other tests")]
    #[path = "../algorithms/subject.rs"]
    mod subject;
    mod traces;
}
