//! What is measured, and where the figures go.

use std::path::PathBuf;

use crate::effort::Effort;

pub(super) struct Options {
    pub(super) quick: bool,
    pub(super) effort: Effort,
    /// Keys in memory, from few to many.
    pub(super) keys_in_memory: Vec<usize>,
    /// Keys on Redis, likewise.
    pub(super) keys_on_redis: Vec<usize>,
    /// A file for the figures.
    pub(super) out: Option<PathBuf>,
}

impl Options {
    pub(super) fn of(flags: &[String]) -> Self {
        let (mut quick, mut out) = (false, None);
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match flag.as_str() {
                "--quick" => quick = true,
                "--out" => out = Some(PathBuf::from(flags.next().unwrap_or_else(|| crate::usage()))),
                _ => crate::usage(),
            }
        }
        let powers = |most: u32| (2..=most).map(|power| 10_usize.pow(power)).collect();
        Self {
            quick,
            effort: if quick { Effort::QUICK } else { Effort::FULL },
            keys_in_memory: powers(if quick { 6 } else { 7 }),
            keys_on_redis: powers(if quick { 5 } else { 7 }),
            out,
        }
    }
}
