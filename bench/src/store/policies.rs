//! Three policies in one decision.

use std::sync::Arc;

use super::sides::{AtOnce, InTurn, Multiplexed, Stored, StoredThrice};
use super::{DAY, LIMIT, QUOTA};
use crate::effort::Effort;
use crate::load::{Entrant, interleave, ratios, typical};
use crate::plain::{Plain, keys, texts};
use crate::server::Server;
use crate::stores::store;
use crate::table::{Figure, print, print_figures};

const IN_FLIGHT: usize = 64;
const KINDS: [&str; 3] = ["ip", "user", "route"];

pub(super) async fn run(effort: Effort, server: &Server) {
    let entrants = entrants(effort, server).await;
    for entrant in &entrants {
        entrant.warm(effort).await;
    }
    let samples = interleave(effort, IN_FLIGHT, &entrants).await;
    println!("Three policies (token buckets over ip, user and route), {IN_FLIGHT} in flight:\n");
    let row = |(entrant, samples): (&Entrant, &Vec<_>)| {
        let figures = [typical(samples, |sample| sample.per_second), typical(samples, |sample| sample.p50_us)];
        [vec![entrant.name.clone()], figures.map(|figure| format!("{figure:.0}")).to_vec()].concat()
    };
    let rows: Vec<_> = entrants.iter().zip(&samples).map(row).collect();
    print(&["side", "decisions/s", "p50 µs"], &rows);

    println!("The ratio that counts is that to calls in turn: who sends all at once also takes from the");
    println!("others when one refuses.\n");
    let over = |side: usize| ratios(&samples[0], &samples[side], |sample| sample.per_second);
    print_figures(&[
        Figure::new("one decision over three calls in turn", over(1), None),
        Figure::new("one decision over three calls at once", over(2), None),
    ]);
}

async fn entrants(effort: Effort, server: &Server) -> [Entrant; 3] {
    let (store, connection, plain) = (store(server).await, server.connection().await, Plain::new(LIMIT, DAY));
    let keys = KINDS.map(|kind| Arc::from(keys(kind, effort.keys)));
    let scripted = keys.clone().map(|keys| {
        let texts = texts("gcrakeys", &keys).into();
        Multiplexed { connection: connection.clone(), plain: plain.clone(), texts }
    });
    let stored = keys.map(|keys| Stored {
        store: store.clone(),
        keys,
        quota: QUOTA,
        policy: "bench".try_into().expect("a valid name"),
        allowed: true,
    });
    [
        Entrant::new("`RedisStore`, one decision", StoredThrice { each: stored }),
        Entrant::new("multiplexed `Script`, three calls in turn", InTurn { each: scripted.clone() }),
        Entrant::new("multiplexed `Script`, three calls at once", AtOnce { each: scripted }),
    ]
}
