//! What only Redis can do to a store: be shared, be away, forget, and hold what others wrote.

mod support {
    pub(crate) mod checks;
    pub(crate) mod clock;
    pub(crate) mod control;
    pub(crate) mod server;
    pub(crate) mod slow;
}

mod redis_only {
    mod connecting;
    mod contents;
    mod expiry;
    mod foreign;
    mod functions;
    mod lazy;
    mod outages;
    mod sharing;
    mod stores;
    mod together;
}
