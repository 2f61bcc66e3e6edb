//! A fixed number of requests, over connections that are kept alive.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use super::app::HEADER;
use super::sides::Side;

/// Few enough that all keys are in use before the requests that count.
const KEYS: u32 = 1_000;

/// What every side answers.
const BODY: &[u8] = b"hello";

/// Sends requests over so many connections at once, on each the next when the last is answered.
pub(super) fn send(side: &Side, address: SocketAddr, connections: u32, requests: u32) -> Result<(), String> {
    let one = |connection| one_after_another(side, address, (connection..requests).step_by(connections as usize));
    thread::scope(|scope| {
        let connections: Vec<_> = (0..connections).map(|number| scope.spawn(move || one(number))).collect();
        connections.into_iter().try_for_each(|connection| connection.join().expect("no connection panics"))
    })
    .map_err(|fault| format!("{}: {fault}", side.name))
}

fn one_after_another(side: &Side, address: SocketAddr, numbers: impl Iterator<Item = u32>) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut answer = Vec::new();
    for number in numbers {
        let key = 100_000 + number % KEYS;
        stream.write_all(format!("GET / HTTP/1.1\r\nHost: bench\r\n{HEADER}: key-{key}\r\n\r\n").as_bytes())?;
        answer.clear();
        while !answer.ends_with(BODY) {
            let mut buffer = [0; 1_024];
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => answer.extend_from_slice(&buffer[..read]),
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        let proved = side.proof.is_none_or(|header| answer.contains(&format!("\r\n{header}: ")));
        if !answer.starts_with("HTTP/1.1 200 ") || !proved {
            return Err(io::Error::other(format!("unequal work: {answer}")));
        }
    }
    Ok(())
}
