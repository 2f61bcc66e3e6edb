//! A file with policies, read as a whole.

use std::collections::HashMap;
use std::path::Path;

use toml::Spanned;

use super::Server;
use super::document::{Document, PolicyTable};
use super::fault::{Fault, line_of, one_line};
use super::policy::read_policy;
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
    /// line that starts with the number of the line in the file.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        Self::read(text).map_err(|fault| fault.in_file(None, text.as_bytes()))
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
        let text = str::from_utf8(&bytes).map_err(|error| Fault::no_text(error.valid_up_to(), error));
        text.and_then(Self::read).map_err(|fault| fault.in_file(Some(&name), &bytes))
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

    fn read(text: &str) -> Result<Self, Fault> {
        let document: Document = toml::from_str(text)?;
        let server = Server::read(&document.server)?;
        if let Some(table) = document.policy.get(MOST_POLICIES) {
            return Err(Fault::at(table.span(), format!("there are more than {MOST_POLICIES} policies: join some")));
        }
        refuse_repeats(&document.policy, text)?;
        let policies = document.policy.iter().map(|table| read_policy(table, &server));
        let policies = policies.collect::<Result<_, _>>()?;
        Ok(Self { policies, server })
    }
}

/// Policies that share a name could share their counters.
fn refuse_repeats(tables: &[Spanned<PolicyTable>], text: &str) -> Result<(), Fault> {
    let mut seen = HashMap::new();
    for name in tables.iter().filter_map(|table| table.get_ref().name.as_ref()) {
        if let Some(first) = seen.insert(name.get_ref(), name) {
            let line = line_of(first.span().start, text.as_bytes());
            let message = format!("policy name {:?} is taken on line {line}: give each its own", name.get_ref());
            return Err(Fault::at(name.span(), message));
        }
    }
    Ok(())
}
