//! Headers that policies of a file compare, and keys with the application's own rule in a file.

use http::{HeaderValue, Method, Request};
use tollgate::Policy;
use tollgate_config::Config;

use super::rig::{Service, expect, get, send, service, with};

fn read(fields: &str) -> Result<Policy, String> {
    let text = format!("[[policy]]\nname = \"policy\"\nwindow = \"1h\"\n{fields}\n");
    let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
    Ok(config.into_policies().remove(0))
}

fn limited(fields: &str) -> Service {
    service(read(fields).unwrap_or_else(|error| panic!("{error}")))
}

/// What the headers say is left of the limit.
#[track_caller]
fn left(service: &Service, request: Request<String>) -> String {
    let response = send(service, request);
    response.headers().get("x-ratelimit-remaining").expect("it is told").to_str().expect("ASCII").to_owned()
}

#[test]
fn white_space_around_a_tier_or_a_cost_is_none_of_it_and_of_several_the_strictest_counts() {
    let tiers = "limit = 10\ntiers = { by = \"header:x-plan\", free = 2, pro = 100 }";
    let cost = "limit = 10\ncost = \"header:x-cost\"";
    for (fields, name, lines, expected) in [
        (tiers, "x-plan", &["free"][..], "1"),
        (tiers, "x-plan", &["\tfree "], "1"),
        (tiers, "x-plan", &["pro", "pro "], "99"),
        // Tiers that differ are none.
        (tiers, "x-plan", &["pro", "x"], "9"),
        (tiers, "x-plan", &["x", "pro"], "9"),
        (tiers, "x-plan", &["pro", ""], "9"),
        (cost, "x-cost", &["\t4 "], "6"),
        // The highest cost counts, also where a proxy joined the lines.
        (cost, "x-cost", &["0", "3"], "7"),
        (cost, "x-cost", &["2", "x", "0"], "8"),
        (cost, "x-cost", &["0, 3"], "7"),
        (cost, "x-cost", &["2 ,x"], "8"),
        (cost, "x-cost", &["0,0", "1,\t4"], "6"),
        (cost, "x-cost", &["4,4", "4"], "6"),
    ] {
        assert_eq!(left(&limited(fields), with(name, lines)), expected, "{lines:?}");
    }
    // Of costs that differ one cannot tell: they count with other ambiguous requests.
    let service = limited(cost);
    assert_eq!(left(&service, with("x-cost", &["0", "3"])), "7");
    assert_eq!(left(&service, with("x-cost", &["2", "x", "0"])), "5");
    assert_eq!(left(&service, get("/")), "9");
}

#[test]
fn white_space_around_a_priority_is_none_of_it_and_those_that_differ_are_not_critical() {
    let service = limited("limit = 10\nreserve = 0.9\ncritical = { header = \"x-priority\", value = \"high\" }");
    expect(&service, [(get("/"), 200), (get("/"), 429)]);
    for (lines, status) in [(&["high"][..], 200), (&["\thigh "], 200), (&["high", "low"], 429), (&["low", "high"], 429)]
    {
        expect(&service, [(with("x-priority", lines), status)]);
    }
}

#[test]
fn texts_that_no_header_can_say_are_faults() {
    for (fields, part) in [
        ("limit = 1\ntiers = { by = \"header:x\", \"pro \" = 100 }", "which cannot be the value of a header"),
        (
            "limit = 10\nreserve = 0.5\ncritical = { header = \"x\", value = \" high\" }",
            "cannot be the value of a header",
        ),
        ("limit = 1\nkey = \"header:x\"\ndeny = [\"stolen \"]", "can never match"),
        ("limit = 1\nkey = \"header:x\"\ndeny = [{ value = \"a\", key = \"bearer\" }]", "can never match"),
        ("limit = 1\nkey = \"last:path\"", "takes no such choice"),
        ("limit = 1\nkey = \"ignore_case:bearer\"", "takes no such choice"),
        ("limit = 1\nkey = \"first:last:cookie:s\"", "chooses twice"),
        ("limit = 1\nkey = \"last:\"", "is unknown"),
    ] {
        let fault = read(fields).expect_err(fields);
        assert!(fault.contains(part), "{fault}");
    }
}

#[test]
fn a_file_says_which_of_several_values_counts_and_what_an_entry_of_a_list_is() {
    for (key, name, real, other) in [
        ("last:cookie:session", "cookie", &["session=REAL"][..], &["session=x; session=REAL"][..]),
        ("first:header:x-user", "x-user", &["REAL"], &["REAL", "x"]),
        ("first:ignore_case:header:x-user", "x-user", &["REAL"], &["real", "x"]),
        ("ignore_case:header:x-user", "x-user", &["REAL"], &["real"]),
    ] {
        let service = limited(&format!("limit = 1\nkey = \"{key}\""));
        expect(&service, [(with(name, real), 200), (with(name, other), 429)]);
    }
    let query = limited("limit = 1\nkey = \"ignore_case:last:query:k\"");
    expect(&query, [(get("/?k=REAL"), 200), (get("/?k=x&k=Real"), 429)]);
    for entry in ["{ value = \"203.0.113.*\" }", "{ value = \"203.0.113.*\", key = \"header:X-User\" }"] {
        let denying = limited(&format!("limit = 1\nkey = [\"header:x-user\", \"method\"]\ndeny = [{entry}]"));
        expect(&denying, [(with("x-user", &["203.0.113.*"]), 403), (with("x-user", &["ada"]), 200)]);
    }
    let serving = limited("limit = 1\ndeny = [\"10.0.0.0/8\"]\nserve_unknown_addresses = true");
    expect(&serving, [(get("/"), 200)]);
    let spared = "limit = 1\nkey = \"header:x-user\"\nmissing_key = \"deny\"\npreflights_without_key = true";
    let mut preflight = with("origin", &["https://a.example"]);
    *preflight.method_mut() = Method::OPTIONS;
    preflight.headers_mut().insert("access-control-request-method", HeaderValue::from_static("PUT"));
    expect(&limited(spared), [(preflight, 200), (get("/"), 403)]);
}
