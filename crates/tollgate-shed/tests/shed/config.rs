//! The table `[fleet]` of a file: what it makes critical, and the error of every mistake in it.

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Request, Response};
use proptest::prelude::*;
use tollgate::MemoryStore;
use tollgate_shed::{Class, FleetConfig};
use tower::ServiceExt;

/// All that a table may hold.
const ALL: &str = r#"
[[policy]]
name = "api"
[fleet]
name = "example"
limit = 4
reserve = 0.5
slot_ttl = "30s"
max_hold = "1h"
critical = { header = "x-priority", value = "high" }
critical_routes = ["/login", "/charges/{id}"]
"#;

#[track_caller]
fn read(file: &str) -> Option<FleetConfig> {
    FleetConfig::from_toml(file).expect("a good file")
}

/// Checks the error of a file: its line, and what it says.
#[track_caller]
fn refused(file: &str, line: usize, part: &str) {
    let error = FleetConfig::from_toml(file).expect_err(file);
    let text = format!("{error:#}");
    assert!(error.is_invalid() && text.starts_with(&format!("line {line}: ")) && text.contains(part), "{text}\n{file}");
    assert!(!text.contains('\n') && !text.ends_with('.'), "{text:?}");
}

/// The file with something else in place of the line of a field, and the number of that line.
fn replaced(field: &str, line: &str) -> (String, usize) {
    let mut lines: Vec<&str> = ALL.lines().collect();
    let place = lines.iter().rposition(|line| line.split(" = ").next() == Some(field)).expect(field);
    lines[place] = line;
    (lines.join("\n"), place + 1)
}

#[test]
fn a_file_without_a_fleet_has_no_shedder() {
    assert_eq!(read(""), None);
    assert_eq!(read("[[policy]]\nname = \"a\"\ncolour = 1\n[ratios]\ntick = \"1s\""), None);
}

#[tokio::test]
async fn headers_and_routes_make_requests_critical_and_others_are_shed() {
    let class = async |request: Request<Body>| request.extensions().get::<Class>().expect("a class").as_str();
    let layer = read(ALL).expect("the file has a fleet").layer(MemoryStore::new()).expect("memory has slots");
    let routes = ["/", "/login", "/charges/{id}", "/charges"];
    let app = routes.into_iter().fold(Router::new(), |app, route| app.route(route, any(class))).layer(layer);
    let send = async |method: &str, path: &str, priority: &[&str]| -> Response<Body> {
        let request = Request::builder().method(method).uri(path);
        let request = priority.iter().fold(request, |request, value| request.header("x-priority", *value));
        app.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("a response")
    };
    for (path, priority) in [("/", &["high"][..]), ("/login", &[]), ("/charges/7", &[])] {
        let response = send("POST", path, priority).await;
        assert_eq!(axum::body::to_bytes(response.into_body(), 100).await.expect("a body"), "critical", "{path}");
    }
    let mut held = Vec::new();
    for (method, status) in [("POST", 200), ("GET", 200), ("POST", 503), ("GET", 503)] {
        held.push(send(method, "/charges", &[]).await);
        assert_eq!(held.last().expect("one was sent").status(), status);
    }
    for priority in [&["low"][..], &["HIGH"], &["high", "low"], &[""]] {
        assert_eq!(send("POST", "/", priority).await.status(), 503, "{priority:?}");
    }
    for _ in 0..10 {
        held.push(send("POST", "/", &["high"]).await);
        assert_eq!(held.last().expect("one was sent").status(), 200);
    }
}

#[test]
fn every_mistake_in_a_fleet_names_its_line() {
    for (line, part) in [
        ("limit = 0", "limit 0 admits nothing: at least 1 is needed (column 9)"),
        ("limit = 2_000_000", "limit 2000000 is too large"),
        ("slot_ttl = \"1s\"", "slot_ttl 1s is shorter than two heartbeats"),
        ("slot_ttl = \"1 month\"", "\"1 month\" has the unit month, which differs in length"),
        ("critical = { header = \"x y\", value = \"high\" }", "critical has \"x y\" for a name"),
        ("critical = { header = \"x\", value = \" high\" }", "cannot be the value of a header"),
        ("max_hold = \"10ms\"", "max_hold 10ms is too short"),
        ("reserve = 0", "reserve 0 is not allowed: use a fraction above 0 and below 1"),
        ("reserve = nan", "reserve NaN is not allowed"),
        ("name = \"two words\"", "policy name \"two words\" is not allowed"),
        (
            "name = \"ab.cdefghijklmnopqrstuvwxyz.abcdefghijklmnopqrstuvwxyz_012\"",
            "has 58 characters: at most 57 are allowed",
        ),
        ("name = \"api\"", "name \"api\" is that of the policy on line 3: use another"),
        ("critical_routes = []", "critical_routes is an empty list"),
        ("critical_routes = [\"/a\", \"charges\"]", "route \"charges\" can never match"),
    ] {
        let (file, number) = replaced(line.split(" = ").next().expect("a field"), line);
        refused(&file, number, part);
    }
    refused(
        &ALL.replace("limit = 4", "limit = 1"),
        7,
        "reserve 0.5 of 1 leaves nothing for requests that are not critical",
    );
    refused(&ALL.replace("api", "example.others"), 5, "name \"example.others\" is that of the policy on line 3");
    refused(&replaced("limit", "").0, 4, "fleet: missing field `limit`");
    refused(&replaced("limit", "colour = 1").0, 6, "unknown field `colour`");
    let critical =
        "reserve has no critical requests: add critical = { header = \"...\", value = \"...\" } or critical_routes";
    refused("[fleet]\nlimit = 5\nreserve = 0.2", 3, critical);
    refused("fleet = 3", 1, "fleet: invalid type: integer `3`, expected a table, under [fleet]");
}

#[test]
fn a_file_is_named_in_its_error() {
    let path = std::env::temp_dir().join(format!("tollgate-shed-{}.toml", std::process::id()));
    std::fs::write(&path, replaced("limit", "limit = 0").0).expect("the folder can be written");
    let error = FleetConfig::from_file(&path).expect_err("limit 0").to_string();
    assert_eq!(error, format!("{} line 6: limit 0 admits nothing: at least 1 is needed (column 9)", path.display()));
    std::fs::write(&path, ALL).expect("the folder can be written");
    assert_eq!(FleetConfig::from_file(&path).expect("a good file"), read(ALL));
    std::fs::remove_file(&path).expect("it is there");
    let error = format!("{:#}", FleetConfig::from_file(&path).expect_err("it is gone"));
    assert!(error.starts_with(&format!("cannot read the config file {}: ", path.display())), "{error}");
}

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
