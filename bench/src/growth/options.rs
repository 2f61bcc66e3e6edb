//! What is measured, and where the figures go.

use crate::effort::Effort;

pub(super) struct Options {
    pub(super) effort: Effort,
    /// Keys in memory, from few to many.
    pub(super) keys_in_memory: Vec<usize>,
    /// Keys on Redis, likewise.
    pub(super) keys_on_redis: Vec<usize>,
    /// A file for the figures.
    pub(super) out: Option<String>,
}

impl Options {
    pub(super) fn of(flags: &[String]) -> Self {
        let (mut quick, mut large, mut out) = (false, false, None);
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match flag.as_str() {
                "--quick" => quick = true,
                "--large" => large = true,
                "--out" => out = Some(flags.next().unwrap_or_else(|| crate::usage()).clone()),
                _ => crate::usage(),
            }
        }
        let powers = |most: u32| (2..=most).map(|power| 10_usize.pow(power)).collect();
        Self {
            effort: if quick { Effort::QUICK } else { Effort::FULL },
            keys_in_memory: powers(if large { 7 } else { 6 }),
            keys_on_redis: powers(if quick { 5 } else { 6 }),
            out,
        }
    }
}
