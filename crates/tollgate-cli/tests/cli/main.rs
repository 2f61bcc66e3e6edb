//! The command against the Redis of a running process.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/server.rs"]
mod server;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use http::{Request, Response};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tollgate::{Ban, LiveLayer, Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_admin::{Admin, Top};
use tower::{Layer, ServiceExt, service_fn};

use self::server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);

/// A process of a fleet: users by plan, secret tokens, and addresses with a ban.
async fn process(server: &RedisServer) -> (LiveLayer, Admin) {
    let store = RedisStore::builder().without_deny_cache().connect(&server.url()).await.expect("it was started");
    let policies = [
        Policy::new("plan", Quota::fixed_window(2, HOUR)).key(key::header("x-user").plain()),
        Policy::new("token", Quota::token_bucket(1, HOUR).burst(1_000)).key(key::header("x-token")),
        Policy::new("ip", Quota::sliding_window(9_000, HOUR)).key(key::client_ip()).ban(Ban::new(1, HOUR, HOUR)),
    ];
    let top = Top::new();
    let live = RateLimitLayer::composite(store.clone()).policies(policies).on_decision(top.observer()).live();
    (live.clone(), Admin::redis(store).layer("api", live).top(top))
}

/// Waits for what a process publishes when it starts, and then every 10 s.
fn publish(admin: &Admin, server: &RedisServer) {
    admin.start();
    let start = Instant::now();
    while !run(server, "policies").0 {
        assert!(start.elapsed() < Duration::from_secs(5), "policies are published at the start");
    }
}

async fn send(live: &LiveLayer) -> u16 {
    send_as(live, "ada").await
}

async fn send_as(live: &LiveLayer, user: &str) -> u16 {
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
    let mut request = Request::new(String::new());
    request.headers_mut().insert("x-user", user.parse().expect("a value"));
    request.headers_mut().insert("x-token", "s3cret".parse().expect("a value"));
    let peer = SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 4711);
    request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
    live.layer(inner).oneshot(request).await.expect("it never fails").status().as_u16()
}

async fn becomes(live: &LiveLayer, status: u16) {
    let start = Instant::now();
    while send(live).await != status {
        assert!(start.elapsed() < Duration::from_millis(1_500), "no {status}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Runs the command: whether it succeeded, and what it printed.
fn run(server: &RedisServer, line: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.args(line.split_whitespace()).env("REDIS_URL", server.url()).output().expect("it can be run");
    let bytes = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(bytes).expect("text"))
}

#[track_caller]
fn done(server: &RedisServer, line: &str) -> String {
    let (is_done, text) = run(server, line);
    assert!(is_done, "{line}: {text}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_limited_is_shown_and_each_change_holds_and_is_undone() {
    let server = RedisServer::start();
    let (live, admin) = process(&server).await;
    for _ in 0..2 {
        assert_eq!(send(&live).await, 200);
    }
    assert_eq!(send(&live).await, 429);
    publish(&admin, &server);
    let start = Instant::now();
    while !run(&server, "top").1.contains("header x-user:ada") {
        assert!(start.elapsed() < Duration::from_secs(15), "it is published every 10 s");
        sleep(Duration::from_millis(200)).await;
    }
    let policies: Value = serde_json::from_str(&done(&server, "policies --json")).expect("JSON");
    let of = |name: &str, field: &str| {
        let policy = policies.as_array().expect("a list").iter().find(|policy| policy["policy"] == name);
        policy.expect("it is published")[field].clone()
    };
    assert_eq!((of("token", "key_kind"), of("token", "is_hashed")), ("header x-token".into(), true.into()));
    assert_eq!((of("ip", "key_kind"), of("plan", "processes")), ("ip".into(), 1.into()));

    // With the overrides in force, as the service decides.
    let shown = |line: &str| done(&server, &format!("show {line}"));
    for (set, line, shows) in [
        ("scale --factor 10 --for 1h --policy plan", "--policy plan --key ada", "18 of 20"),
        ("exempt --for 1h --policy plan --key ada", "--policy plan --key ada", "exempt or off"),
        ("deny --for 1h --policy plan --key ada", "--policy plan --key ada", "denied by an override"),
        ("off --policy plan", "--policy plan --key ada", "exempt or off"),
    ] {
        done(&server, set);
        assert!(shown(line).contains(shows), "{set}: {}", shown(line));
        let effect = set.split(' ').next().expect("a word");
        let key = if set.contains("--key") { " --key ada" } else { "" };
        assert_eq!(done(&server, &format!("undo {effect} --policy plan{key}")), "done\n");
    }
    assert!(shown("--policy plan --key ada").contains("0 of 2"));
    // By the value that the client sends, hashed or not.
    assert!(done(&server, "show --policy plan --key ada").contains("0 of 2"));
    let token: Value = serde_json::from_str(&done(&server, "show --policy token --key s3cret --json")).expect("JSON");
    assert_eq!(token["outcomes"][0]["remaining"], 998);
    assert!(done(&server, "show --policy ip --key 192.0.2.1").contains("8998 of 9000"));

    assert_eq!(done(&server, "reset --policy plan --key ada"), "done\n");
    assert_eq!([send(&live).await, send(&live).await, send(&live).await], [200, 200, 429]);
    assert_eq!(done(&server, "refund --policy plan --key ada --units 1"), "done\n");
    assert_eq!([send(&live).await, send(&live).await], [200, 429]);

    for (set, undo) in [
        ("exempt --for 1h --policy plan --key ada", "undo exempt --policy plan --key ada"),
        ("scale --factor 100 --for 1h --policy plan", "undo scale --policy plan"),
        ("off --policy plan", "undo off --policy plan"),
        ("shadow --policy plan --for 1h", "undo shadow --policy plan"),
        ("enforce --share 0 --policy plan", "undo enforce --policy plan"),
    ] {
        done(&server, set);
        becomes(&live, 200).await;
        let word = set.split(' ').next().expect("a word");
        assert!(done(&server, "overrides").contains(word), "{set}");
        assert_eq!(done(&server, undo), "done\n");
        assert_eq!(done(&server, undo), "nothing to change\n");
        // Units that were taken meanwhile are past the limit.
        becomes(&live, 429).await;
    }
    done(&server, "reset --policy plan --key ada");
    // The plan is out of the way.
    done(&server, "off --policy plan");
    becomes(&live, 200).await;
    done(&server, "deny --for 1m --policy token --key s3cret");
    becomes(&live, 429).await;
    done(&server, "undo deny --policy token --key s3cret");
    becomes(&live, 200).await;
    let limiter = live.limiter().only(["ip"]).expect("there is one");
    limiter
        .strike(&live.find_policy("ip").expect("there is one").key_of("192.0.2.1").expect("an address"))
        .await
        .expect("Redis works");
    assert_eq!(send(&live).await, 429);
    assert_eq!(done(&server, "lift-ban --policy ip --key 192.0.2.1"), "done\n");
    assert_eq!(send(&live).await, 200);
}

/// The lines without numbers and padding, because times and the widths of columns differ.
fn shape(text: &str) -> Vec<String> {
    let numbers = |char: char| if char.is_ascii_digit() { '0' } else { char };
    let line = |line: &str| {
        let mut line: String = line.chars().map(numbers).collect();
        while line.contains("00") {
            line = line.replace("00", "0");
        }
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        line.replace("0m 0s", "0s").replace("0m", "0s").replace("0h", "0s")
    };
    text.lines().map(line).collect()
}

/// `TOLLGATE_PRINT=1 cargo test -p tollgate-cli the_first_incident -- --nocapture` prints the blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_incident_is_as_the_page_shows_it() {
    let server = RedisServer::start();
    let plan = Policy::new("plan", Quota::per_minute(2)).key(key::header("x-user").plain());
    let (store, top) = (RedisStore::connect(&server.url()).await.expect("it was started"), Top::new());
    let live = RateLimitLayer::new(store.clone(), plan).on_decision(top.observer()).live();
    let admin = Admin::redis(store).layer("api", live.clone()).top(top);
    for user in ["ada"; 20].into_iter().chain(["bob"]) {
        send_as(&live, user).await;
    }
    admin.start();
    let start = Instant::now();
    while !run(&server, "top").1.contains("header x-user:bob") {
        assert!(start.elapsed() < Duration::from_secs(15), "it is published every 10 s");
        sleep(Duration::from_millis(200)).await;
    }
    let page = include_str!("../../../../docs/operating.md");
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().expect("a block"));
    let mut commands = 0;
    for block in blocks {
        let mut printed = String::new();
        for line in block.lines().filter_map(|line| line.strip_prefix("$ tollgate ")) {
            commands += 1;
            printed = format!("{printed}$ tollgate {line}\n{}", done(&server, line));
        }
        if std::env::var_os("TOLLGATE_PRINT").is_some() {
            println!("{printed}");
        } else {
            assert_eq!(shape(&printed), shape(block));
        }
    }
    assert!(commands >= 10, "{commands} commands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_are_errors_that_say_what_there_is() {
    let server = RedisServer::start();
    let (_live, admin) = process(&server).await;
    publish(&admin, &server);
    for (line, what) in [
        ("show --policy plans --key ada", "api/plan"),
        ("exempt --policy plan --key ada", "--for"),
        ("scale --factor 0 --for 1h --all", "factor 0"),
        ("enforce --share 2 --all", "share 2"),
        ("off", "--all"),
        ("exempt --for 0s --all", "at least 1 s"),
        ("policies --prefix other", "under the prefix \"other\""),
        ("off --policy plan --prefix other", "under the prefix \"other\""),
        ("off --policy plan --layer web", "no process has the policy web/plan; there are api/"),
        ("off --key ada", "needs its policy"),
        ("deny --for 1h --key user:ada", "no policy makes the key user:ada"),
        ("off --layer web", "no process has the layer"),
        ("undo nothing", "exempt"),
        ("check no-such-file.toml", "no-such-file.toml"),
        ("policies --redis redis://127.0.0.1:1", "127.0.0.1:1"),
    ] {
        let (is_done, text) = run(&server, line);
        assert!(!is_done && text.contains(what), "{line}: {text}");
    }
    let path = std::env::temp_dir().join(format!("tollgate-cli-{}.toml", std::process::id()));
    for (text, is_valid) in [
        ("[[policy]]\nname = \"api\"\nlimit = 10\nwindow = \"60s\"\n", true),
        ("[[policy]]\nname = \"api\"\nalgorithm = \"fixed_window\"\nlimit = 10\nwindow = \"month\"\n", true),
        ("[[policy]]\nname = \"api\"\nlimit = 0\nwindow = \"60s\"\n", false),
    ] {
        std::fs::write(&path, text).expect("it can be written");
        let (is_done, printed) = run(&server, &format!("check {}", path.display()));
        assert_eq!(is_done, is_valid, "{printed}");
        assert!(printed.contains(if is_valid { "api" } else { "line 3" }), "{printed}");
    }
    std::fs::remove_file(&path).expect("it was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_from_redis_reaches_no_terminal_as_control_characters() {
    const EVIL: &str = "a\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\n";
    let server = RedisServer::start();
    let (_live, admin) = process(&server).await;
    publish(&admin, &server);
    let [name]: [String; 1] = server.ask(&["ZRANGE", "tollgate:processes", "0", "-1"]);
    let text: String = server.ask(&["GET", &format!("tollgate:process:{name}")]);
    let mut evil: Value = serde_json::from_str(&text).expect("JSON");
    evil["policies"][0]["policy"] = EVIL.into();
    evil["top"] = json!([{ "policy": EVIL, "key": EVIL, "requests": 1, "denied": 1 }]);
    let _: () = server.ask(&["SET", "tollgate:process:evil", &evil.to_string()]);
    let _: () = server.ask(&["ZADD", "tollgate:processes", "9e15", "evil"]);
    let entry = json!({ "policy": EVIL, "key": EVIL, "effect": "off" });
    let _: () = server.ask(&["HSET", "tollgate:overrides", "evil", &entry.to_string()]);
    for line in ["policies", "top", "overrides", "show --policy none --key ada"] {
        let (_, text) = run(&server, line);
        assert!(text.contains(r"2J\u{202e}"), "{line}: {text:?}");
        assert!(
            !text.contains(|char: char| char != '\n' && (char.is_control() || char == '\u{202e}')),
            "{line}: {text:?}"
        );
    }
}
