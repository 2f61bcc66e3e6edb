//! Headers that policies of a file compare: tiers, critical requests and costs.

use http::{Request, Response};
use http_body_util::Full;
use tollgate::{MemoryStore, RateLimitLayer};
use tollgate_config::Config;
use tower::util::BoxCloneService;
use tower::{Layer, service_fn};

use super::rig::{Service, expect, get, one, send, with};

fn file(fields: &str) -> String {
    format!("[[policy]]\nname = \"policy\"\nwindow = \"1h\"\n{fields}\n")
}

fn limited(fields: &str) -> Service {
    let config = Config::from_toml(&file(fields)).unwrap_or_else(|error| panic!("{error:#}"));
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies(config.into_policies());
    BoxCloneService::new(layer.layer(service_fn(|_| async { Ok(Response::new(Full::from("hello"))) })))
}

#[track_caller]
fn fault(fields: &str) -> String {
    Config::from_toml(&file(fields)).expect_err("the file is wrong").to_string()
}

/// What the headers say is left of the limit.
#[track_caller]
fn left(service: &Service, request: Request<String>) -> String {
    let response = send(service, request);
    response.headers().get("x-ratelimit-remaining").expect("it is told").to_str().expect("ASCII").to_owned()
}

#[test]
fn white_space_around_a_tier_chooses_no_other() {
    let tiers = "limit = 100\ntiers = { by = \"header:x-plan\", free = 2 }";
    for plan in ["free", "free ", "\tfree", " free\t"] {
        assert_eq!(left(&limited(tiers), one("x-plan", plan)), "1", "{plan:?}");
    }
}

#[test]
fn tiers_that_differ_are_none() {
    let tiers = "limit = 10\ntiers = { by = \"header:x-plan\", pro = 100 }";
    for plans in [["pro", "x"], ["x", "pro"], ["pro", ""]] {
        assert_eq!(left(&limited(tiers), with(plans.map(|plan| ("x-plan", plan)))), "9", "{plans:?}");
    }
    assert_eq!(left(&limited(tiers), with(["pro", "pro "].map(|plan| ("x-plan", plan)))), "99");
}

const CRITICAL: &str = "limit = 10\nreserve = 0.9\ncritical = { header = \"x-priority\", value = \"high\" }";

#[test]
fn white_space_around_a_priority_is_none_of_it() {
    let service = limited(CRITICAL);
    expect(&service, [(get("/"), 200), (get("/"), 429)]);
    for priority in ["high", "high ", "\thigh"] {
        expect(&service, [(one("x-priority", priority), 200)]);
    }
}

#[test]
fn priorities_that_differ_are_not_critical() {
    let service = limited(CRITICAL);
    expect(&service, [(get("/"), 200)]);
    for priorities in [["high", "low"], ["low", "high"]] {
        expect(&service, [(with(priorities.map(|priority| ("x-priority", priority))), 429)]);
    }
}

#[test]
fn of_costs_that_differ_the_highest_counts_with_other_ambiguous_requests() {
    let service = limited("limit = 10\ncost = \"header:x-cost\"");
    assert_eq!(left(&service, with(["0", "3"].map(|cost| ("x-cost", cost)))), "7");
    assert_eq!(left(&service, with(["2", "x", "0"].map(|cost| ("x-cost", cost)))), "5");
    assert_eq!(left(&service, get("/")), "9");
}

#[test]
fn a_proxy_that_joins_lines_lowers_no_cost() {
    let service = limited("limit = 10\ncost = \"header:x-cost\"");
    assert_eq!(left(&service, one("x-cost", "0, 3")), "7");
    assert_eq!(left(&service, one("x-cost", "2 ,x")), "5");
    assert_eq!(left(&service, with(["0,0", "1,\t4"].map(|cost| ("x-cost", cost)))), "1");
    assert_eq!(left(&service, with(["4,4", "4"].map(|cost| ("x-cost", cost)))), "6");
}

#[test]
fn white_space_around_a_cost_does_not_lower_it() {
    let service = limited("limit = 10\ncost = \"header:x-cost\"");
    assert_eq!(left(&service, one("x-cost", "4 ")), "6");
    assert_eq!(left(&service, one("x-cost", "\t4")), "2");
}

#[test]
fn texts_that_no_header_can_say_are_faults() {
    for fields in [
        "limit = 10\ntiers = { by = \"header:x-plan\", \"pro \" = 100 }",
        "limit = 10\nreserve = 0.5\ncritical = { header = \"x-priority\", value = \" high\" }",
    ] {
        let fault = fault(fields);
        assert!(fault.contains("which cannot be the value of a header"), "{fault}");
    }
}

#[test]
fn a_list_has_no_entry_with_white_space_around_it() {
    let fault = fault("limit = 10\nkey = \"header:x-api-key\"\ndeny = [\"stolen \"]");
    assert!(fault.contains("can never match"), "{fault}");
}

#[test]
fn a_denied_key_among_several_is_refused() {
    let service = limited("limit = 1\nkey = \"header:x-api-key\"\ndeny = [\"stolen\"]");
    expect(&service, [(with(["x", "stolen"].map(|key| ("x-api-key", key))), 400)]);
    expect(&service, [(with([("x-api-key", "x")]), 200)]);
}
