//! The command line.

use crate::BoxError;

const USAGE: &str = "usage: server [--addr ADDRESS] [--redis URL] [--config FILE] [--explain]";
const ADDRESS: &str = "127.0.0.1:3000";

/// The options of the command line and the environment.
pub(crate) struct Args {
    pub(crate) addr: String,
    pub(crate) redis: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) explain: bool,
}

impl Args {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, BoxError> {
        let redis = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
        let mut args = Self { addr: ADDRESS.to_owned(), redis, config: None, explain: false };
        while let Some(argument) = arguments.next() {
            if argument == "--help" {
                println!("{USAGE}");
                std::process::exit(0);
            }
            if argument == "--explain" {
                args.explain = true;
                continue;
            }
            let (flag, value) = match argument.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (&*argument, arguments.next()),
            };
            match (flag, value) {
                ("--addr", Some(value)) => args.addr = value,
                ("--redis", value @ Some(_)) => args.redis = value,
                ("--config", value @ Some(_)) => args.config = value,
                ("--addr" | "--redis" | "--config", None) => {
                    return Err(format!("{flag} lacks a value: {USAGE}").into());
                }
                _ => return Err(format!("{flag:?} is no flag: {USAGE}").into()),
            }
        }
        Ok(args)
    }
}
