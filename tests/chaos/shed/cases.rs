//! What happens to Redis, and what clients do.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::app::PRIORITY;
use crate::case::{Case, HOLD};
use crate::rig::Rig;

/// Requests a second: with their work, 42 in progress on average.
const RATE: u32 = 1_050;
const LONG: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(10);
/// Between clients that disconnect.
const APART: Duration = Duration::from_millis(4);

pub(super) fn all() -> Vec<Case> {
    let names = [
        "nothing",
        "is paused (SIGSTOP)",
        "is killed, and started again",
        "is unavailable when the server starts",
        "replies 300 ms late",
        "is not reached: bytes are lost",
        "replies with garbage",
        "replies to other calls",
        "forgets all (FLUSHALL, 5 times)",
        "works, and a handler blocks 150 ms, again and again",
    ];
    let mut cases = Case::named(names);
    cases.insert(
        2,
        Case::outage("is paused for 10 s", |rig| {
            rig.redis.pause();
            thread::sleep(LONG);
            rig.redis.resume();
        }),
    );
    cases.push(Case::harmless("works, and clients disconnect before and within a response", disconnect));
    cases.into_iter().map(|case| Case { rate: RATE, ..case }).collect()
}

/// Sends requests of which the client reads nothing, the head, or the first part of the body.
fn disconnect(rig: &mut Rig) {
    let end = Instant::now() + HOLD;
    for number in 0_u32.. {
        if Instant::now() > end {
            break;
        }
        let address = rig.address;
        let client = thread::spawn(move || vanish(TcpStream::connect(address).expect("the server listens"), number));
        thread::sleep(APART);
        drop(client);
    }
}

fn vanish(mut stream: TcpStream, number: u32) {
    let priority = if number.is_multiple_of(2) { "high" } else { "low" };
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has this option");
    let request = format!("GET / HTTP/1.1\r\nhost: test\r\n{PRIORITY}: {priority}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    if number.is_multiple_of(4) {
        // At any moment of the decision and of the handler.
        return thread::sleep(Duration::from_millis((number / 4 % 24).into()));
    }
    match stream.read(&mut [0; 64]) {
        Ok(read) => assert_ne!(read, 0, "the server closed the connection"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
    }
}
