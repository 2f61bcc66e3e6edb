//! A user of Redis whose password changes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use tollgate::deadpool_redis::redis::Value;
use tollgate::store::{Credentials, RedisStoreBuilder};

use super::server::RedisServer;

const USER: &str = "limiter";

/// Where the password is to be had.
#[derive(Clone, Default)]
pub(crate) struct Vault(Arc<Mutex<String>>);

impl Vault {
    /// Makes it the only password, here and in the servers, and ends the connections of its user.
    pub(crate) fn change<'a>(&self, servers: impl IntoIterator<Item = &'a RedisServer> + Clone, password: &str) {
        password.clone_into(&mut self.0.lock().expect("nobody panics with it"));
        for server in servers.clone() {
            let rule = format!(">{password}");
            let () = server.ask(&["ACL", "SETUSER", USER, "on", "resetpass", &rule, "~*", "+@all"]);
        }
        for server in servers {
            let _: i64 = server.ask(&["CLIENT", "KILL", "USER", USER]);
        }
    }

    /// Settings of a store that asks for the password whenever it connects.
    pub(crate) fn settings(&self, settings: RedisStoreBuilder) -> RedisStoreBuilder {
        let vault = self.clone();
        settings.credentials(move || {
            let credentials = Credentials::new(USER, vault.0.lock().expect("nobody panics with it").as_str());
            async { Ok::<_, Infallible>(credentials) }
        })
    }

    /// Checks that the user is known to a server, and that nobody used what was no password any more.
    #[track_caller]
    pub(crate) fn assert_used_rightly(server: &RedisServer) {
        let (clients, refused): (String, Vec<Value>) = (server.ask(&["CLIENT", "LIST"]), server.ask(&["ACL", "LOG"]));
        assert!(clients.contains("user=limiter"), "{clients}");
        assert!(refused.is_empty(), "somebody used what was no password any more: {refused:?}");
    }
}
