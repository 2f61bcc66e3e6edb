//! The same Lua as a library of Redis Functions.

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::Value;
use tollgate::store::Change;

use super::stores::{FIFTY, adjust, connect, patient_store, remaining, settings, settle, take};
use crate::support::server::RedisServer;

#[tokio::test]
async fn functions_decide_settle_and_reset_as_scripts_do_on_the_same_counters() {
    let server = RedisServer::start();
    let (by_functions, by_scripts) = (connect(settings().functions(), &server).await, patient_store(&server).await);
    let taken = take(&by_functions, "a", 10).await.unwrap();
    assert_eq!(remaining(&by_scripts, "a").await, 40);
    drop(settle(&by_functions, taken.receipt, Change::Refund(4)));
    assert_eq!(remaining(&by_functions, "a").await, 44);
    assert!(!take(&by_functions, "a", 45).await.unwrap().decision.is_allowed());
    adjust(&by_functions, "a", FIFTY, Change::Charge(40)).await;
    assert_eq!(remaining(&by_scripts, "a").await, 4);
    adjust(&by_functions, "a", FIFTY, Change::Reset).await;
    assert_eq!(remaining(&by_scripts, "a").await, 50);
}

#[tokio::test]
async fn functions_load_one_library_beside_those_of_other_versions_and_no_script() {
    let server = RedisServer::start();
    let other = "#!lua name=tollgate_0000000000000000\nredis.register_function('tollgate_0000000000000000', \
                 function() return 7 end)";
    let _: String = server.ask(&["FUNCTION", "LOAD", other]);
    for _ in 0..3 {
        drop(take(&connect(settings().functions(), &server).await, "a", 1).await.unwrap());
    }
    assert_eq!(server.ask::<Vec<Value>>(&["FUNCTION", "LIST"]).len(), 2);
    assert_eq!(server.ask::<i64>(&["FCALL", "tollgate_0000000000000000", "0"]), 7);
    assert!(server.ask::<String>(&["INFO", "memory"]).contains("number_of_cached_scripts:0\r"));
}

#[tokio::test]
async fn a_server_without_functions_is_told_at_connect_with_its_version() {
    let server = RedisServer::start_with_settings(&["--rename-command", "FUNCTION", ""]);
    let error = RedisStore::builder().functions().connect(&server.url()).await.expect_err("it has no functions");
    let info: String = server.ask(&["INFO", "server"]);
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("it has a version");
    let told = format!("{error:#}");
    assert!(told.contains(version) && told.contains("no functions"), "{told}");
    patient_store(&server).await;
}
