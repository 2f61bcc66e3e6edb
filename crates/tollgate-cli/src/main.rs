#![doc = include_str!("../README.md")]

mod args;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tollgate::{Error, RedisStore};
use tollgate_admin::{EffectKind, Entry, Fleet};
use tollgate_config::Config;

use self::args::{Args, Command, Of, Target};
use self::show::{Output, escaped};

/// An operator waits longer than a request.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", escaped(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), Error> {
    let output = Output { json: args.json };
    if let Command::Check { file } = &args.command {
        let config = Config::from_file_without(file, &["fleet", "ratios"])?;
        output.checked(config.policies());
        return Ok(());
    }
    let settings = RedisStore::builder().prefix(&args.prefix).timeout(PATIENCE).without_deny_cache();
    let store = settings.connect(&args.redis).await?;
    let fleet = Fleet::new(store);
    match &args.command {
        Command::Check { .. } => unreachable!("it needs no fleet"),
        Command::Policies => output.policies(&fleet.policies().await?),
        Command::Top { count } => {
            let mut keys = fleet.top().await?;
            keys.truncate(*count);
            if keys.is_empty() {
                // Fails if there are none.
                fleet.policies().await?;
                eprintln!("no keys yet: processes that have a Top publish its keys every 10 s");
            }
            output.top(&keys);
        }
        Command::Overrides => output.overrides(&fleet.overrides().await?, fleet.now_ms().await?),
        Command::Show { of } => output.decision(of, &fleet.show(of.layer(), &of.policy, &of.key).await?),
        Command::Reset { of } => output.changed(fleet.reset(of.layer(), &of.policy, &of.key).await?),
        Command::LiftBan { of } => output.changed(fleet.lift_ban(of.layer(), &of.policy, &of.key).await?),
        Command::Refund { of, units } => output.changed(fleet.refund(of.layer(), &of.policy, &of.key, *units).await?),
        Command::Exempt { target, time } => set(&fleet, output, entry(EffectKind::Exempt, target, Some(*time))).await?,
        Command::Deny { target, time } => set(&fleet, output, entry(EffectKind::Deny, target, Some(*time))).await?,
        Command::Scale { target, factor, time } => {
            let mut entry = entry(EffectKind::Scale, target, Some(*time));
            entry.factor = Some(*factor);
            set(&fleet, output, entry).await?;
        }
        Command::Off { target, time } => set(&fleet, output, entry(EffectKind::Off, target, *time)).await?,
        Command::Shadow { target, time } => set(&fleet, output, entry(EffectKind::Shadow, target, *time)).await?,
        Command::Enforce { target, share, time } => {
            let mut entry = entry(EffectKind::Enforce, target, *time);
            entry.share = *share;
            set(&fleet, output, entry).await?;
        }
        Command::Undo { effect, target } => {
            let is_removed = fleet.remove(entry(*effect, target, None)).await?;
            if !is_removed {
                eprintln!("there is no such override: tollgate overrides lists those in force");
            }
            output.changed(usize::from(is_removed));
        }
    }
    Ok(())
}

fn entry(effect: EffectKind, target: &Target, time: Option<humantime::Duration>) -> Entry {
    let mut entry = Entry::new(effect);
    entry.layer.clone_from(&target.layer);
    entry.policy.clone_from(&target.policy);
    entry.key.clone_from(&target.key);
    entry.for_seconds = time.map(|time| time.as_secs());
    entry
}

async fn set(fleet: &Fleet, output: Output, entry: Entry) -> Result<(), Error> {
    let entry = fleet.set(entry).await?;
    output.overrides(&[entry], fleet.now_ms().await?);
    Ok(())
}

impl Of {
    fn layer(&self) -> Option<&str> {
        self.layer.as_deref()
    }
}
