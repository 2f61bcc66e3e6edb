//! Half of a slot moves, under load from three processes: nobody else fails, and every counter is exact.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::store::{Ask, BreakerState, Check, Store};
use tollgate::{Quota, RedisStore};

use super::moves::set_slot;
use super::rig::{Cluster, PATIENCE, check_of, id, quota};

const PROCESSES: usize = 3;
/// Tasks of each kind in a process.
const TASKS: usize = 4;
const BUDGET: Duration = Duration::from_millis(300);
const REST: Duration = Duration::from_millis(5);
/// How long a process asks; the slot is half moved in between.
const SPAN: Duration = Duration::from_secs(4);
const WHOLE: Duration = Duration::from_millis(700);
const HALF: Duration = Duration::from_secs(2);
/// What is given back in the background has arrived after this time.
const SETTLED: Duration = Duration::from_secs(1);

/// No counter comes near it, and no unit returns during the test.
const AMPLE: Quota = quota(20_000);
/// Runs out: what is asked for with it is refused then, and given back elsewhere.
const SCARCE: Quota = quota(300);

/// What makes this test a process of the storm: the URL of a node, and the keys.
const VARIABLE: &str = "TOLLGATE_TEST_STORM";

/// A key in the slot that moves, another on the same primary, and one on another primary.
type Keys<'a> = [&'a str; 3];

/// Checks that are asked for together, by name, and whether they may fail while the slot is half moved.
fn kinds([moved, beside, far]: Keys<'_>) -> [(&'static str, Vec<Check>, bool); 5] {
    let ample = |policy, key| check_of(policy, key, AMPLE);
    [
        ("both halves", vec![ample("a", moved), ample("b", moved), ample("c", far)], true),
        ("the half that stays", vec![ample("b", moved)], false),
        ("the half that moved", vec![ample("a", moved)], false),
        ("another slot", vec![ample("d", beside)], false),
        ("two primaries", vec![ample("e", beside), check_of("f", far, SCARCE)], false),
    ]
}

/// What came of one kind in one process, or of a counter.
type Counts = BTreeMap<String, u64>;

#[test]
fn while_half_of_a_slot_moves_no_others_fail_and_every_counter_is_exact() {
    match env::var(VARIABLE) {
        Ok(told) => {
            let told: Vec<&str> = told.split(' ').collect();
            let [url, keys @ ..] = &told[..] else { panic!("a URL and keys") };
            load(url, keys.try_into().expect("three keys"));
        }
        Err(_) => storm(),
    }
}

fn storm() {
    let cluster = Cluster::start();
    let (near, far) = (cluster.keys_on(0, 2), cluster.key_on(1));
    let keys = [&*near[0], &near[1], &far];
    let processes: Vec<Child> = (0..PROCESSES).map(|_| start(&cluster, keys)).collect();
    move_in_halves(&cluster, near[0].as_str());
    let counts = processes.into_iter().map(finish).fold(Counts::new(), |mut all, counts| {
        for (name, count) in counts {
            *all.entry(name).or_default() += count;
        }
        all
    });
    thread::sleep(SETTLED);
    println!("{counts:#?}");
    let wrong = [wrong_answers(&counts, keys), wrong_counters(&cluster, &counts, keys)].concat();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn start(cluster: &Cluster, keys: Keys<'_>) -> Child {
    let name = "cluster::storm::while_half_of_a_slot_moves_no_others_fail_and_every_counter_is_exact";
    let mut process = Command::new(env::current_exe().expect("it runs"));
    process.args([name, "--exact", "--nocapture"]);
    process.env(VARIABLE, format!("{} {}", cluster.nodes[2].url(), keys.join(" ")));
    process.stdout(Stdio::piped()).spawn().expect("it can be started again")
}

/// What a process tells at its end.
fn finish(mut process: Child) -> Counts {
    let output = BufReader::new(process.stdout.take().expect("it is piped"));
    let lines = output.lines().map_while(Result::ok);
    let counts = lines.filter_map(|line| {
        let (name, count) = line.strip_prefix("storm: ")?.rsplit_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    });
    let counts = counts.collect();
    assert!(process.wait().expect("a child ends").success(), "a process of the storm failed");
    counts
}

/// Moves one of the keys of a slot, and the others later.
fn move_in_halves(cluster: &Cluster, key: &str) {
    let (from, to, slot) = (&cluster.nodes[0], &cluster.nodes[1], &cluster.slot_of(key).to_string());
    thread::sleep(WHOLE);
    set_slot(to, slot, &["IMPORTING", &id(from)]);
    set_slot(from, slot, &["MIGRATING", &id(to)]);
    let migrate = |key: &str| {
        let _: String = from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]);
    };
    let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", slot, "9"]);
    let moved = keys.iter().find(|key| key.contains(":a:")).expect("it was counted");
    migrate(moved);
    thread::sleep(HALF);
    keys.iter().filter(|key| *key != moved).for_each(|key| migrate(key));
    set_slot(to, slot, &["NODE", &id(to)]);
    set_slot(from, slot, &["NODE", &id(to)]);
}

fn wrong_answers(counts: &Counts, keys: Keys<'_>) -> Vec<String> {
    let of = |name: String| counts.get(&name).copied().unwrap_or_default();
    let mut wrong = Vec::new();
    for (kind, _, may_fail) in kinds(keys) {
        let (failed, asked) = (of(format!("{kind}, failed")), of(format!("{kind}, asked")));
        println!("{kind}: {failed} of {asked} failed");
        if (failed > 0 && !may_fail) || asked < 100 || failed == asked {
            wrong.push(format!("{kind}: {failed} of {asked} failed"));
        }
    }
    let opened = of("breakers opened".to_owned());
    if opened > 0 {
        wrong.push(format!("breakers opened {opened} times"));
    }
    wrong
}

/// Compares what every counter holds with what was admitted.
#[tokio::main(flavor = "current_thread")]
async fn wrong_counters(cluster: &Cluster, counts: &Counts, keys: Keys<'_>) -> Vec<String> {
    let (store, mut admitted, mut wrong) = (cluster.store(PATIENCE).await, BTreeMap::new(), Vec::new());
    for (kind, checks, _) in kinds(keys) {
        for check in checks {
            let more = counts.get(&format!("{kind}, admitted")).copied().unwrap_or_default();
            admitted.entry(check.counter.policy().to_string()).or_insert((check, 0)).1 += more;
        }
    }
    for (policy, (check, admitted)) in admitted {
        let look = check.cost(0);
        let looked = store.decide(&[look], Ask::default()).wait().await.expect("the Cluster is whole");
        let outcome = &looked.decision.outcomes()[0];
        let used = outcome.limit() - outcome.remaining();
        println!("counter {policy}: {used} used, {admitted} admitted");
        if used != admitted {
            wrong.push(format!("counter {policy}: {used} used, {admitted} admitted"));
        }
    }
    wrong
}

/// One process of the storm.
#[tokio::main(worker_threads = 4)]
async fn load(url: &str, keys: Keys<'_>) {
    let store = RedisStore::builder().timeout(BUDGET).without_deny_cache();
    let store = store.connect_cluster([url]).await.expect("the Cluster was started");
    let watched = store.clone();
    let watch = thread::spawn(move || count_opened(&watched));
    let mut tasks = Vec::new();
    for (kind, checks, _) in kinds(keys) {
        tasks.extend((0..TASKS).map(|_| (kind, tokio::spawn(ask(store.clone(), checks.clone())))));
    }
    let mut counts = Counts::new();
    for (kind, task) in tasks {
        for (what, count) in task.await.expect("no task fails") {
            *counts.entry(format!("{kind}, {what}")).or_default() += count;
        }
    }
    counts.insert("breakers opened".to_owned(), watch.join().expect("watching does not fail"));
    for (name, count) in counts {
        println!("storm: {name} {count}");
    }
    // What is given back in the background is on its way.
    tokio::time::sleep(SETTLED / 2).await;
}

async fn ask(store: RedisStore, checks: Vec<Check>) -> [(&'static str, u64); 3] {
    let (mut asked, mut admitted, mut failed) = (0, 0, 0);
    let end = Instant::now() + SPAN;
    while Instant::now() < end {
        asked += 1;
        match store.decide(&checks, Ask::default()).wait().await {
            Ok(decided) => admitted += u64::from(decided.decision.is_allowed()),
            Err(_) => failed += 1,
        }
        tokio::time::sleep(REST).await;
    }
    [("asked", asked), ("admitted", admitted), ("failed", failed)]
}

/// How often the breaker of any primary opens.
fn count_opened(store: &RedisStore) -> u64 {
    let (mut opened, mut were_open, end) = (0, 0, Instant::now() + SPAN);
    while Instant::now() < end {
        let open = store.breakers().iter().filter(|(_, state)| *state == BreakerState::Open).count();
        opened += open.saturating_sub(were_open) as u64;
        were_open = open;
        thread::sleep(Duration::from_millis(1));
    }
    opened
}
