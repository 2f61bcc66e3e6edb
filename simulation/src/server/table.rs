//! Which commands there are.

/// Where the keys of a command are among its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// As many as the second argument says, behind it.
    Counted,
}

/// A command, or a subcommand of a container.
#[derive(Debug)]
pub(super) struct Spec {
    /// Lower-case; a subcommand's has its container and `|` before it.
    pub(super) name: &'static str,
    /// How many words it has, its name counted, or at least has where negative.
    arity: i8,
    pub(super) keys: Keys,
    flags: u8,
}

const WRITES: u8 = 1;
const GROWS: u8 = 2;
const LOADING: u8 = 4;
const ALWAYS: u8 = 8;
const NO_SCRIPT: u8 = 16;

const fn spec(name: &'static str, arity: i8, keys: Keys, flags: u8) -> Spec {
    Spec { name, arity, keys, flags }
}

/// Those that are called most come first.
static COMMANDS: [Spec; 26] = [
    spec("evalsha", -3, Keys::Counted, NO_SCRIPT),
    spec("eval", -3, Keys::Counted, NO_SCRIPT),
    spec("mget", -2, Keys::All, 0),
    spec("set", -3, Keys::First, WRITES | GROWS),
    spec("setrange", 4, Keys::First, WRITES | GROWS),
    spec("time", 1, Keys::None, LOADING),
    spec("get", 2, Keys::First, 0),
    spec("del", -2, Keys::All, WRITES),
    spec("ping", 1, Keys::None, 0),
    spec("asking", 1, Keys::None, 0),
    spec("script|load", 3, Keys::None, NO_SCRIPT),
    spec("script|flush", -2, Keys::None, NO_SCRIPT),
    spec("cluster|slots", 2, Keys::None, 0),
    spec("auth", -2, Keys::None, NO_SCRIPT | LOADING | ALWAYS),
    spec("select", 2, Keys::None, LOADING),
    spec("exists", -2, Keys::All, 0),
    spec("pttl", 2, Keys::First, 0),
    spec("pexpire", 3, Keys::First, WRITES),
    spec("hmget", -3, Keys::First, 0),
    spec("hincrby", 4, Keys::First, WRITES | GROWS),
    spec("hset", -4, Keys::First, WRITES | GROWS),
    spec("hlen", 2, Keys::First, 0),
    spec("flushall", -1, Keys::None, WRITES),
    spec("script", -2, Keys::None, 0),
    spec("client", -2, Keys::None, 0),
    spec("cluster", -2, Keys::None, 0),
];

/// What a command or a subcommand is; the error if there is none, or it has too few or too many words.
pub(super) fn find(words: &[&[u8]]) -> Result<&'static Spec, String> {
    let found = COMMANDS.iter().find(|spec| spec.has_name(words[0])).ok_or("ERR unknown command")?;
    let spec = if found.is_container() && words.len() > 1 { found.subcommand(words[1])? } else { found };
    let (count, arity) = (words.len(), usize::from(spec.arity.unsigned_abs()));
    if count < arity || spec.arity > 0 && count > arity {
        return Err(format!("ERR wrong number of arguments for '{}' command", spec.name));
    }
    Ok(spec)
}

impl Spec {
    fn has_name(&self, name: &[u8]) -> bool {
        self.name.as_bytes().eq_ignore_ascii_case(name)
    }

    fn is_container(&self) -> bool {
        matches!(self.name, "script" | "client" | "cluster")
    }

    fn subcommand(&self, name: &[u8]) -> Result<&'static Self, String> {
        let is_it = |spec: &&Self| {
            let rest = spec.name.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('|'));
            rest.is_some_and(|rest| rest.as_bytes().eq_ignore_ascii_case(name))
        };
        COMMANDS.iter().find(is_it).ok_or_else(|| "ERR unknown subcommand".to_owned())
    }

    /// Whether it may change something.
    pub(super) fn writes(&self) -> bool {
        self.flags & WRITES != 0
    }

    /// Whether it may need memory.
    pub(super) fn grows(&self) -> bool {
        self.flags & GROWS != 0
    }

    /// Whether it is done while data are read from disk.
    pub(super) fn is_done_while_loading(&self) -> bool {
        self.flags & LOADING != 0
    }

    /// Whether it is done for who is not logged in, and while a script runs for too long.
    pub(super) fn is_always_done(&self) -> bool {
        self.flags & ALWAYS != 0
    }

    /// Whether scripts may call it.
    pub(super) fn is_for_scripts(&self) -> bool {
        self.flags & NO_SCRIPT == 0
    }
}
