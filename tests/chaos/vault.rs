//! A user of Redis whose password changes.

use std::sync::{Arc, Mutex};

use tollgate::store::Credentials;

use crate::support::server::RedisServer;

pub(crate) const USER: &str = "limiter";

/// Where the password is to be had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vault {
    password: Arc<Mutex<String>>,
}

impl Vault {
    /// Makes it the only password, here and in Redis.
    pub(crate) fn change(&self, redis: &RedisServer, password: &str) {
        let mut known = self.password.lock().expect("nobody panics with it");
        let rule = format!(">{password}");
        let () = redis.ask(&["ACL", "SETUSER", USER, "on", "resetpass", &rule, "~*", "+@all"]);
        password.clone_into(&mut known);
    }

    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::new(USER, self.password.lock().expect("nobody panics with it").as_str())
    }
}
