//! Requests over connections that are kept alive, each the next when the last is answered.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use super::app::HEADER;
use super::sides::Side;

/// Few enough that all keys are in use before the requests that count.
const KEYS: u32 = 1_000;

/// The headers that every server sends.
const OF_SERVERS: [&str; 3] = ["content-length", "content-type", "date"];

/// One connection.
pub(super) struct Client(BufReader<TcpStream>);

/// A response without its body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// By names in small letters.
    headers: Vec<(String, String)>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(super) fn ask(&mut self, key: u32) -> io::Result<Answer> {
        let request = format!("GET / HTTP/1.1\r\nHost: bench\r\n{HEADER}: key-{key}\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut answer = Answer { status: status.ok_or(io::ErrorKind::InvalidData)?, headers: Vec::new() };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            answer.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length: u64 = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        io::copy(&mut self.0.by_ref().take(length), &mut io::sink())?;
        Ok(answer)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }

    /// Whether it has the status and exactly the headers of a side.
    pub(super) fn test(&self, side: &Side) -> io::Result<()> {
        let mut names: Vec<_> = self.headers.iter().map(|(name, _)| &**name).collect();
        names.retain(|name| !OF_SERVERS.contains(name));
        names.sort_unstable();
        if self.status == side.answers.status && names == side.answers.headers {
            return Ok(());
        }
        let text = format!("expected {:?}, not {self:?}", side.answers);
        Err(io::Error::other(text))
    }
}

/// Sends so many requests over so many connections at once.
pub(super) fn send(side: &Side, address: SocketAddr, connections: u32, requests: u32) -> Result<(), String> {
    let one = |connection| one_after_another(side, address, (connection..requests).step_by(connections as usize));
    thread::scope(|scope| {
        let connections: Vec<_> = (0..connections).map(|number| scope.spawn(move || one(number))).collect();
        connections.into_iter().try_for_each(|connection| connection.join().expect("no connection panics"))
    })
    .map_err(|fault| format!("{}: {fault}", side.name))
}

fn one_after_another(side: &Side, address: SocketAddr, numbers: impl Iterator<Item = u32>) -> io::Result<()> {
    let mut client = Client::connect(address)?;
    for number in numbers {
        client.ask(100_000 + number % KEYS)?.test(side)?;
    }
    Ok(())
}
