//! Benchmarks, as ratios of sides that are interleaved in one run.
//!
//! `cargo run --release -p tollgate-bench -- WHAT [--quick]`, WHAT being one of
//!
//! - `redis`: what a decision costs the server, in time and memory;
//! - `store`: what `RedisStore` does beside other ways to ask Redis.
//!
//! `--quick` is for trying it out: fewer and shorter rounds over fewer keys.

mod effort;
mod load;
mod plain;
mod redis;
mod server;
mod store;
mod stores;
mod table;

use effort::Effort;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let (flags, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let quick = flags.iter().any(|flag| flag == "--quick");
    if flags.len() > usize::from(quick) {
        usage();
    }
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    match names.join(" ").as_str() {
        "redis" => redis::run(effort).await,
        "store" => store::run(effort).await,
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("give one of: redis store; and --quick for a short run");
    std::process::exit(2);
}
