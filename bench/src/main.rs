//! Benchmarks, as ratios of sides that are interleaved in one run.
//!
//! `cargo run --release -p tollgate-bench -- redis` prints what a decision costs the server; `memory`, how the memory
//! store compares with `governor`, and what a layer adds to a request (`--quick` for a rough answer).

mod memory;
mod redis;
mod server;
mod table;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    if what == "redis" {
        redis::run().await;
    } else if what == "memory" {
        memory::run(&std::env::args().skip(2).collect::<Vec<_>>());
    } else {
        eprintln!("give one of: redis, memory");
        std::process::exit(2);
    }
}
