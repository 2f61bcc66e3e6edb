//! The check: what an application sees of a request, beside what the request is counted by.
//!
//! The fuzz target in `fuzz/` shares this folder: it knows nothing of the tests around it.

mod addresses;
mod authorization;
mod choices;
mod cookies;
mod headers;
mod hosts;
mod kind;
mod ledger;
mod params;
mod paths;
mod queries;
mod routed;
mod spelling;

#[allow(unused_imports, reason = "the tests and the fuzz target use different ones")]
pub(crate) use self::{
    choices::Choices,
    kind::{App, Kind, app},
    ledger::Ledger,
    spelling::Spelling,
};

/// All kinds of keys that are made of what clients write.
pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        headers::kind(),
        authorization::bearers(),
        authorization::users(),
        cookies::kind(),
        queries::kind(),
        hosts::kind(),
        paths::kind(),
        params::kind(),
        addresses::kind(),
    ]
}
