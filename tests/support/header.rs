//! The first lines of an example: the commands there, and what they print.

use std::net::SocketAddr;
use std::process::Command;

/// Runs each `$ curl` of an example's header with the address of its server, and expects the lines below it, in their order.
///
/// The header may leave lines out. Only the names are expected of what depends on the clock.
pub(crate) async fn holds(source: &'static str, server: SocketAddr) {
    let (_, text) = source.split_once("//! ```text\n").expect("a header with commands");
    let (text, _) = text.split_once("//! ```\n").expect("its end");
    let text = text.lines().map(|line| line.trim_start_matches("//!").trim_start()).collect::<Vec<_>>().join("\n");
    let mut commands = 0;
    for part in
        text.replace("\\\n", " ").split("$ ").filter(|part| part.starts_with("curl ") || part.starts_with("for "))
    {
        let (command, expected) = part.split_once('\n').expect("what it prints");
        let command = command.replace("localhost:3000", &server.to_string());
        let shell = move || Command::new("bash").args(["-c", &command]).output();
        let output =
            tokio::task::spawn_blocking(shell).await.expect("it does not panic").expect("bash and curl are installed");
        let output = String::from_utf8(output.stdout).expect("text");
        let mut lines = output.lines().map(str::trim_start).map(steady);
        for line in expected.lines().filter(|line| !line.is_empty()) {
            assert!(lines.any(|printed| printed == steady(line)), "{line:?} is not printed: {output}");
        }
        commands += 1;
    }
    assert!(commands > 0, "the header has no curl");
}

/// The line without what depends on the clock.
fn steady(line: &str) -> &str {
    let varies = ["date: ", "x-ratelimit-reset: "].into_iter().find(|name| line.starts_with(name));
    varies.unwrap_or(line).trim_end()
}
