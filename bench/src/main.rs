//! Benchmarks, as ratios of sides that are interleaved in one run.
//!
//! `cargo run --release -p tollgate-bench -- redis` prints what a decision costs the server.

mod redis;
mod server;
mod table;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    if what == "redis" {
        redis::run().await;
    } else {
        eprintln!("give one of: redis");
        std::process::exit(2);
    }
}
