//! Passwords that change while a Cluster is used.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::Value;
use tollgate::store::Credentials;

use super::rig::{Cluster, take};

/// Limiting goes on within this time of a change.
const RETURN: Duration = Duration::from_secs(1);

fn rotate(cluster: &Cluster, vault: &Mutex<String>, password: &str) {
    password.clone_into(&mut vault.lock().expect("nobody panics here"));
    for node in &cluster.nodes {
        let rules = ["on", "resetpass", &format!(">{password}"), "~*", "+@all"];
        let (): () = node.ask(&[&["ACL", "SETUSER", "limiter"], &rules[..]].concat());
    }
    for node in &cluster.nodes {
        let _: i64 = node.ask(&["CLIENT", "KILL", "USER", "limiter"]);
    }
}

#[tokio::test]
async fn every_node_is_logged_in_to_with_the_password_of_the_time() {
    let (cluster, vault) = (Cluster::start(), Arc::<Mutex<String>>::default());
    rotate(&cluster, &vault, "first");
    let now = Arc::clone(&vault);
    let settings = RedisStore::builder().without_deny_cache().credentials(move || {
        let password = now.lock().expect("nobody panics here").clone();
        async move { Ok::<_, Infallible>(Credentials::new("limiter", password)) }
    });
    let store = settings.connect_cluster([cluster.nodes[0].url()]).await.expect("the password is right");
    let keys: Vec<_> = (0..3).map(|place| cluster.key_on(place)).collect();
    for round in 0..3 {
        rotate(&cluster, &vault, &format!("password-{round}"));
        let start = Instant::now();
        for key in &keys {
            while let Err(error) = take(&store, key, 1).await {
                assert!(start.elapsed() < RETURN, "{error:#}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    for node in &cluster.nodes {
        let refused: Vec<Value> = node.ask(&["ACL", "LOG"]);
        assert!(refused.is_empty(), "somebody used what was no password any more: {refused:?}");
    }
}
