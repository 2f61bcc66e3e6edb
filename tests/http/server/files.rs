//! Files of policies: read again while the server runs, explained, and with a fleet shedder around all limits.

use std::time::{Duration, Instant};

use http::Method;

use super::harness::{ConfigFile, PATIENCE, Server};

const REFUSED: &str = "the config file is refused, the policies stay";

fn policy(limit: u64) -> String {
    format!("[[policy]]\nname = \"all\"\nkey = \"client_ip\"\nlimit = {limit}\nwindow = \"1h\"\n")
}

async fn remaining(server: &Server) -> String {
    let response = server.ask(Method::GET, "/", &[], "").await;
    response.headers()["x-ratelimit-remaining"].to_str().expect("it is a number").to_owned()
}

/// Waits for a limit to be in force, without taking anything.
async fn limit_becomes(server: &Server, limit: u64) {
    let deadline = Instant::now() + PATIENCE;
    while !server.get("/rate_limit").await.1.contains(&format!(r#""limit":{limit},"#)) {
        assert!(Instant::now() < deadline, "the limit does not become {limit}: {}", server.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_file_that_changes_brings_new_limits_and_keeps_what_was_used_and_a_bad_one_changes_nothing() {
    let config = ConfigFile::new(&policy(5));
    let server = Server::start(&["--config", config.path()]);
    assert_eq!(remaining(&server).await, "4");
    config.replace(&policy(10));
    server.signal("HUP");
    limit_becomes(&server, 10).await;
    assert_eq!(remaining(&server).await, "8", "one of ten was used");
    // It is noticed without a signal, too.
    config.replace(&policy(3));
    limit_becomes(&server, 3).await;

    config.replace(&policy(0));
    server.logs(REFUSED, 1).await;
    std::fs::remove_file(config.path()).unwrap();
    server.logs(REFUSED, 2).await;
    assert_eq!(remaining(&server).await, "0", "the old limit is in force");
    config.replace("policy = []\n");
    server.logs("no policies: nothing is limited", 1).await;
    let log = server.log();
    let refused: Vec<_> = log.lines().filter(|line| line.contains(REFUSED)).collect();
    assert_eq!(refused.len(), 2, "each is told once: {log}");
    assert!(refused[0].contains(&format!("{} line 4: limit 0 admits nothing", config.path())), "{log}");
    assert!(!server.ask(Method::GET, "/", &[], "").await.headers().contains_key("x-ratelimit-remaining"));
}

#[tokio::test]
async fn a_config_from_a_pipe_is_read_once_and_a_hang_up_does_not_wait_for_more() {
    let config = ConfigFile::new("");
    std::fs::remove_file(config.path()).unwrap();
    let make = std::process::Command::new("mkfifo").arg(config.path()).status().expect("mkfifo runs");
    assert!(make.success());
    let path = config.path().to_owned();
    let writer = std::thread::spawn(move || std::fs::write(path, policy(2)).expect("the pipe is read"));
    let server = Server::start(&["--config", config.path()]);
    writer.join().unwrap();
    assert_eq!(remaining(&server).await, "1");
    for hang_up in 1..=2 {
        server.signal("HUP");
        server.logs(REFUSED, hang_up).await;
    }
    assert_eq!(remaining(&server).await, "0", "the policies stay");
    server.signal("TERM");
    server.ends_well().await;
}

#[tokio::test]
async fn explain_shows_the_policies_of_a_path_to_this_machine_and_only_with_the_flag() {
    let config = ConfigFile::new(&(policy(2) + "routes = [\"/login\"]\nmethods = [\"POST\"]\n"));
    let server = Server::start(&["--explain", "--config", config.path()]);
    for (query, told) in [
        ("path=/login&method=POST", "yes"),
        ("path=/login", "its methods do not include GET"),
        ("path=/status/418&method=POST", "its routes do not include /status/{code}, which matched"),
    ] {
        let (code, text) = server.get(&format!("/explain?{query}")).await;
        assert!(code == 200 && text.contains(told), "{query}: {text}");
    }
    assert_eq!(server.get("/explain?path=http://a/").await.0, 400);
    assert_eq!(server.status("/explain?path=/login", &[("x-forwarded-for", "192.0.2.1")]).await, 403);
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
