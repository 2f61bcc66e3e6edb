//! `--explain` of the example server, and the fleet shedder of its config file around all limits.

use std::time::{Duration, Instant};

use http::Method;

use super::harness::{ConfigFile, PATIENCE, Server};

#[tokio::test]
async fn explain_shows_the_policies_of_a_path_to_this_machine_and_only_with_the_flag() {
    let policy = |name: &str, options: &str| {
        format!("[[policy]]\nname = \"{name}\"\nkey = \"client_ip\"\nlimit = 2\nwindow = \"1h\"\n{options}\n")
    };
    let login = policy("login", "routes = [\"/login\"]\nmethods = [\"POST\"]");
    let config = ConfigFile::new(&(policy("all", "") + &login));
    let server = Server::start(&["--explain", "--config", config.path()]);
    for (query, applies) in [
        ("path=/login&method=POST", "yes"),
        ("path=/login", "its methods do not include GET"),
        ("path=/status/418&method=POST", "its routes do not include /status/{code}, which matched"),
        ("path=/nowhere%3Fa=b&method=POST", "none has matched where the layer is"),
    ] {
        let (code, text) = server.get(&format!("/explain?{query}")).await;
        let line = text.lines().find(|line| line.starts_with("login ")).unwrap_or_default();
        assert!(code == 200 && line.contains(applies), "{query}: {text}");
    }
    for bad in ["path=login", "path=http://a/", "path=/a%20b", "path=/&method=a%20b", "method=GET"] {
        assert_eq!(server.get(&format!("/explain?{bad}")).await.0, 400, "{bad}");
    }
    assert_eq!(server.status("/explain?path=/login", &[("x-forwarded-for", "192.0.2.1")]).await, 403);
    for expected in [200, 200, 429] {
        assert_eq!(server.status("/", &[]).await, expected, "nothing was taken");
    }
    let without = Server::start(&["--config", config.path()]);
    assert_eq!(without.get("/explain?path=/login").await.0, 404);
}

fn fleet(limit: u64) -> String {
    let policy = "[[policy]]\nname = \"all\"\nkey = \"global\"\nlimit = 1000\nwindow = \"30d\"\n";
    format!("{policy}[fleet]\nlimit = {limit}\nreserve = 0.5\ncritical_routes = [\"/login\"]\n")
}

#[tokio::test]
async fn the_fleet_of_the_file_sheds_what_is_not_critical_and_stays_until_the_next_start() {
    let config = ConfigFile::new(&fleet(2));
    let server = Server::start(&["--config", config.path()]);
    let slow = server.uri("/slow?ms=19000");
    let slow = tokio::spawn(async move { crate::sockets::Http::new().get(slow).await.status() });
    let deadline = Instant::now() + PATIENCE;
    while !server.get("/rate_limit").await.1.contains(r#""used":1,"#) {
        assert!(Instant::now() < deadline, "the slow request never began");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let shed = server.ask(Method::GET, "/search", &[], "").await;
    assert_eq!(shed.status(), 503);
    assert!(shed.headers().contains_key("retry-after") && !shed.headers().contains_key("ratelimit"));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let login = server.ask(Method::POST, "/login", &form, "password=correct+horse").await;
    assert_eq!((login.status().as_u16(), &login.headers()["x-ratelimit-remaining"]), (200, &"998".parse().unwrap()));
    assert_eq!(server.status("/healthz", &[]).await, 200);
    slow.abort();

    config.replace(&fleet(20));
    server.logs("fleet stays as it was", 1).await;
}
