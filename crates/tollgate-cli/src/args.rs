use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as Group, Parser, Subcommand};
use humantime::Duration;
use tollgate_admin::EffectKind;

/// Shows and changes the limits of a running fleet.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version)]
pub(crate) struct Args {
    /// URL of the fleet's Redis.
    #[arg(long, env = "REDIS_URL", default_value = "redis://127.0.0.1:6379", hide_env_values = true, global = true)]
    pub(crate) redis: String,
    /// Prefix of the fleet's keys.
    #[arg(long, default_value = "tollgate", global = true)]
    pub(crate) prefix: String,
    /// Prints JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the policies that the processes of the fleet have.
    Policies,
    /// Lists the keys with most requests and denials within the last minutes.
    Top {
        /// Number of keys.
        #[arg(long, default_value_t = 20)]
        count: usize,
    },
    /// Lists the overrides in force.
    Overrides,
    /// Shows what a key has left.
    Show {
        #[command(flatten)]
        of: Of,
    },
    /// Resets the counters of a key.
    Reset {
        #[command(flatten)]
        of: Of,
    },
    /// Gives units back to a key.
    Refund {
        #[command(flatten)]
        of: Of,
        /// Units to give back.
        #[arg(long)]
        units: u64,
    },
    /// Ends the ban of a key.
    LiftBan {
        #[command(flatten)]
        of: Of,
    },
    /// Lets requests through without counting them.
    Exempt {
        #[command(flatten)]
        target: Target,
        /// How long, such as 1h or 30m.
        #[arg(long = "for")]
        time: Duration,
    },
    /// Denies requests.
    Deny {
        #[command(flatten)]
        target: Target,
        /// How long, such as 1h or 30m.
        #[arg(long = "for")]
        time: Duration,
    },
    /// Multiplies limit and burst.
    Scale {
        #[command(flatten)]
        target: Target,
        /// Factor, such as 2 or 0.5.
        #[arg(long)]
        factor: f64,
        /// How long, such as 1h or 30m.
        #[arg(long = "for")]
        time: Duration,
    },
    /// Switches policies off.
    Off {
        #[command(flatten)]
        target: Target,
        /// How long. Without it, until it is undone.
        #[arg(long = "for")]
        time: Option<Duration>,
    },
    /// Puts policies in shadow mode: they decide, and deny nothing.
    Shadow {
        #[command(flatten)]
        target: Target,
        /// How long. Without it, until it is undone.
        #[arg(long = "for")]
        time: Option<Duration>,
    },
    /// Enforces policies, or a share of their keys.
    Enforce {
        #[command(flatten)]
        target: Target,
        /// Share of keys from 0 to 1. By default all.
        #[arg(long)]
        share: Option<f64>,
        /// How long. Without it, until it is undone.
        #[arg(long = "for")]
        time: Option<Duration>,
    },
    /// Removes an override of the same layer, policy and key.
    Undo {
        /// Effect to remove.
        #[arg(value_parser = effect())]
        effect: EffectKind,
        #[command(flatten)]
        target: Target,
    },
    /// Checks a configuration file, for CI.
    Check {
        /// File in TOML.
        file: PathBuf,
    },
}

/// One key of one policy.
#[derive(Debug, Group)]
pub(crate) struct Of {
    /// Name of the policy.
    #[arg(long)]
    pub(crate) policy: String,
    /// Value that the client sends, or whole key.
    #[arg(long)]
    pub(crate) key: String,
    /// Name of the layer. By default, the first one that has the policy.
    #[arg(long)]
    pub(crate) layer: Option<String>,
}

/// What an override is for.
#[derive(Debug, Group)]
#[group(required = true, multiple = true)]
pub(crate) struct Target {
    /// Name of the policy. By default, all.
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Value that the client sends, if the policy is given, or whole key. By default, all.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Name of the layer. By default, all.
    #[arg(long)]
    pub(crate) layer: Option<String>,
    /// All policies and keys of all layers.
    #[arg(long, conflicts_with_all = ["policy", "key", "layer"])]
    pub(crate) all: bool,
}

const EFFECTS: [&str; 6] = ["exempt", "deny", "scale", "off", "shadow", "enforce"];

fn effect() -> impl TypedValueParser<Value = EffectKind> {
    PossibleValuesParser::new(EFFECTS).try_map(|name| serde_json::from_value(name.into()))
}
