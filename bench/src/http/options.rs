//! What is asked for on the command line.

use std::path::PathBuf;

use super::Side;

pub(crate) struct Options {
    pub(crate) connections: u32,
    pub(crate) rounds: u32,
    /// Of one side in one round.
    pub(crate) seconds: u32,
    pub(super) redis_cell: bool,
    pub(super) tower_rate_limiter: bool,
    /// Where counts of instructions are written to, and where those of before are.
    pub(super) save: Option<PathBuf>,
    pub(super) against: Option<PathBuf>,
    /// Where figures are written to, for pictures.
    pub(super) out: Option<PathBuf>,
    names: Vec<String>,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            connections: 64,
            rounds: 7,
            seconds: 2,
            redis_cell: false,
            tower_rate_limiter: false,
            save: None,
            against: None,
            out: None,
            names: Vec::new(),
        };
        while let Some(flag) = arguments.next() {
            match &*flag {
                "--connections" => options.connections = number(&flag, arguments.next().as_deref())?,
                "--rounds" => options.rounds = number(&flag, arguments.next().as_deref())?,
                "--seconds" => options.seconds = number(&flag, arguments.next().as_deref())?,
                "--quick" => (options.rounds, options.seconds) = (3, 1),
                "--redis-cell" => options.redis_cell = true,
                "--tower-rate-limiter" => options.tower_rate_limiter = true,
                "--save" => options.save = arguments.next().map(PathBuf::from),
                "--against" => options.against = arguments.next().map(PathBuf::from),
                "--out" => options.out = arguments.next().map(PathBuf::from),
                "--sides" => options.names.extend(arguments.next().unwrap_or_default().split(',').map(str::to_owned)),
                _ => return Err(format!("unknown argument {flag:?}: the options are named in bench/src/http.rs")),
            }
        }
        Ok(options)
    }

    /// The sides that are asked for, and the one all are compared to before them.
    pub(super) fn choose(&self, sides: Vec<Side>) -> Result<Vec<Side>, String> {
        if let Some(unknown) = self.names.iter().find(|name| !sides.iter().any(|side| side.name == **name)) {
            let known: Vec<_> = sides.iter().map(|side| side.name).collect();
            return Err(format!("no side is named {unknown:?}, but {}", known.join(", ")));
        }
        Ok(sides.into_iter().filter(|side| side.name == "none" || self.wants(side)).collect())
    }

    fn wants(&self, side: &Side) -> bool {
        let built = match side.name {
            "tower-redis-cell" => self.redis_cell,
            "tower-rate-limiter" => self.tower_rate_limiter,
            _ => true,
        };
        built && (self.names.is_empty() || self.names.iter().any(|name| side.name == name))
    }
}

fn number(flag: &str, value: Option<&str>) -> Result<u32, String> {
    let number = value.and_then(|value| value.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| format!("{flag} takes a number above 0, not {value:?}"))
}
