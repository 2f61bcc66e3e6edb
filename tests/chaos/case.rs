//! What happens to Redis.

use std::thread;
use std::time::{Duration, Instant};

use tollgate::deadpool_redis::redis::{Client, Connection, cmd};

use crate::proxy::Mode;
use crate::rig::Rig;

/// How long each lasts.
const HOLD: Duration = Duration::from_millis(2_500);
const FLUSHES: u32 = 5;

/// One thing that happens, and what must come of it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Begins it, lets it last, and ends it: Redis works again when this returns.
    pub(crate) happen: fn(&mut Rig),
    /// Whether it keeps Redis from deciding; else next to nothing may be left to the fallback.
    pub(crate) is_outage: bool,
    /// Whether it happens on the way to Redis.
    pub(crate) is_on_the_way: bool,
    /// How often Redis forgets all it knew.
    pub(crate) losses: u32,
}

impl Case {
    fn outage(name: &'static str, happen: fn(&mut Rig)) -> Self {
        Self { name, happen, is_outage: true, is_on_the_way: false, losses: 0 }
    }

    fn on_the_way(name: &'static str, happen: fn(&mut Rig)) -> Self {
        Self { is_on_the_way: true, ..Self::outage(name, happen) }
    }

    fn harmless(name: &'static str, happen: fn(&mut Rig)) -> Self {
        Self { is_outage: false, ..Self::outage(name, happen) }
    }

    fn forgetting(self, times: u32) -> Self {
        Self { losses: times, ..self }
    }

    pub(crate) fn all() -> [Self; 13] {
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
            Self::on_the_way("answers 300 ms late", |rig| spoil(rig, Mode::Delay(Duration::from_millis(300)))),
            Self::on_the_way("is not reached: bytes are lost", |rig| spoil(rig, Mode::Mute)),
            Self::on_the_way("is cut off within replies", |rig| spoil(rig, Mode::Cut)),
            Self::on_the_way("answers garbage", |rig| spoil(rig, Mode::Garbage)),
            Self::on_the_way("answers what was not asked", |rig| spoil(rig, Mode::Others)),
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
            Self::outage("has no memory left (maxmemory)", |rig| {
                let () = rig.redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
                thread::sleep(HOLD);
                let () = rig.redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
            }),
            Self::outage("becomes a replica (REPLICAOF)", |rig| {
                let () = rig.redis.ask(&["REPLICAOF", "127.0.0.1", "1"]);
                thread::sleep(HOLD);
                let () = rig.redis.ask(&["REPLICAOF", "NO", "ONE"]);
            }),
            Self::outage("takes no more clients (maxclients)", |rig| {
                let mut only = Client::open(rig.redis.url()).and_then(|client| client.get_connection()).expect("one");
                set_clients(&mut only, 1);
                let _: i64 =
                    cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).query(&mut only).expect("killed");
                thread::sleep(HOLD);
                set_clients(&mut only, 1_000);
            }),
        ]
    }
}

fn spoil(rig: &Rig, mode: Mode) {
    rig.proxy.set(mode);
    thread::sleep(HOLD);
    rig.proxy.set(Mode::Pass);
}

fn set_clients(connection: &mut Connection, most: u32) {
    let () = cmd("CONFIG").arg(&["SET", "maxclients"]).arg(most).query(connection).expect("it is set");
}
