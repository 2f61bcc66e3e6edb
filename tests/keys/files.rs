//! Headers that policies of a file compare, and keys with the application's own rule in a file.

use http::{HeaderValue, Method};
use tollgate::Policy;
use tollgate_config::Config;

use super::rig::{expect, get, send, service, with};

fn read(fields: &str) -> Result<Policy, String> {
    let text = format!("[[policy]]\nname = \"policy\"\nwindow = \"1h\"\n{fields}\n");
    let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
    Ok(config.into_policies().remove(0))
}

#[test]
fn white_space_around_what_a_header_says_is_none_of_it_and_of_several_lines_the_strictest_counts() {
    let tiers = "limit = 10\ntiers = { by = \"header:x-plan\", free = 2, pro = 100 }";
    let cost = "limit = 10\ncost = \"header:x-cost\"";
    let reserve = "limit = 10\nreserve = 0.9\ncritical = { header = \"x-priority\", value = \"high\" }";
    for (fields, name, lines, expected) in [
        (tiers, "x-plan", &["\tfree "][..], "1"),
        (tiers, "x-plan", &["pro", "pro "], "99"),
        // Tiers that differ are none.
        (tiers, "x-plan", &["pro", "x"], "9"),
        (tiers, "x-plan", &["x", "pro"], "9"),
        (cost, "x-cost", &["\t4 "], "6"),
        // The highest cost counts, also where a proxy joined the lines.
        (cost, "x-cost", &["0", "3"], "7"),
        (cost, "x-cost", &["2 ,x"], "8"),
        (cost, "x-cost", &["0,0", "1,\t4"], "6"),
        // Those that differ are not critical.
        (reserve, "x-priority", &["\thigh "], "9"),
        (reserve, "x-priority", &["high", "low"], "0"),
        (reserve, "x-priority", &["low", "high"], "0"),
    ] {
        let response = send(&service(read(fields).expect("it is valid")), with(name, lines));
        assert_eq!(response.headers()["x-ratelimit-remaining"], expected, "{name}: {lines:?}");
    }
}

#[test]
fn texts_that_no_header_can_say_and_choices_that_a_key_has_not_are_faults() {
    for (fields, part) in [
        ("limit = 1\ntiers = { by = \"header:x\", \"pro \" = 100 }", "which cannot be the value of a header"),
        ("limit = 1\nkey = \"header:x\"\ndeny = [{ value = \"a\", key = \"bearer\" }]", "can never match"),
        ("limit = 1\nkey = \"last:path\"", "takes no such choice"),
        ("limit = 1\nkey = \"first:last:cookie:s\"", "chooses twice"),
        ("limit = 1\nkey = \"last:\"", "is unknown"),
    ] {
        let fault = read(fields).expect_err(fields);
        assert!(fault.contains(part), "{fault}");
    }
}

#[test]
fn a_file_says_which_of_several_values_counts_and_what_an_entry_of_a_list_is() {
    let header = |lines: &[&str]| with("x-user", lines);
    let cookie = |line: &str| with("cookie", &[line]);
    for (fields, requests, expected) in [
        ("key = \"last:cookie:s\"", [cookie("s=REAL"), cookie("s=x; s=REAL")], [200, 429]),
        ("key = \"first:ignore_case:header:x-user\"", [header(&["REAL"]), header(&["real", "x"])], [200, 429]),
        ("key = \"ignore_case:last:query:k\"", [get("/?k=REAL"), get("/?k=x&k=Real")], [200, 429]),
        (
            "key = [\"header:x-user\", \"method\"]\ndeny = [{ value = \"203.0.113.*\" }]",
            [header(&["203.0.113.*"]), header(&["ada"])],
            [403, 200],
        ),
        (
            "key = [\"header:x-user\", \"method\"]\ndeny = [{ value = \"10.*\", key = \"header:X-User\" }]",
            [header(&["10.*"]), header(&["ada"])],
            [403, 200],
        ),
        ("deny = [\"10.0.0.0/8\"]\nserve_unknown_addresses = true", [get("/"), get("/")], [200, 429]),
    ] {
        let service = service(read(&format!("limit = 1\n{fields}")).expect("it is valid"));
        expect(&service, requests.into_iter().zip(expected));
    }
    let mut preflight = with("origin", &["https://a.example"]);
    *preflight.method_mut() = Method::OPTIONS;
    preflight.headers_mut().insert("access-control-request-method", HeaderValue::from_static("PUT"));
    let spared = "limit = 1\nkey = \"header:x-user\"\nmissing_key = \"deny\"\npreflights_without_key = true";
    expect(&service(read(spared).expect("it is valid")), [(preflight, 200), (get("/"), 403)]);
}
