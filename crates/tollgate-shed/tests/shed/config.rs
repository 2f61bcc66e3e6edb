//! The table `[fleet]` of a file: what it makes critical, and the error of every mistake in it.

use std::convert::Infallible;

use futures::FutureExt;
use http::{Request, Response};
use proptest::prelude::*;
use tollgate::MemoryStore;
use tollgate::body::ResponseBody;
use tollgate_shed::{Class, FleetConfig, FleetShedLayer};
use tower::{Layer, ServiceExt, service_fn};

const FLEET: &str = r#"
[fleet]
limit = 4
reserve = 0.5
critical = { header = "x-priority", value = "high" }
"#;

#[track_caller]
fn read(file: &str) -> Option<FleetConfig> {
    FleetConfig::from_toml(file).expect("a good file")
}

/// Checks the error of a file: its line, and what it says.
#[track_caller]
fn refused(file: &str, line: usize, fragments: &[&str]) {
    let error = FleetConfig::from_toml(file).expect_err(file);
    let text = format!("{error:#}");
    assert!(error.is_invalid(), "{text}");
    assert!(text.starts_with(&format!("line {line}: ")), "{text}\n{file}");
    assert!(!text.contains('\n') && !text.ends_with('.'), "{text:?}");
    for fragment in fragments {
        assert!(text.contains(fragment), "{text} does not say {fragment:?}");
    }
}

#[track_caller]
fn shedder(file: &str) -> FleetShedLayer {
    read(file).expect("the file has a fleet").layer(MemoryStore::new()).expect("memory has slots")
}

/// The status and the class of a request.
#[track_caller]
fn send(layer: &FleetShedLayer, request: Request<String>) -> (u16, Option<Class>, Response<ResponseBody<String>>) {
    let hello = |request: Request<String>| {
        let mut response = Response::new("hello".to_owned());
        response.extensions_mut().insert(*request.extensions().get::<Class>().expect("a class"));
        std::future::ready(Ok::<_, Infallible>(response))
    };
    let response =
        layer.layer(service_fn(hello)).oneshot(request).now_or_never().expect("at once").expect("a response");
    (response.status().as_u16(), response.extensions().get().copied(), response)
}

fn with(priority: &[&str]) -> Request<String> {
    let request = priority.iter().fold(Request::post("/"), |request, value| request.header("x-priority", *value));
    request.body(String::new()).expect("a request")
}

#[test]
fn a_file_without_a_fleet_has_no_shedder() {
    assert_eq!(read(""), None);
    assert_eq!(read("[[policy]]\nname = \"a\"\ncolour = 1\n[ratios]\ntick = \"1s\""), None);
}

#[test]
fn a_header_makes_requests_critical_and_others_are_shed() {
    let layer = shedder(FLEET);
    let mut held = Vec::new();
    for expected in [200, 200, 503, 503] {
        let (status, class, response) = send(&layer, with(&[]));
        assert_eq!(status, expected);
        assert!(status == 503 || class == Some(Class::Write));
        held.push(response);
    }
    for priority in [&["low"][..], &["HIGH"], &["high", "low"], &[""]] {
        assert_eq!(send(&layer, with(priority)).0, 503, "{priority:?}");
    }
    for _ in 0..10 {
        let (status, class, response) = send(&layer, with(&["high"]));
        assert_eq!((status, class), (200, Some(Class::Critical)));
        held.push(response);
    }
}

#[tokio::test]
async fn routes_make_requests_critical() {
    use axum::routing::get;
    let file = "[fleet]\nlimit = 2\nreserve = 0.5\ncritical_routes = [\"/charges/{id}\", \"/pay\"]";
    let class =
        |request: Request<axum::body::Body>| async move { request.extensions().get::<Class>().unwrap().as_str() };
    let routes = ["/charges/{id}", "/charges", "/pay", "/other"];
    let app = routes.iter().fold(axum::Router::new(), |app, route| app.route(route, get(class)));
    let app = app.layer(shedder(file));
    for (path, class) in [("/charges/7", "critical"), ("/charges", "read"), ("/pay", "critical"), ("/other", "read")] {
        let request = Request::get(path).body(axum::body::Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).await.expect("a response");
        assert_eq!(axum::body::to_bytes(response.into_body(), 100).await.unwrap(), class, "{path}");
    }
}

/// A file whose fleet is good but for the lines given; they begin on line 2.
fn fleet(lines: &str) -> String {
    let mut file = format!("[fleet]\n{lines}\n");
    let good = [
        ("limit", "limit = 10"),
        ("reserve", "reserve = 0.2"),
        ("critical", FLEET.lines().last().expect("it has lines")),
    ];
    for (field, line) in good {
        let given = |line: &str| line.starts_with(field) || line.starts_with(&format!("# no {field}"));
        if !lines.lines().any(given) {
            file = file + line + "\n";
        }
    }
    file
}

#[test]
fn every_mistake_in_a_fleet_names_its_line() {
    let critical =
        "reserve has no critical requests: add critical = { header = \"...\", value = \"...\" } or critical_routes";
    for (lines, line, fragments) in [
        ("colour = 1", 2, &["unknown field `colour`", "`critical_routes`"][..]),
        ("# no limit", 1, &["fleet: missing field `limit`"]),
        ("# no reserve", 1, &["fleet: missing field `reserve`"]),
        ("reserve = 0.2\n# no critical", 2, &[critical]),
        ("limit = 0", 2, &["limit 0", "at least 1"]),
        ("limit = 2_000_000", 2, &["limit 2000000 is too large"]),
        ("\nslot_ttl = \"1s\"", 3, &["slot_ttl 1s is shorter than two heartbeats"]),
        ("slot_ttl = \"1 month\"", 2, &["\"1 month\" has the unit month, which differs in length"]),
        ("critical = { header = \"x y\", value = \"high\" }", 2, &["critical has \"x y\" for a name"]),
        ("critical = { header = \"x\", value = \" high\" }", 2, &["cannot be the value of a header"]),
        ("max_hold = \"10ms\"", 2, &["max_hold 10ms is too short"]),
        ("reserve = 0", 2, &["reserve 0 is not allowed: give a fraction above 0 and below 1"]),
        ("reserve = nan", 2, &["reserve NaN is not allowed"]),
        ("limit = 1\n\nreserve = 0.2", 4, &["reserve 0.2 of 1 leaves nothing for requests that are not critical"]),
        ("name = \"two words\"", 2, &["policy name \"two words\" is not allowed"]),
        ("critical_routes = []\n# no critical", 2, &["critical_routes is an empty list"]),
        ("critical_routes = [\"/a\",\n\"charges\"]", 3, &["route \"charges\" can never match"]),
    ] {
        refused(&fleet(lines), line, fragments);
    }
    let long = format!("name = \"{}\"", "a".repeat(60));
    refused(&fleet(&long), 2, &["has 60 characters: give at most 57 (column 8)"]);
    refused("fleet = 3", 1, &["fleet: invalid type: integer `3`, expected a table, under [fleet]"]);
    refused("fleet = [10, 0.2]", 1, &["fleet: invalid type: integer `10`"]);
}

#[test]
fn a_name_of_a_policy_is_told_with_its_line() {
    let file = |policy: &str, name: &str| {
        format!("[[policy]]\n\nname = \"{policy}\"\nlimit = 1\nwindow = \"1s\"\n{FLEET}{name}")
    };
    let told = |name: &str| format!("name {name:?} is that of the policy on line 3: give another");
    refused(&file("ip", "name = \"ip\""), 11, &[&told("ip")]);
    refused(&file("fleet", ""), 7, &[&told("fleet")]);
    refused(&file("ip.others", "name = \"ip\""), 11, &[&told("ip.others")]);
    assert!(read(&file("ip", "name = \"ip2\"")).is_some());
}

#[test]
fn a_file_is_named_in_its_error() {
    let path = std::env::temp_dir().join(format!("tollgate-shed-{}.toml", std::process::id()));
    std::fs::write(&path, FLEET.replace('4', "0")).expect("the folder can be written");
    let error = FleetConfig::from_file(&path).expect_err("limit 0").to_string();
    assert_eq!(error, format!("{} line 3: limit 0 admits nothing: give at least 1 (column 9)", path.display()));
    std::fs::write(&path, FLEET).expect("the folder can be written");
    assert_eq!(FleetConfig::from_file(&path).expect("a good file"), read(FLEET));
    std::fs::remove_file(&path).expect("it is there");
    let error = format!("{:#}", FleetConfig::from_file(&path).expect_err("it is gone"));
    assert!(error.starts_with(&format!("cannot read the config file {}: ", path.display())), "{error}");
}

/// All that a table may hold.
const ALL: &str = r#"
[[policy]]
name = "api"
[fleet]
name = "example"
limit = 10_000
reserve = 0.2
slot_ttl = "30s"
max_hold = "1h"
critical = { header = "x-priority", value = "high" }
critical_routes = ["/login", "/charges/{id}"]
"#;

#[test]
fn all_fields_are_documented_and_in_the_example_file() {
    let error = FleetConfig::from_toml("[fleet]\nunknown_field = 1").expect_err("it is unknown").to_string();
    let (_, list) = error.split_once("one of ").expect("a list");
    let fields: Vec<&str> = list.split('`').skip(1).step_by(2).take(7).collect();
    let (docs, example) = (include_str!("../../src/config.rs"), include_str!("../../../../examples/policies.toml"));
    for field in fields {
        assert!(docs.contains(&format!("/// | `{field}` | ")), "the docs of FleetConfig lack a row of {field}");
        assert!(ALL.contains(&format!("\n{field} = ")), "{field}");
        assert!(example.contains(&format!("\n# {field} = ")), "examples/policies.toml lacks the field {field}");
    }
}

proptest! {
    #[test]
    fn whatever_a_file_holds_it_is_read_or_refused_with_its_line(
        from in 0..ALL.len(),
        to in 0..ALL.len(),
        put in prop_oneof!["\\PC{0,3}", "-?[0-9_]{1,22}", "\"[0-9]{0,25} ?(ns|ms|s|h|d|M|y)?\"", "(inf|nan|\\[\\]|\\{\\}|''')"],
    ) {
        let (from, to) = (from.min(to), from.max(to));
        if let Err(error) = FleetConfig::from_toml(&format!("{}{put}{}", &ALL[..from], &ALL[to..])) {
            let text = format!("{error:#}");
            prop_assert!(error.is_invalid() && text.starts_with("line "), "{text}");
            prop_assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }
}
