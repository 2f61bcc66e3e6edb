//! A script and the same without the code for what is usual, on one server, at times that a test sets.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use futures::future::join_all;
use tollgate::deadpool_redis::redis::{Client, Connection, cmd};
use tollgate::store::{Ask, Check, Store};
use tollgate::{Quota, RedisStore};

use super::call::Call;
use crate::stores::PATIENCE;
use crate::support::checks::check;
use crate::support::server::RedisServer;

/// Before a script: the time is that of its last two arguments.
const CLOCK: &str = "
local real, time = redis, { ARGV[3], ARGV[4] }
local redis = { call = function(name, ...) return name == 'TIME' and time or real.call(name, ...) end }
";

/// Other than the life of any state that scripts write.
const LIFE_MS: u64 = 5_000_000;

/// What the two sides of a key may differ by, as one is asked after the other.
const LATER_MS: i64 = 2_000;

pub(super) struct Rig {
    _server: RedisServer,
    connection: Connection,
    /// The script with and without the code.
    sources: [String; 2],
}

impl Rig {
    /// Takes the last script that calls this entry and has some part, and replaces a text in it for the side
    /// without the code.
    pub(super) async fn start(entry: &str, part: &str, [text, by]: [&str; 2]) -> Self {
        let server = RedisServer::start();
        let address = server.url().trim_start_matches("redis://").to_owned();
        let mut monitor = BufReader::new(TcpStream::connect(address).expect("the server was started"));
        monitor.get_mut().write_all(b"MONITOR\r\n").expect("it is sent");
        let settings = RedisStore::builder().timeout(PATIENCE);
        let store = settings.connect(&server.url()).await.expect("the server was started");
        let quotas = [Quota::token_bucket, Quota::leaky_bucket, Quota::fixed_window];
        let checks: Vec<Check> = quotas.map(|quota| check("a", quota(9, Duration::from_secs(60)), 1)).into();
        let decide = |checks: &[Check]| store.decide(checks, Ask::default()).wait();
        drop(decide(&checks).await.expect("the server is up"));
        for one in &checks {
            drop(decide(std::slice::from_ref(one)).await.expect("the server is up"));
            // Two calls are in flight, and the others share one.
            let several: Vec<Check> = (0..8).map(|key| check(&format!("b{key}"), *one.counter.quota(), 1)).collect();
            let all = join_all(several.iter().map(|check| decide(std::slice::from_ref(check)))).await;
            assert!(all.iter().all(Result::is_ok));
        }
        let _: String = server.ask(&["ECHO", "the end"]);
        let source = loaded(monitor, part, &format!("return {entry}(KEYS, ARGV)\n"));
        assert_eq!(source.matches(text).count(), 1, "{source}");
        let sources = [format!("{CLOCK}{source}"), format!("{CLOCK}{}", source.replace(text, by))];
        let connection = Client::open(server.url()).and_then(|client| client.get_connection());
        Self { _server: server, connection: connection.expect("the server is up"), sources }
    }

    pub(super) fn clear(&mut self) {
        let () = cmd("FLUSHALL").query(&mut self.connection).expect("the server is up");
    }

    /// Puts a value under a key of both sides; without one the key is of another type.
    pub(super) fn put(&mut self, key: usize, value: Option<&[u8]>) {
        for side in 0..2 {
            let name = name(side, key);
            let () = cmd("DEL").arg(&name).query(&mut self.connection).expect("the server is up");
            let put = match value {
                Some(value) => cmd("SET").arg(&name).arg(value).arg("PX").arg(LIFE_MS).take(),
                None => cmd("SADD").arg(&name).arg("a").take(),
            };
            put.exec(&mut self.connection).expect("the server is up");
        }
    }

    /// Makes a call on both sides, whose replies and keys must be the same after it; returns the reply.
    pub(super) fn compare(&mut self, call: &Call, now_us: u64) -> Vec<u8> {
        let [reply, other] = [0, 1].map(|side| {
            let mut eval = cmd("EVAL");
            eval.arg(&self.sources[side]).arg(call.keys.len());
            eval.arg(call.keys.iter().map(|key| name(side, *key)).collect::<Vec<_>>());
            eval.arg("").arg(&call.packed).arg(now_us / 1_000_000).arg(now_us % 1_000_000);
            eval.query::<Vec<u8>>(&mut self.connection).unwrap_or_else(|error| panic!("{error}: {call:?} at {now_us}"))
        });
        assert_eq!(reply, other, "{call:?} at {now_us}");
        for key in &call.keys {
            let [(value, life), (other, other_life)] = [0, 1].map(|side| self.look(&name(side, *key)));
            assert_eq!(value, other, "key {key}: {call:?} at {now_us}");
            assert!((life - other_life).abs() < LATER_MS, "key {key}, {life}, {other_life} ms: {call:?} at {now_us}");
        }
        reply
    }

    fn look(&mut self, name: &str) -> (Option<Vec<u8>>, i64) {
        let value = cmd("MGET").arg(name).query::<(Option<Vec<u8>>,)>(&mut self.connection);
        let life = cmd("PTTL").arg(name).query(&mut self.connection);
        (value.expect("the server is up").0, life.expect("the server is up"))
    }
}

fn name(side: usize, key: usize) -> String {
    format!("{side}:{key}")
}

/// The last script with this part and this end that was loaded before the line that has `the end`.
fn loaded(monitor: impl BufRead, part: &str, end: &str) -> String {
    let lines =
        monitor.lines().map(|line| line.expect("the server is up")).take_while(|line| !line.contains("the end"));
    let sources = lines.filter_map(|line| {
        let (_, source) = line.split_once("\"EVAL\" \"")?;
        let (source, _) = source.split_once("\" \"")?;
        Some(source.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\"))
    });
    sources.filter(|source| source.contains(part) && source.ends_with(end)).last().expect("it was loaded")
}
