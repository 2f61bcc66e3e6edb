//! Benchmarks, as ratios of sides that are interleaved in one run.
//!
//! `cargo run --release -p tollgate-bench -- redis` prints what a decision costs the server.
//! `cargo run --release -p tollgate-bench --features peers -- http` prints what a limit costs a web
//! server; without the feature it knows no other crates than ours, and builds faster.

mod http;
mod redis;
mod server;
mod table;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    match &*what {
        "redis" => redis::run().await,
        "http" => http::run(),
        http::SERVE => http::serve().await,
        _ => {
            eprintln!("give one of: redis, http");
            std::process::exit(2);
        }
    }
}
