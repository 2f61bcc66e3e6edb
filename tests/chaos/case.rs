//! What happens to Redis.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::app::{BLOCKS, LEAVES};
use crate::load::{QUIET_RATE, RATE};
use crate::rig::Rig;
use crate::support::proxy::Mode;

/// How long each lasts.
pub(crate) const HOLD: Duration = Duration::from_millis(2_500);
const FLUSHES: u32 = 5;
const CUTS: u32 = 3;
/// At the full rate more than 64 requests come to wait for a reply in this time.
const FILLING: Duration = Duration::from_millis(40);
/// Out of step with the requests of the quiet rate, so that kills do not coincide with all of them or none.
const BETWEEN_KILLS: Duration = Duration::from_millis(130);
/// No answer of the server takes longer than what keeps its thread.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thing that happens, and what must come of it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Begins it, lets it last, and ends it: Redis works again when this returns.
    pub(crate) happen: fn(&mut Rig),
    /// Whether it keeps Redis from deciding; else next to nothing may be left to the fallback.
    pub(crate) is_outage: bool,
    pub(crate) setup: Setup,
    /// How often Redis forgets all it knew.
    pub(crate) losses: u32,
    /// Requests a second.
    pub(crate) rate: u32,
}

/// What is between the server and its Redis when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    Nothing,
    /// A proxy, as what happens does so on the way.
    Proxy,
    /// There is no Redis yet.
    Outage,
    /// A password, which a closure returns.
    Password,
}

impl Case {
    pub(crate) fn outage(name: &'static str, happen: fn(&mut Rig)) -> Self {
        Self { name, happen, is_outage: true, setup: Setup::Nothing, losses: 0, rate: RATE }
    }

    fn on_the_way(name: &'static str, happen: fn(&mut Rig)) -> Self {
        Self { setup: Setup::Proxy, ..Self::outage(name, happen) }
    }

    pub(crate) fn harmless(name: &'static str, happen: fn(&mut Rig)) -> Self {
        Self { is_outage: false, ..Self::outage(name, happen) }
    }

    fn forgetting(self, times: u32) -> Self {
        Self { losses: times, ..self }
    }

    /// With so few requests that connections are idle most of the time.
    fn in_quiet(self) -> Self {
        Self { rate: QUIET_RATE, ..self }
    }

    pub(crate) fn all() -> Vec<Self> {
        Self::of_redis().into_iter().chain(Self::of_connections()).chain(Self::of_neighbours()).collect()
    }

    /// Those of these names, in their order.
    pub(crate) fn named<const N: usize>(names: [&str; N]) -> Vec<Self> {
        let mut all = Self::all();
        let mut named = |name| all.iter().position(|case| case.name == name).map(|place| all.swap_remove(place));
        names.map(|name| named(name).unwrap_or_else(|| panic!("no case is named {name:?}"))).into()
    }

    fn of_redis() -> [Self; 14] {
        [
            Self::harmless("nothing", |_| thread::sleep(HOLD)),
            Self::outage("is paused (SIGSTOP)", |rig| {
                rig.redis.pause();
                thread::sleep(HOLD);
                rig.redis.resume();
            }),
            Self::outage("is killed, and started again", |rig| {
                rig.redis.kill();
                thread::sleep(HOLD);
                rig.redis.restart();
            })
            .forgetting(1),
            Self {
                setup: Setup::Outage,
                ..Self::outage("is unavailable when the server starts", |rig| {
                    thread::sleep(HOLD);
                    rig.redis.restart();
                })
            },
            Self::on_the_way("replies 300 ms late", |rig| spoil(rig, Mode::Delay(Duration::from_millis(300)))),
            Self::on_the_way("is not reached: bytes are lost", |rig| spoil(rig, Mode::Mute)),
            Self::on_the_way("is cut off within replies", |rig| spoil(rig, Mode::Cut)),
            Self::on_the_way("replies with garbage", |rig| spoil(rig, Mode::Garbage)),
            Self::on_the_way("replies to other calls", |rig| spoil(rig, Mode::Others)),
            Self::harmless("forgets all (FLUSHALL, 5 times)", |rig| {
                for _ in 0..FLUSHES {
                    let () = rig.redis.ask(&["FLUSHALL"]);
                    thread::sleep(HOLD / FLUSHES);
                }
            })
            .forgetting(FLUSHES),
            Self::harmless("forgets its scripts, over and over (SCRIPT FLUSH)", |rig| {
                let end = Instant::now() + HOLD;
                while Instant::now() < end {
                    let () = rig.redis.ask(&["SCRIPT", "FLUSH"]);
                    thread::sleep(Duration::from_millis(5));
                }
            }),
            Self::outage("has no memory left (maxmemory)", |rig| set(rig, "maxmemory", ["1", "0"], false)),
            Self::outage("becomes a replica (REPLICAOF)", |rig| {
                let () = rig.redis.ask(&["REPLICAOF", "127.0.0.1", "1"]);
                thread::sleep(HOLD);
                let () = rig.redis.ask(&["REPLICAOF", "NO", "ONE"]);
            }),
            Self::outage("takes no more clients (maxclients)", |rig| set(rig, "maxclients", ["1", "1000"], true)),
        ]
    }

    fn of_connections() -> [Self; 4] {
        [
            Self { setup: Setup::Proxy, ..Self::harmless("is cut off while 64 wait (3 times)", cut) },
            Self::harmless("ends connections that are idle, again and again", |rig| {
                let end = Instant::now() + HOLD;
                while Instant::now() < end {
                    let _: i64 = rig.redis.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    thread::sleep(BETWEEN_KILLS);
                }
            })
            .in_quiet(),
            Self {
                setup: Setup::Password,
                ..Self::harmless("changes the password, and ends connections (3 times, a closure returns it)", |rig| {
                    for change in 0..CUTS {
                        rig.vault.change([&rig.redis], &format!("horse {change}"));
                        thread::sleep(HOLD / CUTS);
                    }
                })
            },
            Self::outage("has another password, and ends connections", |rig| {
                set(rig, "requirepass", ["another", ""], true);
            }),
        ]
    }

    fn of_neighbours() -> [Self; 2] {
        [
            Self::harmless("works, and a handler blocks 150 ms, again and again", |rig| ask(rig, BLOCKS)),
            Self::harmless("works, and two decisions are left unpolled for 600 ms", |rig| ask(rig, LEAVES)),
        ]
    }
}

/// Asks the server for what stalls, one request at a time.
fn ask(rig: &Rig, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    let end = Instant::now() + HOLD;
    while Instant::now() < end {
        let mut stream = TcpStream::connect(rig.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has this option");
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server answers");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
}

/// Ends every connection while replies are on their way to many.
fn cut(rig: &mut Rig) {
    for _ in 0..CUTS {
        rig.proxy.set(Mode::Delay(FILLING * 2));
        thread::sleep(FILLING);
        rig.proxy.cut();
        rig.proxy.set(Mode::Pass);
        thread::sleep((HOLD / CUTS).saturating_sub(FILLING));
    }
}

fn spoil(rig: &Rig, mode: Mode) {
    rig.proxy.set(mode);
    thread::sleep(HOLD);
    rig.proxy.set(Mode::Pass);
}

/// Has the server set otherwise for a while, and ends its connections but one if `kills`.
fn set(rig: &Rig, name: &str, [meanwhile, then]: [&str; 2], kills: bool) {
    let only = rig.redis.session();
    let () = only.ask(&["CONFIG", "SET", name, meanwhile]);
    if kills {
        let _: i64 = only.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    thread::sleep(HOLD);
    let () = only.ask(&["CONFIG", "SET", name, then]);
}
