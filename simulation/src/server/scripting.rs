//! Commands about scripts and libraries.

use super::fault::texts::{NO_SCRIPT, READ_ONLY};
use super::node::{integer, keys_and_args};
use super::reply::Reply;
use super::vm::{Called, Situation};
use super::{Node, ReadOnly, Session};

impl Node {
    pub(super) fn load_script(&mut self, source: &[u8]) -> Result<Reply, String> {
        let digest = sha1_smol::Sha1::from(source).digest();
        let (function, hash) = (self.vm.compile(source, digest.bytes())?, digest.to_string());
        let reply = Reply::text(&hash);
        self.scripts.insert(hash, function);
        Ok(reply)
    }

    /// `FUNCTION LOAD source`.
    pub(super) fn load_library(&mut self, source: &[u8]) -> Result<Reply, String> {
        let library = self.vm.load(source)?;
        if self.libraries.contains(&library.name) {
            return Err(format!("ERR Library '{}' already exists", library.name));
        }
        let reply = Reply::text(&library.name);
        self.libraries.insert(library.name);
        self.functions.extend(library.functions);
        Ok(reply)
    }

    /// `EVAL source count keys arguments`.
    pub(super) fn eval(&mut self, session: &Session, words: &[&[u8]], now_us: u64) -> Result<Reply, String> {
        let Reply::Bulk(hash) = self.load_script(words[1])? else { return Err(NO_SCRIPT.to_owned()) };
        self.call_script(session, &[&[words[0], &hash], &words[2..]].concat(), now_us)
    }

    /// `EVALSHA hash count keys arguments`.
    pub(super) fn call_script(&mut self, session: &Session, words: &[&[u8]], now_us: u64) -> Result<Reply, String> {
        let keys_and_args = keys_and_args(&words[2..])?;
        let hash = String::from_utf8_lossy(words[1]);
        let called = Called::Script(self.scripts.get(&*hash).ok_or(NO_SCRIPT)?.clone());
        self.call(&called, session, keys_and_args, now_us).map_err(|text| self.told(text, &hash))
    }

    /// `FCALL name count keys arguments`.
    pub(super) fn call_function(&mut self, session: &Session, words: &[&[u8]], now_us: u64) -> Result<Reply, String> {
        let function = self.function(words[1]).ok_or("ERR Function not found")?;
        let called = Called::Function(function.clone());
        integer(words[2]).map_err(|_| "ERR Bad number of keys provided")?;
        let name = String::from_utf8_lossy(words[1]);
        self.call(&called, session, keys_and_args(&words[2..])?, now_us).map_err(|text| self.told(text, &name))
    }

    fn call(
        &mut self,
        called: &Called,
        session: &Session,
        (keys, args): (&[&[u8]], &[&[u8]]),
        now_us: u64,
    ) -> Result<Reply, String> {
        let (read_only, out_of_memory) = (self.fault.read_only.is_some(), self.fault.out_of_memory);
        let situation = Situation { now_us, read_only, out_of_memory };
        self.vm.call(called, &mut self.databases[session.database], situation, keys, args)
    }

    /// How a node says why a script ended, but for its line.
    fn told(&self, text: String, name: &str) -> String {
        if self.fault.read_only == Some(ReadOnly::Old) && text == READ_ONLY {
            return format!("ERR Error running script (call to f_{name}): @user_script:2: @user_script: 2: -{text}");
        }
        format!("{text} script: {name}, on @user_script:2.")
    }
}
