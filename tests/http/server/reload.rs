//! New policies for a running server.

use std::time::{Duration, Instant, SystemTime};

use http::Method;

use super::harness::{ConfigFile, PATIENCE, Server};

const READ: &str = "the config file was read again";
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
        assert!(Instant::now() < deadline, "the limit does not become {limit}: {}", server.log.text());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_file_that_changes_brings_new_limits_and_keeps_what_was_used_and_a_bad_one_changes_nothing() {
    let config = ConfigFile::new(&policy(5));
    let server = Server::start(&["--config", config.path()]);
    assert_eq!(remaining(&server).await, "4");
    server.signal("HUP");
    server.log.wait(READ, 1).await;
    assert_eq!(remaining(&server).await, "3", "the same file changes nothing");
    config.replace(&policy(10));
    server.signal("HUP");
    limit_becomes(&server, 10).await;
    assert_eq!(remaining(&server).await, "7", "two of ten were used");
    config.replace(&policy(3));
    // It is noticed without a signal, too.
    limit_becomes(&server, 3).await;
    assert_eq!(server.status("/", &[]).await, 429, "three of three");
    config.replace(&policy(12));
    limit_becomes(&server, 12).await;

    config.replace(&policy(0));
    server.log.wait(REFUSED, 1).await;
    assert_eq!(remaining(&server).await, "8", "the old limit is in force");
    std::fs::remove_file(config.path()).unwrap();
    server.log.wait(REFUSED, 2).await;
    assert_eq!(remaining(&server).await, "7", "and without a file too");
    config.replace(&policy(11));
    limit_becomes(&server, 11).await;
    config.replace("");
    server.log.wait(REFUSED, 3).await;
    assert_eq!(remaining(&server).await, "5", "an empty file changes nothing");
    let log = server.log.text();
    let told: Vec<_> = log.lines().filter(|line| line.contains(REFUSED)).collect();
    assert_eq!(told.len(), 3, "each is told once: {log}");
    assert!(told[0].contains(&format!("{} line 4: limit 0 admits nothing", config.path())), "{log}");
    assert!(told[1].contains("No such file"), "{log}");

    config.replace("policy = []\n");
    server.log.wait("no policies: nothing is limited", 1).await;
    assert!(!server.ask(Method::GET, "/", &[], "").await.headers().contains_key("x-ratelimit-remaining"));
}

#[tokio::test]
async fn newly_trusted_proxies_are_believed_and_other_settings_wait_for_a_restart() {
    let config = ConfigFile::new(&policy(1));
    let server = Server::start(&["--config", config.path()]);
    let clients = [[("x-forwarded-for", "203.0.113.1")], [("x-forwarded-for", "203.0.113.2")]];
    assert_eq!(server.status("/", &clients[0]).await, 200);
    assert_eq!(server.status("/", &clients[1]).await, 429, "the header is not believed");

    let settings = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\non_failure = \"deny\"\n";
    config.replace(&(policy(1) + settings));
    server.signal("HUP");
    server.log.wait(READ, 1).await;
    assert_eq!(server.log.count("on_failure, allow_for and instances stay as they were"), 1);
    for client in &clients {
        assert_eq!(server.status("/", client).await, 200);
        assert_eq!(server.status("/", client).await, 429);
    }
}

#[tokio::test]
async fn a_config_from_a_pipe_is_read_once_and_a_hang_up_does_not_wait_for_more() {
    let config = ConfigFile::new(&policy(2));
    std::fs::remove_file(config.path()).unwrap();
    let make = std::process::Command::new("mkfifo").arg(config.path()).status().expect("mkfifo runs");
    assert!(make.success());
    let path = config.path().to_owned();
    let writer = std::thread::spawn(move || std::fs::write(path, policy(2)).expect("the pipe is read"));
    let mut server = Server::start(&["--config", config.path()]);
    writer.join().unwrap();
    assert_eq!(remaining(&server).await, "1");

    for hang_up in 1..=2 {
        server.signal("HUP");
        server.log.wait(REFUSED, hang_up).await;
    }
    assert_eq!(remaining(&server).await, "0", "the policies stay");

    config.replace(&policy(5));
    limit_becomes(&server, 5).await;
    server.signal("TERM");
    let (status, log) = tokio::task::spawn_blocking(move || server.end()).await.unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_another_file_of_equal_length_and_time_is_noticed() {
    let (before, after, link) = (ConfigFile::new(&policy(3)), ConfigFile::new(&policy(8)), ConfigFile::new(""));
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for file in [&before, &after] {
        std::fs::File::options().write(true).open(file.path()).and_then(|file| file.set_modified(time)).unwrap();
    }
    std::fs::remove_file(link.path()).unwrap();
    std::os::unix::fs::symlink(before.path(), link.path()).unwrap();
    let server = Server::start(&["--config", link.path()]);
    assert_eq!(remaining(&server).await, "2");
    let next = format!("{}.next", link.path());
    std::os::unix::fs::symlink(after.path(), &next).unwrap();
    std::fs::rename(&next, link.path()).unwrap();
    limit_becomes(&server, 8).await;
}
