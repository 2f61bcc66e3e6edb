//! Commands about scripts and libraries.

use super::arguments::{integer, keys_and_args};
use super::fault::texts::{NO_SCRIPT, READ_ONLY};
use super::lua::Failure;
use super::reply::Reply;
use super::vm::{Called, Situation};
use super::{Call, Entry, Node, ReadOnly, Session};

/// A script that was loaded.
#[derive(Debug)]
pub(super) struct Script {
    function: mlua::Function,
    /// Whether it adds reports to a tally, and decides nothing.
    is_ratio: bool,
}

/// What ends the source of a script that adds reports, and the name of such a function.
const RATIO: [&[u8]; 2] = [b"return ratio(KEYS, ARGV)\n", b"_ratio"];

impl Node {
    pub(super) fn load_script(&mut self, source: &[u8]) -> Result<Reply, String> {
        let digest = sha1_smol::Sha1::from(source).digest();
        let function = self.vm.compile(source, digest.bytes())?;
        let hash = digest.to_string();
        let reply = Reply::text(&hash);
        self.scripts.insert(hash, Script { function, is_ratio: source.ends_with(RATIO[0]) });
        Ok(reply)
    }

    pub(super) fn have_scripts(&self, hashes: &[&[u8]]) -> Reply {
        let has = |hash: &&[u8]| Reply::Integer(i64::from(self.script(hash).is_some()));
        Reply::Array(hashes.iter().map(has).collect())
    }

    fn script(&self, hash: &[u8]) -> Option<(&str, &Script)> {
        let hash = str::from_utf8(hash).ok()?;
        let found = self.scripts.get_key_value(hash);
        let found = found.or_else(|| self.scripts.get_key_value(&hash.to_ascii_lowercase()));
        found.map(|(hash, script)| (&**hash, script))
    }

    /// `FUNCTION LOAD [REPLACE] source`.
    pub(super) fn load_library(&mut self, words: &[&[u8]]) -> Result<Reply, String> {
        let (options, source) = (&words[2..words.len() - 1], words[words.len() - 1]);
        let replace = !options.is_empty();
        if let Some(other) = options.iter().find(|option| !option.eq_ignore_ascii_case(b"REPLACE")) {
            return Err(format!("ERR Unknown option given: {}", String::from_utf8_lossy(other)));
        }
        let library = self.vm.load(source)?;
        if !replace && self.libraries.contains(&library.name) {
            return Err(format!("ERR Library '{}' already exists", library.name));
        }
        let reply = Reply::text(&library.name);
        self.libraries.insert(library.name);
        self.functions.extend(library.functions);
        Ok(reply)
    }

    /// `EVAL source count keys arguments`.
    pub(super) fn eval(&mut self, session: &Session, words: &[&[u8]], now_us: u64) -> Result<Reply, String> {
        keys_and_args(&words[2..])?;
        let hash = sha1_smol::Sha1::from(words[1]).digest().to_string();
        if !self.scripts.contains_key(&hash) {
            self.load_script(words[1])?;
        }
        let mut call = words.to_vec();
        call[1] = hash.as_bytes();
        self.call_script(session, &call, now_us)
    }

    /// `EVALSHA hash count keys arguments`.
    pub(super) fn call_script(&mut self, session: &Session, words: &[&[u8]], now_us: u64) -> Result<Reply, String> {
        if words[1].len() != 40 {
            return Err(NO_SCRIPT.to_owned());
        }
        let (keys, args) = keys_and_args(&words[2..])?;
        let (hash, script) = self.script(words[1]).ok_or(NO_SCRIPT)?;
        let (hash, called, is_ratio) = (hash.to_owned(), Called::Script(script.function.clone()), script.is_ratio);
        let result = self.call((&called, is_ratio), session, (keys, args), now_us);
        result.map_err(|failure| self.told(&failure, &hash))
    }

    /// `FCALL name count keys arguments`.
    pub(super) fn call_function(&mut self, session: &Session, words: &[&[u8]], now_us: u64) -> Result<Reply, String> {
        let function = self.function(words[1]).ok_or("ERR Function not found")?;
        let called = Called::Function(function.clone());
        integer(words[2]).map_err(|_| "ERR Bad number of keys provided")?;
        let (keys, args) = keys_and_args(&words[2..])?;
        let result = self.call((&called, words[1].ends_with(RATIO[1])), session, (keys, args), now_us);
        result.map_err(|failure| self.told(&failure, &String::from_utf8_lossy(words[1])))
    }

    fn call(
        &mut self,
        (called, is_ratio): (&Called, bool),
        session: &Session,
        (keys, args): (&[&[u8]], &[&[u8]]),
        now_us: u64,
    ) -> Result<Reply, Failure> {
        let Self { fault, databases, vm, calls, .. } = self;
        let (read_only, out_of_memory) = (fault.read_only.is_some(), fault.out_of_memory);
        let situation = Situation { now_us, read_only, out_of_memory };
        let reply = vm.call(called, &mut databases[session.database], situation, keys, args)?;
        if let (Reply::Bulk(bytes), [_, _]) = (&reply, args) {
            let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
            let entry = if is_ratio { Entry::Ratio } else { Entry::of(args[1]) };
            let (keys, args) = (owned(keys), owned(args));
            calls.push(Call { at_us: now_us, entry, keys, args, reply: bytes.clone() });
        }
        Ok(reply)
    }

    /// How a node tells why a script ended.
    fn told(&self, Failure { text, place }: &Failure, name: &str) -> String {
        let Some((chunk, line)) = place else { return text.clone() };
        if self.fault.read_only == Some(ReadOnly::Old) && text == READ_ONLY {
            return format!("ERR Error running script (call to f_{name}): {chunk}:{line}: {chunk}: {line}: -{text}");
        }
        format!("{text} script: {name}, on {chunk}:{line}.")
    }
}
