//! The stores that are measured.

use std::time::Duration;

use tollgate::RedisStore;
use tollgate::store::RedisStoreBuilder;

use crate::server::Server;

/// A store with the default settings, but that a noisy machine is no timeout.
pub(crate) async fn store(server: &Server) -> RedisStore {
    connected(server, RedisStore::builder()).await
}

/// A store that asks the server about every request, refused ones too.
pub(crate) async fn store_without_deny_cache(server: &Server) -> RedisStore {
    connected(server, without_deny_cache()).await
}

/// Such a store with batches of at most so many keys.
pub(crate) async fn store_of_batches(server: &Server, keys: usize) -> RedisStore {
    connected(server, without_deny_cache().batch_size(keys)).await
}

/// As [`store`], with functions instead of scripts.
pub(crate) async fn store_of_functions(server: &Server) -> RedisStore {
    connected(server, RedisStore::builder().functions()).await
}

fn without_deny_cache() -> RedisStoreBuilder {
    RedisStore::builder().without_deny_cache()
}

async fn connected(server: &Server, builder: RedisStoreBuilder) -> RedisStore {
    builder.timeout(Duration::from_secs(5)).connect(server.url()).await.expect("the server answers")
}
