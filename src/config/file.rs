//! A file with policies, read as a whole.

use std::collections::HashMap;
use std::path::Path;

use super::document::{Field, parse};
use super::error::{Source, one_line};
use super::policy::read_policy;
use super::server::Server;
use crate::{Error, Policy};

/// One decision has no more checks than this.
const MOST_POLICIES: usize = 128;

/// Policies and settings from a TOML file; see the [module](crate::config) for its fields.
#[derive(Clone, Debug, Default)]
pub struct Config {
    policies: Vec<Policy>,
    server: Server,
}

impl Config {
    /// Reads a file's text.
    ///
    /// # Errors
    ///
    /// If it is no TOML, or holds anything that is unknown or can never work. The message is one
    /// line that starts with the number of the line in the file, and ends with the column.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        Self::read(&Source { name: None, text })
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, and as [`from_toml`](Self::from_toml); the message starts with
    /// the path.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            let text = format!("cannot read the config file {name}: give the path of a TOML file");
            Error::invalid(one_line(&text)).with_source(error)
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let source = Source { name: Some(&name), text: &text };
        match str::from_utf8(&bytes) {
            Ok(_) => Self::read(&source),
            Err(error) => {
                let valid = error.valid_up_to();
                let message = "the file is not UTF-8 text: save it as UTF-8";
                Err(source.error(&(valid..valid), message).with_source(error))
            }
        }
    }

    /// The policies, in the order of the file.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Takes the policies out.
    pub fn into_policies(self) -> Vec<Policy> {
        self.policies
    }

    /// The settings of the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    fn read(source: &Source<'_>) -> Result<Self, Error> {
        let root = parse(source)?;
        let file = Field::new("the file", &root, source).table("a table")?.only(&["policy", "server"])?;
        let server = file.get("server").map(Server::read).transpose()?.unwrap_or_default();
        let policies = file.get("policy").map(|given| read_policies(given, &server)).transpose()?.unwrap_or_default();
        Ok(Self { policies, server })
    }
}

fn read_policies(given: Field<'_>, server: &Server) -> Result<Vec<Policy>, Error> {
    let tables = given.as_list("policy");
    let tables = tables.ok_or_else(|| given.wrong("a sequence of tables, each under [[policy]]"))?;
    if let Some(policy) = tables.get(MOST_POLICIES) {
        return Err(policy.error(format!("there are more than {MOST_POLICIES} policies: join some")));
    }
    let (mut policies, mut lines) = (Vec::new(), HashMap::new());
    for table in tables {
        let (policy, name) = read_policy(table, server)?;
        // Policies that share a name could share their counters.
        if let Some(first) = lines.insert(policy.name().to_owned(), name.line()) {
            let message = format!("policy name {:?} is taken on line {first}: give each its own", policy.name());
            return Err(name.error(message));
        }
        policies.push(policy);
    }
    Ok(policies)
}
