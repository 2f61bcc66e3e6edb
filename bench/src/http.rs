//! What a limit costs a web server: requests/s of an axum server, over those of the same server
//! without a limit, as `wrk` sees them over loopback.
//!
//! Every side is a process of its own, this program called with [`SERVE`]: so a side has the
//! allocator, the runtime and the memory of nobody else, can be profiled by its process, and costs
//! nothing while it is not asked. Sides that need Redis have a `redis-server` of their own, so that
//! its calls are those of that side.
//!
//! The sides take turns in every round, and a ratio is made of two runs of one round. Before it is measured each side
//! answers some requests, by which the program sees that it does the work it is measured for; sides that are compared
//! as equals do the same work. Options:
//! `--connections N` (64), `--rounds N` (7), `--seconds N` (2) for one side in one round, `--quick`
//! for 3 rounds of 1 second, `--sides a,b` for some of them by name, `--redis-cell` to build the
//! module that `tower-redis-cell` needs and `--tower-rate-limiter` to build that crate, which asks
//! for a compiler newer than this workspace does. Of instructions, `--save FILE` writes the counts
//! and `--against FILE` compares them with those.

mod app;
mod build;
mod callgrind;
mod check;
mod figures;
mod instructions;
mod options;
mod pass;
mod peers;
mod process;
mod redis;
mod report;
mod requests;
mod sides;
mod walk;
mod wrk;

use std::net::Ipv4Addr;

pub(crate) use app::HEADER;
pub(crate) use build::tower_rate_limiter;
use figures::PAIRS;
pub(crate) use figures::{Asked, Over, What, figures};
pub(crate) use options::Options;
pub(crate) use pass::Runner;
use sides::{Server, Setup, Side};

use crate::record::Record;

/// The first argument of a process that serves one side. The name of the side, the URLs of its Redis and the units that
/// a client may take at once follow.
pub(crate) const SERVE: &str = "http-side";

/// Measures and prints; ends the process with 1 if a side did not do what it should.
pub(crate) async fn run() {
    with_options(measure).await;
}

/// Counts instructions and prints them; ends the process with 1 if a side did not do what it should, or became worse.
pub(crate) async fn count() {
    with_options(instructions::run).await;
}

/// Prints which files and functions a request crosses.
pub(crate) async fn walk() {
    with_options(walk::run).await;
}

async fn with_options<F: Future<Output = Result<(), String>>>(run: fn(Options) -> F) {
    let done = match Options::parse(std::env::args().skip(2)) {
        Ok(options) => run(options).await,
        Err(fault) => Err(fault),
    };
    if let Err(fault) = done {
        fail(&fault);
    }
}

/// Says why there is no measurement, and ends the process with 1.
pub(crate) fn fail(fault: &str) -> ! {
    eprintln!("{fault}");
    std::process::exit(1);
}

/// Starts sides by name, but for those of crates that are not linked.
pub(crate) async fn start(names: impl Iterator<Item = &str>, options: &Options) -> Result<Vec<Runner>, String> {
    let find = |name| sides::all().into_iter().find(|side| side.name == name);
    Runner::start_all(names.filter_map(find).collect(), options).await
}

/// Serves one side until standard input ends. The port is printed first.
pub(crate) async fn serve() {
    let mut arguments = std::env::args().skip(2);
    let name = arguments.next().expect("the name of a side");
    let side = sides::all().into_iter().find(|side| side.name == name).expect("a side of this program");
    let Server::This(build) = side.server else { panic!("{name} is served by another program") };
    let (url, burst) = (arguments.next().unwrap_or_default(), arguments.next().and_then(|burst| burst.parse().ok()));
    let router = build(Setup { url, burst: burst.expect("units") }).await;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    println!("{}", listener.local_addr().expect("bound").port());
    // Without this a side would outlive a parent that was killed.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    axum::serve(listener, router).await.expect("serves");
}

async fn measure(options: Options) -> Result<(), String> {
    let mut record = Record::new(options.out.as_deref());
    let sides = options.choose(sides::all())?;
    for (side, over) in PAIRS {
        figures::unequal(&sides, side, over)?;
    }
    let mut runners = Runner::start_all(sides, &options).await?;
    let rounds = pass::rounds(runners.iter_mut().collect(), &options, options.connections).await?;
    report::print(&rounds, options.connections)?;
    report::record(&rounds, options.connections, &mut record);
    if options.connections > 1 {
        let single = runners.iter_mut().filter(|runner| runner.side.alone).collect();
        let rounds = pass::rounds(single, &options, 1).await?;
        report::print(&rounds, 1)?;
        report::record(&rounds, 1, &mut record);
    }
    record.write();
    Ok(())
}
