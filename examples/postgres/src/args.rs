//! The command line.

use crate::BoxError;

const USAGE: &str = "usage: tollgate-postgres [--addr ADDRESS] --postgres URL (or DATABASE_URL)";
const ADDRESS: &str = "127.0.0.1:3000";

/// The options of the command line and the environment.
pub(crate) struct Args {
    pub(crate) addr: String,
    pub(crate) postgres: String,
}

impl Args {
    /// Reads the options.
    ///
    /// # Errors
    ///
    /// If one is unknown or lacks a value, or there is no URL.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, BoxError> {
        let mut addr = ADDRESS.to_owned();
        let mut postgres = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty());
        while let Some(argument) = arguments.next() {
            let (flag, value) = match argument.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (&*argument, arguments.next()),
            };
            match (flag, value) {
                ("--addr", Some(value)) => addr = value,
                ("--postgres", value @ Some(_)) => postgres = value,
                ("--addr" | "--postgres", None) => return Err(format!("{flag} lacks a value: {USAGE}").into()),
                _ => return Err(format!("{flag:?} is no flag: {USAGE}").into()),
            }
        }
        let postgres = postgres.ok_or_else(|| format!("there is no URL of a database: {USAGE}"))?;
        Ok(Self { addr, postgres })
    }
}
