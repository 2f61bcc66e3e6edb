//! Commands about scripts.

use super::fault::texts::{NO_SCRIPT, READ_ONLY};
use super::node::keys_and_args;
use super::reply::Reply;
use super::vm::Situation;
use super::{Node, ReadOnly, Session};

impl Node {
    pub(super) fn load_script(&mut self, source: &[u8]) -> Result<Reply, String> {
        let digest = sha1_smol::Sha1::from(source).digest();
        let (function, hash) = (self.vm.compile(source, digest.bytes())?, digest.to_string());
        let reply = Reply::text(&hash);
        self.scripts.insert(hash, function);
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
        let script = self.scripts.get(&*hash).ok_or(NO_SCRIPT)?.clone();
        self.call(&script, session, keys_and_args, now_us).map_err(|text| self.told(&text, &hash))
    }

    fn call(
        &mut self,
        script: &mlua::Function,
        session: &Session,
        (keys, args): (&[&[u8]], &[&[u8]]),
        now_us: u64,
    ) -> Result<Reply, String> {
        let (read_only, out_of_memory) = (self.fault.read_only.is_some(), self.fault.out_of_memory);
        let situation = Situation { now_us, read_only, out_of_memory };
        self.vm.call(script, &mut self.databases[session.database], situation, keys, args)
    }

    /// How a node says why a script ended, but for its line.
    fn told(&self, text: &str, name: &str) -> String {
        if self.fault.read_only == Some(ReadOnly::Old) && text == READ_ONLY {
            return format!("ERR Error running script (call to f_{name}): @user_script:2: @user_script: 2: -{text}");
        }
        format!("{text} script: {name}, on @user_script:2.")
    }
}
