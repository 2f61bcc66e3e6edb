//! A real server and a simulated one, which are asked the same.

use std::panic::Location;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_simulation::server::{Node, Session, Vm};

use super::real::{Connection, RealServer};

/// A connection to a real server and one to a simulated one.
pub(crate) struct Pair {
    pub(crate) server: RealServer,
    pub(crate) real: Connection,
    pub(crate) node: Node,
    pub(crate) session: Session,
    asked: usize,
    differ: Vec<String>,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let (differ, asked) = (&self.differ, self.asked);
        assert!(
            differ.is_empty() || thread::panicking(),
            "{} of {asked} answers differ:\n{}",
            differ.len(),
            differ.join("\n")
        );
    }
}

impl Pair {
    pub(crate) fn start(settings: &[&str]) -> Self {
        Self::of(RealServer::start(settings), Node::new(Vm::new()))
    }

    pub(crate) fn of(server: RealServer, node: Node) -> Self {
        let (real, session) = (server.connect(), Session::new(&node));
        Self { server, real, node, session, asked: 0, differ: Vec::new() }
    }

    /// Asks both; they must answer with the same bytes, else the test fails at its end. Returns those of the
    /// real one.
    #[track_caller]
    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: impl IntoIterator<Item = W>) -> Vec<u8> {
        let words: Vec<Vec<u8>> = words.into_iter().map(|word| word.as_ref().to_vec()).collect();
        let (real, simulated) = self.answers(&words);
        if real != simulated {
            let shown: Vec<_> = words.iter().map(|word| head(word)).collect();
            let (at, answers) = (Location::caller(), [head(&real), head(&simulated)].join("\n   "));
            self.differ.push(format!("{at}: {}\n   {answers}", shown.join(" ")));
        }
        real
    }

    /// As [`ask`](Self::ask), of words in a line.
    #[track_caller]
    pub(crate) fn line(&mut self, line: &str) -> Vec<u8> {
        self.ask(line.split(' '))
    }

    /// What both answer.
    pub(crate) fn answers(&mut self, words: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
        self.asked += 1;
        (self.real.ask(words), self.simulated(words))
    }

    fn simulated(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        self.node.execute(&mut self.session, words, now_us()).write(&mut out);
        out
    }

    /// Tells only the real server something, which says `OK`.
    #[track_caller]
    pub(crate) fn tell_real(&mut self, line: &str) {
        let words: Vec<Vec<u8>> = line.split(' ').map(Into::into).collect();
        let answer = self.real.ask(&words);
        assert_eq!(String::from_utf8_lossy(&answer), "+OK\r\n", "{line}");
    }

    /// What only the real server answers.
    pub(crate) fn text(&mut self, line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split(' ').map(Into::into).collect();
        String::from_utf8(self.real.ask(&words)).unwrap()
    }

    /// Opens both connections anew.
    pub(crate) fn reconnect(&mut self) {
        self.real = self.server.connect();
        self.session = Session::new(&self.node);
    }
}

/// The time of both servers, in µs since the epoch.
pub(crate) fn now_us() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(time.as_micros()).unwrap()
}

fn head(bytes: &[u8]) -> String {
    let shown = bytes.escape_ascii().to_string();
    if shown.len() > 700 { format!("{}…", &shown[..700]) } else { shown }
}
