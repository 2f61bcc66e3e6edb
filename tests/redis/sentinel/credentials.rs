//! Passwords of the primary that change while it is used.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate::deadpool_redis::redis::Value;
use tollgate::store::{Ask, Credentials, Store};
use tollgate::{Quota, RedisStore};

use super::rig::{NAME, Watched};
use crate::support::checks::check;

const FIFTY: Quota = Quota::token_bucket(50, Duration::from_secs(30 * 86_400));
/// Limiting goes on within this time of a change.
const RETURN: Duration = Duration::from_secs(1);

#[tokio::test]
async fn the_primary_is_logged_in_to_with_the_password_of_the_time_and_the_sentinels_as_their_urls_say() {
    let (watched, vault) = (Watched::start(), Arc::<Mutex<String>>::default());
    let rotate = |password: &str| {
        password.clone_into(&mut vault.lock().expect("nobody panics here"));
        let rules = ["on", "resetpass", &format!(">{password}"), "~*", "+@all"];
        let (): () = watched.primary.ask(&[&["ACL", "SETUSER", "limiter"], &rules[..]].concat());
        let _: i64 = watched.primary.ask(&["CLIENT", "KILL", "USER", "limiter"]);
    };
    rotate("first");
    let now = Arc::clone(&vault);
    let settings = RedisStore::builder().without_deny_cache().credentials(move || {
        let password = now.lock().expect("nobody panics here").clone();
        async move { Ok::<_, Infallible>(Credentials::new("limiter", password)) }
    });
    let store = settings.lazy().connect_sentinel(watched.urls(), NAME).await.expect("the URLs are some");
    for round in 0..3 {
        rotate(&format!("password-{round}"));
        let start = Instant::now();
        while let Err(error) = store.decide(&[check("key", FIFTY, 1)], Ask::default()).wait().await {
            assert!(start.elapsed() < RETURN, "{error:#}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let clients: String = watched.primary.ask(&["CLIENT", "LIST"]);
        assert!(clients.contains("user=limiter"), "{clients}");
    }
    let refused: Vec<Value> = watched.primary.ask(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "somebody used what was no password any more: {refused:?}");
}
