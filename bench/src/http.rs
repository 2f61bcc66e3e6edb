//! What a limit costs a web server: requests/s of an axum server, over those of the same server
//! without a limit, as `wrk` sees them over loopback.
//!
//! Every side is a process of its own, this program called with [`SERVE`]: so a side has the
//! allocator, the runtime and the memory of nobody else, can be profiled by its process, and costs
//! nothing while it is not asked. Sides that need Redis have a `redis-server` of their own, so that
//! its calls are those of that side.
//!
//! The sides take turns in every round, and a ratio is made of two runs of one round. Options:
//! `--connections N` (64), `--rounds N` (7), `--seconds N` (2) for one side in one round, `--quick`
//! for 3 rounds of 1 second, `--sides a,b` for some of them by name, `--redis-cell` to build the
//! module that `tower-redis-cell` needs and `--tower-rate-limiter` to build that crate, which asks
//! for a compiler newer than this workspace does. `--out FILE` writes the figures for
//! `examples/charts/benchmarks`. Of instructions, `--save FILE` writes the counts and `--against FILE` compares them with
//! those.

mod app;
mod build;
mod callgrind;
mod figures;
mod instructions;
mod options;
mod pass;
mod peers;
mod process;
mod report;
mod requests;
mod sides;
mod walk;
mod wrk;

use std::net::{Ipv4Addr, TcpListener};

pub(crate) use app::HEADER;
pub(crate) use build::tower_rate_limiter;
pub(crate) use options::Options;
pub(crate) use pass::Runner;
use sides::{Server, Side};

use crate::record::Record;
use crate::table::Figure;

/// The first argument of a process that serves one side. The name of the side and the URL of its
/// Redis follow.
pub(crate) const SERVE: &str = "http-side";

/// Measures and prints; ends the process with 1 if a side did not do what it should.
pub(crate) fn run() {
    with_options(measure);
}

fn with_options(run: fn(&Options) -> Result<(), String>) {
    if let Err(fault) = Options::parse(std::env::args().skip(2)).and_then(|options| run(&options)) {
        fail(&fault);
    }
}

/// Says why there is no measurement, and ends the process with 1.
pub(crate) fn fail(fault: &str) -> ! {
    eprintln!("{fault}");
    std::process::exit(1);
}

/// Starts sides by name, but for those of crates that are not linked.
pub(crate) fn start<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<Runner>, String> {
    let find = |name| sides::all().into_iter().find(|side| side.name == name);
    names.filter_map(find).map(Runner::start).collect()
}

/// Counts instructions and prints them; ends the process with 1 if a side did not do what it should, or became worse.
pub(crate) fn count() {
    with_options(instructions::run);
}

/// Prints which files and functions a request crosses.
pub(crate) fn walk() {
    with_options(walk::run);
}

/// What has a target: instructions, and figures beside other crates, which are to be linked and built.
pub(crate) fn figures(quick: bool) -> Result<Vec<Figure>, String> {
    let options = figures::options(quick)?;
    let mut figures = instructions::figures(quick)?;
    figures.extend(figures::of(&options)?);
    Ok(figures)
}

/// Serves one side until standard input ends. The port is printed first.
pub(crate) async fn serve() {
    let mut arguments = std::env::args().skip(2);
    let name = arguments.next().expect("the name of a side");
    let side = sides::all().into_iter().find(|side| side.name == name).expect("a side of this program");
    let Server::This(build) = side.server else { panic!("{name} is served by another program") };
    let router = build(arguments.next().unwrap_or_default()).await;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    println!("{}", listener.local_addr().expect("bound").port());
    // Without this a side would outlive a parent that was killed.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    axum::serve(listener, router).await.expect("serves");
}

fn measure(options: &Options) -> Result<(), String> {
    wrk::check_installed()?;
    let mut record = Record::new(options.out.as_deref());
    let sides = options.choose(sides::all())?;
    let mut runners = Vec::new();
    for side in sides {
        runners.push(Runner::start(side)?);
    }
    for runner in &mut runners {
        runner.warm_up(options)?;
    }
    let rounds = pass::rounds(&mut runners, options, options.connections, options.rounds)?;
    report::print(&rounds, options.connections);
    report::record(&rounds, options.connections, &mut record);
    if options.connections > 1 {
        let mut single: Vec<Runner> = runners.into_iter().filter(|runner| runner.side.alone).collect();
        let rounds = pass::rounds(&mut single, options, 1, options.rounds.min(5))?;
        report::print(&rounds, 1);
        report::record(&rounds, 1, &mut record);
    }
    record.write();
    Ok(())
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).expect("a free port").port()
}
