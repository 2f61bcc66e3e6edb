//! The example `playground`, without its page, which `scripts/slow playground` drives in a browser.

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Response};
use serde_json::{Value, json};
use tollgate_config::Config;

use super::harness::{Server, command_of};
use crate::support::server::RedisServer;

const ALGORITHMS: [&str; 8] = [
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "token_bucket",
    "gcra",
    "leaky_bucket",
    "leaky_queue",
    "concurrency",
];

/// What the page sends, with some of it replaced.
fn setup(replaced: &Value) -> String {
    let mut setup = json!({
        "lanes": ALGORITHMS, "limit": 5, "window": 300, "burst": 3, "queue": 3, "cost": 1,
        "pattern": "steady", "rate": 30, "seconds": 1, "clients": 6, "obeying": 3, "work": 5,
    });
    for (name, value) in replaced.as_object().expect("an object") {
        setup[name] = value.clone();
    }
    setup.to_string()
}

async fn post(server: &Server, path: &str, body: String) -> Response<Bytes> {
    server.ask(Method::POST, path, &[("content-type", "application/json")], body).await
}

fn lines(response: &Response<Bytes>) -> Vec<Value> {
    let text = str::from_utf8(response.body()).expect("a text");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Has a pattern sent, and compares what its clients saw with what the layers counted.
async fn counts_agree(server: &Server, pattern: &str) {
    let events = lines(&post(server, "/runs", setup(&json!({ "pattern": pattern }))).await);
    assert_eq!((&events[0]["is"], &events[events.len() - 1]["is"]), (&json!("start"), &json!("end")));
    let run = events[0]["run"].as_str().expect("its name");
    let (_, counts) = server.get(&format!("/runs/{run}")).await;
    let counts: Vec<[u64; 3]> = serde_json::from_str(&counts).expect("three counts for each algorithm");
    for (lane, [allowed, denied, _]) in counts.into_iter().enumerate() {
        let seen = |status| {
            let of_lane = |event: &&Value| event["lane"] == lane && event["status"] == status;
            events.iter().filter(of_lane).count() as u64
        };
        assert_eq!((seen(200), seen(429)), (allowed, denied), "{}: {pattern}", ALGORITHMS[lane]);
        assert!(allowed > 0, "{}: {pattern}", ALGORITHMS[lane]);
    }
}

#[tokio::test]
async fn clients_of_the_playground_see_what_its_layers_decide_in_memory_and_in_redis() {
    let redis = RedisServer::start();
    for arguments in [&[][..], &["--redis", &redis.url()]] {
        let server = Server::run(&mut command_of("playground", arguments));
        // As many runs at once as there may be.
        join_all(["steady", "bursts", "ramp", "edge"].map(|pattern| counts_agree(&server, pattern))).await;
    }
}

#[tokio::test]
async fn the_toml_of_the_playground_is_a_policy_and_what_is_none_is_told() {
    let server = Server::run(&mut command_of("playground", &[]));
    let texts = post(&server, "/texts", setup(&json!({}))).await;
    let texts: Vec<Value> = serde_json::from_slice(texts.body()).expect("JSON");
    assert_eq!(texts.len(), ALGORITHMS.len());
    for text in texts {
        let config = Config::from_toml(text["toml"].as_str().expect("a text")).expect("a valid file");
        assert_eq!(config.policies()[0].quota().capacity(), text["capacity"], "{text}");
    }
    for (replaced, says) in [
        (json!({ "limit": 0 }), "line 5: limit 0 admits nothing"),
        (json!({ "limit": -1.5 }), "limit"),
        (json!({ "limit": 1e300 }), "limit"),
        (json!({ "window": 0 }), "window"),
        (json!({ "queue": 1e6 }), "at most 10"),
        (json!({ "rate": 201 }), "rate 201"),
        (json!({ "clients": 1e12 }), "clients"),
        (json!({ "obeying": 7 }), "from 0 to 6"),
        (json!({ "lanes": [] }), "1 to 8 algorithms"),
        (json!({ "lanes": vec!["gcra"; 9] }), "1 to 8 algorithms"),
        (json!({ "rate": 200, "seconds": 60 }), "at most 2000"),
        (json!({ "pattern": "edge", "window": 86_400_000, "lanes": ["gcra"] }), "no edge"),
        (json!({ "pattern": "edge", "limit": 10_000, "lanes": ["gcra"] }), "at most 2000"),
        (json!({ "unknown": 1 }), "unknown field"),
    ] {
        let refused = post(&server, "/runs", setup(&replaced)).await;
        assert_eq!(refused.status(), 422, "{replaced}");
        let told: Value = serde_json::from_slice(refused.body()).expect("JSON");
        assert!(told["error"].as_str().is_some_and(|error| error.contains(says)), "{replaced}: {told}");
    }
    let large = post(&server, "/runs", " ".repeat(1 << 20)).await;
    assert!(large.status().is_client_error(), "{large:?}");
}
