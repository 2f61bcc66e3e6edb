//! Whether a side does the work that it is measured for: the status and the headers of its responses, a counter for each
//! client, and a call for each request.

use std::io;
use std::net::SocketAddr;

use super::app::FEW_UNITS;
use super::process::Process;
use super::redis::Redis;
use super::requests::{Answer, Client};
use super::sides::{BURST, Counters, Side};

/// Clients that send requests, by numbers that no load has.
const CLIENTS: u32 = 8;
const FIRST: u32 = 900_000;

/// Enough that a key is hot, and its lease there.
const UNTIL_LEASED: u32 = 30;

const REMAINING: &str = "x-ratelimit-remaining";

/// Starts a side, and sends it some requests.
///
/// # Errors
///
/// If it does not start, or does not do its work.
pub(super) async fn started(side: &Side) -> Result<(Process, SocketAddr, Redis), String> {
    let redis = Redis::start(side.counters).await?;
    let (process, address) = Process::serve(side, &redis.urls(), BURST)?;
    work(side, address, &redis).await.map_err(|fault| format!("{} does not do its work: {fault}", side.name))?;
    Ok((process, address, redis))
}

async fn work(side: &Side, address: SocketAddr, redis: &Redis) -> Result<(), String> {
    // What only the first request does: it may load a script.
    clients(side, address, FIRST..=FIRST).map_err(|fault| fault.to_string())?;
    let held = redis.size().await;
    redis.take_calls().await;
    let sent = clients(side, address, FIRST + 1..=FIRST + CLIENTS).map_err(|fault| fault.to_string())?;
    let (keys, calls) = (redis.size().await - held, redis.take_calls().await);
    let is_shared = !matches!(redis, Redis::None);
    if is_shared && keys != CLIENTS as usize {
        return Err(format!("{CLIENTS} clients have {keys} keys in Redis"));
    }
    let expected = if is_shared { f64::from(sent) } else { 0.0 };
    let is_right = if side.saves_calls { calls < expected } else { calls.total_cmp(&expected).is_eq() };
    if !is_right {
        return Err(format!("{sent} requests one after the other were {calls} calls to Redis"));
    }
    if matches!(side.counters, Counters::Memory) && !side.answers.headers.contains(&REMAINING) {
        twin(side).map_err(|fault| fault.to_string())?;
    }
    Ok(())
}

/// Sends requests of each client, and returns how many.
fn clients(side: &Side, address: SocketAddr, clients: impl Iterator<Item = u32>) -> io::Result<u32> {
    let (mut connection, mut sent, mut seen) = (Client::connect(address)?, 0, None);
    for client in clients {
        for _ in 0..before(side) {
            let Answer { status, .. } = connection.ask(client)?;
            if status != 200 {
                return Err(io::Error::other(format!("a client with units left was answered {status}")));
            }
            sent += 1;
        }
        let answers = [connection.ask(client)?, connection.ask(client)?];
        sent += 2;
        for answer in &answers {
            answer.test(side)?;
        }
        let remaining = answers.map(|answer| remaining(&answer));
        if matches!(side.counters, Counters::Nowhere) || side.saves_calls {
            continue;
        }
        let counts_down = matches!(remaining, [Some(first), Some(second)] if first == second + 1);
        if (remaining != [None; 2] && !counts_down) || *seen.get_or_insert(remaining) != remaining {
            return Err(io::Error::other(format!("of one client remained {remaining:?}, of another {seen:?}")));
        }
    }
    Ok(sent)
}

/// Requests of a client that are admitted before what the side is measured for begins.
fn before(side: &Side) -> u32 {
    match side.saves_calls {
        true if side.is_refused() => FEW_UNITS,
        true => UNTIL_LEASED,
        false => 0,
    }
}

fn remaining(answer: &Answer) -> Option<u64> {
    answer.header(REMAINING)?.parse().ok()
}

/// Where neither headers nor a store tell what is counted, the same side is served once more, with one unit for each client.
fn twin(side: &Side) -> io::Result<()> {
    let (_process, address) = Process::serve(side, "", 1).map_err(io::Error::other)?;
    let mut connection = Client::connect(address)?;
    for client in FIRST..FIRST + CLIENTS {
        let statuses = [connection.ask(client)?.status, connection.ask(client)?.status];
        if statuses != [200, 429] {
            return Err(io::Error::other(format!("with a limit of 1, a client's responses were {statuses:?}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::Router;
    use tollgate::{MemoryStore, RateLimitLayer};

    use super::{Redis, work};
    use crate::http::app::{limited, plain, roomy, with_headers};
    use crate::http::sides::{self, BURST, Side};

    fn side(name: &str) -> Side {
        sides::all().into_iter().find(|side| side.name == name).expect("a side of this name")
    }

    /// What is found if a side serves this.
    async fn found(side: &Side, router: Router) -> String {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let redis = Redis::start(side.counters).await.expect("it starts");
        let found = work(side, address, &redis).await;
        server.abort();
        found.err().unwrap_or_default()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_side_that_does_other_work_is_found() {
        let memory = || limited(MemoryStore::new(), roomy(BURST));
        let for_all = RateLimitLayer::composite(MemoryStore::new()).global(roomy(BURST));
        for (name, router, fault) in [
            ("none", plain(), ""),
            ("memory", memory(), ""),
            ("none", with_headers(), "expected Answers { status: 200, headers: [] }"),
            ("memory-legacy-no-handle", memory(), "expected Answers"),
            ("memory", plain(), "expected Answers"),
            ("memory", with_headers(), "of one client remained [Some(999999), Some(999999)]"),
            ("memory", plain().layer(for_all), "of another Some"),
            ("redis", memory(), "8 clients have 0 keys in Redis"),
            ("redis-bare-no-handle", plain(), "8 clients have 0 keys in Redis"),
            ("flood", memory(), "expected Answers { status: 429"),
        ] {
            let found = found(&side(name), router).await;
            assert!(found.contains(fault) && fault.is_empty() == found.is_empty(), "{name}: {found:?}, not {fault:?}");
        }
    }
}
