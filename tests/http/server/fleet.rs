//! The fleet shedder of a config file, around all limits of the example server.

use std::time::{Duration, Instant};

use http::Method;

use super::harness::{ConfigFile, PATIENCE, Server};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn fleet(limit: u64) -> String {
    let policy = "[[policy]]\nname = \"all\"\nkey = \"global\"\nlimit = 1000\nwindow = \"30d\"\n";
    format!("{policy}[fleet]\nlimit = {limit}\nreserve = 0.5\ncritical_routes = [\"/login\"]\n")
}

async fn remaining(server: &Server) -> String {
    let response = server.ask(Method::POST, "/login", &[FORM], "password=correct+horse").await;
    assert_eq!(response.status(), 200);
    response.headers()["x-ratelimit-remaining"].to_str().expect("it is a number").to_owned()
}

#[tokio::test]
async fn requests_that_are_not_critical_are_shed_while_the_fleet_is_full_and_charge_nothing() {
    let config = ConfigFile::new(&fleet(2));
    let server = Server::start(&["--config", config.path()]);
    let requests = async {
        let deadline = Instant::now() + PATIENCE;
        let mut charged = 1;
        while server.status("/", &[]).await != 503 {
            charged += 1;
            assert!(Instant::now() < deadline, "the slow request never began");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let shed = server.ask(Method::GET, "/search", &[], "").await;
        assert_eq!(shed.status(), 503);
        let wait: u64 = shed.headers()["retry-after"].to_str().expect("ASCII").parse().expect("a number");
        assert!((1..=3).contains(&wait) && !shed.headers().contains_key("ratelimit"));
        assert_eq!(remaining(&server).await, (1_000 - charged - 1).to_string());
        assert_eq!(server.status("/healthz", &[]).await, 200);
    };
    // A request of the loop may hold the only slot that is not reserved: then the slow one is shed, and comes again. It
    // is in progress for longer than the others take, and its client goes away then.
    let slow = async {
        let deadline = Instant::now() + PATIENCE;
        while server.status("/slow?ms=19000", &[]).await == 503 {
            assert!(Instant::now() < deadline, "the slow request was never admitted");
        }
    };
    tokio::select! {
        () = requests => {}
        () = slow => panic!("the slow request ended before the others"),
    }
    let deadline = Instant::now() + PATIENCE;
    while server.status("/", &[]).await != 200 {
        assert!(Instant::now() < deadline, "the slot of a client that went away is never free");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_file_with_another_fleet_is_read_and_the_fleet_stays_until_the_next_start() {
    let config = ConfigFile::new(&fleet(2));
    let server = Server::start(&["--config", config.path()]);
    config.replace(&fleet(2).replace("1000", "2000"));
    server.log.wait("the config file was read again", 1).await;
    assert_eq!(server.log.count("settings_stay"), 0, "{}", server.log.text());
    config.replace(&fleet(20));
    server.log.wait("fleet stays as it was", 1).await;
    assert_eq!(server.log.count("settings_stay"), 1);
}
