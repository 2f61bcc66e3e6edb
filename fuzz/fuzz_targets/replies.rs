//! A server that replies with made-up bytes: each caller gets a decision or an error in time, no decision leaves more
//! than the limit, and as soon as the server is a Redis again, it decides.
#![no_main]

use std::collections::VecDeque;
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tollgate::deadpool_redis::redis::cmd;
use tollgate::policy::Calendar;
use tollgate::store::{Ask, BanCheck, Change, Check, Settlement, Store};
use tollgate::{Ban, Quota, RedisStore};

#[path = "../../tests/support/checks.rs"]
mod checks;
#[path = "../../tests/keys/one_client/check/choices.rs"]
#[allow(dead_code, reason = "keys are made of more of it")]
mod choices;

use checks::check;
use choices::Choices;

const TIMEOUT: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);

/// A time of decisions, in microseconds.
const TIME: [u8; 7] = [0x06, 0x65, 0x12, 0xd4, 0x5c, 0x40, 0x00];

/// Values, and parts of some: without the end of the line, separated by spaces; a slash is a space.
const PIECES: &str = "$-1 $0 $1 $8 $67108864 $9223372036854775807 *9223372036854775807 %4611686018427387903 |9223372036854775807 \
                      *0 *-1 *1 *2 *67108864 %1 ~1 >1 >2 =5 !1 |1 (1 +OK :1 :16383 _ #t ,inf a txt:a -ERR \
                      -NOSCRIPT -READONLY -MOVED/1/b:2 -ASK/1/b:2 -LOADING -TRYAGAIN -CLUSTERDOWN -BUSY -NOAUTH";

#[derive(Default)]
struct Server {
    replies: VecDeque<Vec<u8>>,
    /// Whether those are the replies to what a new connection asks, too.
    is_mad: bool,
    /// Whether it is a Redis again.
    is_good: bool,
}

impl Server {
    /// `None` is the end of a connection.
    fn reply(&mut self, words: &[Vec<u8>]) -> Option<Vec<u8>> {
        let is_call = words[0].starts_with(b"EVAL") || words[0] == b"FCALL";
        let is_check = is_call && (words[1].ends_with(b"check()\n") || words[1].ends_with(b"_check"));
        if !self.is_good && (self.is_mad || is_call && !is_check) {
            return self.replies.pop_front();
        }
        Some(match &words[0][..] {
            _ if is_check => bulk(&checked()),
            _ if is_call => bulk(&[&TIME[..], &[3]].concat()),
            b"CLUSTER" => b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:1\r\n".into(),
            _ => b"+OK\r\n".into(),
        })
    }
}

/// Serves a connection, and sends so many bytes at once.
async fn serve(stream: DuplexStream, server: Arc<Mutex<Server>>, piece: usize) {
    let lock = || server.lock().expect("no panic");
    let (mut stream, began_good) = (BufReader::new(stream), lock().is_good);
    while let Ok(words) = command(&mut stream).await {
        // What connected to the server before is lost.
        let is_lost = lock().is_good && !began_good;
        let Some(reply) = (!is_lost).then(|| lock().reply(&words)).flatten() else { return };
        for piece in reply.chunks(piece) {
            if stream.write_all(piece).await.is_err() {
                return;
            }
            yield_now().await;
        }
    }
}

async fn command(stream: &mut BufReader<DuplexStream>) -> io::Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut word).await?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Ok(words)
}

/// The number of a line such as `*3` or `$8`.
async fn number(stream: &mut BufReader<DuplexStream>) -> io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    line.get(1..).and_then(|number| number.trim_end().parse().ok()).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// What `lua/check.lua` returns on a Redis.
fn checked() -> Vec<u8> {
    let (most, time, low) = ((1_u64 << 52) - 1, (1_u64 << 44) - 1, (1_u64 << 32) - 1);
    let numbers = [(3, 1), (255, 1), (most, 7), (time, 6), (low, 4), (most - most % 1_000_003, 7), (time / 7, 6)];
    let numbers = numbers.into_iter().chain([(12_000_000 + low, 7), (20, 1)]);
    numbers.flat_map(|(number, width): (u64, usize)| number.to_be_bytes().into_iter().skip(8 - width)).collect()
}

fn piece(choices: &mut Choices<'_>) -> Vec<u8> {
    let piece = choices.pick(&PIECES.split(' ').collect::<Vec<_>>());
    format!("{}\r\n", piece.replace('/', " ")).into()
}

fn raw(choices: &mut Choices<'_>, most: usize) -> Vec<u8> {
    (0..choices.below(most + 1)).map(|_| u8::try_from(choices.below(256)).expect("a byte")).collect()
}

fn reply(choices: &mut Choices<'_>) -> Vec<u8> {
    match choices.below(6) {
        0 => raw(choices, 40),
        1 => (0..choices.below(10)).flat_map(|_| piece(choices)).collect(),
        2 => piece(choices).repeat(1 << choices.below(12)),
        3 => bulk(&raw(choices, 120)),
        4 => [piece(choices), bulk(&[&TIME[..], &raw(choices, 80)].concat())].concat(),
        _ => bulk(&[&TIME[..], &raw(choices, 120)].concat()),
    }
}

fn quota(choices: &mut Choices<'_>) -> Quota {
    choices.pick(&[
        Quota::token_bucket(5, HOUR),
        Quota::token_bucket(1_000_000_000_000, HOUR * 24 * 30),
        Quota::fixed_window(5, HOUR),
        Quota::sliding_window(5, HOUR),
        Quota::sliding_log(5, HOUR),
        Quota::leaky_bucket(5, HOUR).queue(3),
        Quota::concurrency(5),
        Quota::calendar_window(5, Calendar::daily("UTC").expect("a zone")),
    ])
}

fn some_check(choices: &mut Choices<'_>) -> Check {
    let check = check(choices.pick(&["ada", "bob"]), quota(choices), choices.pick(&[1, 0, 2, 5, 9, u64::MAX]));
    let check = check.floor(choices.pick(&[0, 0, 1, u64::MAX]));
    if choices.one_in(4) { check.ban(BanCheck::new(Ban::new(2, HOUR, HOUR))) } else { check }
}

fn change(choices: &mut Choices<'_>) -> Change {
    let units = choices.pick(&[1, 0, 5, u64::MAX]);
    match choices.below(6) {
        0 => Change::Refund(units),
        1 => Change::Charge(units),
        2 => Change::Renew(units),
        3 => Change::Strike(Ban::new(2, HOUR, HOUR)),
        4 => Change::Lift,
        _ => Change::Reset,
    }
}

/// What one caller asks, and what it does with what was taken.
async fn ask(store: &RedisStore, mut choices: Choices<'_>) {
    let start = Instant::now();
    match choices.below(8) {
        0 => drop(store.command(cmd("GET").arg("a")).await),
        1 => drop(store.adjust(&some_check(&mut choices).counter, change(&mut choices)).wait().await),
        _ => {
            let checks: Vec<Check> = (0..choices.pick(&[1, 1, 2, 3])).map(|_| some_check(&mut choices)).collect();
            if let Ok(made) = store.decide(&checks, Ask::default()).wait().await {
                for (check, outcome) in checks.iter().zip(made.decision.outcomes()) {
                    let taken = if made.decision.is_allowed() { check.cost } else { 0 };
                    let most = outcome.quota().capacity();
                    assert!(outcome.remaining().saturating_add(taken) <= most, "{check:?}: {:?}", made.decision);
                }
                let _ = store.settle(made.receipt, &[Settlement::new(0, change(&mut choices))]);
            }
        }
    }
    assert!(start.elapsed() <= TIMEOUT + Duration::from_millis(2), "after {:?}", start.elapsed());
}

async fn run(mut choices: Choices<'_>) {
    let server = Arc::new(Mutex::new(Server { is_mad: choices.one_in(4), ..Server::default() }));
    let (one, piece) = (Arc::clone(&server), choices.pick(&[usize::MAX, 1, 7, 64]));
    let settings = RedisStore::builder().timeout(TIMEOUT).connect_timeout(TIMEOUT).lazy().dial(move |_, _| {
        let (here, there) = duplex(64 << 10);
        tokio::spawn(serve(there, Arc::clone(&one), piece));
        ready(Ok(here))
    });
    let settings = if choices.one_in(3) { settings.functions() } else { settings };
    let store = match choices.below(4) {
        0 => settings.connect_cluster(["redis://a:1"]).await,
        _ => settings.connect("redis://a:1").await,
    };
    let store = store.expect("it is lazy");
    for _ in 0..1 + choices.below(3) {
        let replies = (0..choices.below(6)).map(|_| reply(&mut choices)).collect();
        server.lock().expect("no panic").replies = replies;
        let callers: Vec<Vec<u8>> = (0..1 + choices.below(4)).map(|_| raw(&mut choices, 24)).collect();
        join_all(callers.iter().map(|bytes| ask(&store, Choices::new(bytes)))).await;
        sleep(choices.pick(&[0, 1, 200, 20_000].map(Duration::from_millis))).await;
    }
    server.lock().expect("no panic").is_good = true;
    let good = check("good", Quota::fixed_window(5, HOUR), 1);
    for wait in 0.. {
        match store.decide(std::slice::from_ref(&good), Ask::default()).wait().await {
            Ok(made) if made.decision.outcomes()[0].remaining() == 4 => break,
            other => assert!(wait < 10, "{other:?}"),
        }
        sleep(Duration::from_secs(wait)).await;
    }
}

fuzz_target!(|bytes: &[u8]| {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(run(Choices::new(bytes)));
});
