//! New policies for a running server.

use std::time::{Duration, Instant, SystemTime};

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
async fn a_link_to_another_file_of_equal_length_and_time_is_noticed() {
    let (before, after, link) = (ConfigFile::new(&policy(3)), ConfigFile::new(&policy(8)), ConfigFile::new(""));
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for file in [&before, &after] {
        std::fs::File::options().write(true).open(file.path()).and_then(|file| file.set_modified(time)).unwrap();
    }
    let links_to = |file: &ConfigFile| {
        let next = format!("{}.next", link.path());
        std::os::unix::fs::symlink(file.path(), &next).and_then(|()| std::fs::rename(&next, link.path())).unwrap();
    };
    links_to(&before);
    let server = Server::start(&["--config", link.path()]);
    assert_eq!(remaining(&server).await, "2");
    links_to(&after);
    limit_becomes(&server, 8).await;
}
