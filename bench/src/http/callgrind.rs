//! What the process of a side executes for a request, by callgrind: neither the kernel nor other processes.
//!
//! Callgrind counts a process from its start to its end, so a side is served twice, and its requests are those that the
//! second load has more than the first.

use std::collections::HashMap;
use std::fs;

use super::process::Process;
use super::redis::Redis;
use super::requests;
use super::sides::Side;

/// Two loads of one side. The smaller one is long enough for what only first requests do.
#[derive(Clone, Copy)]
pub(super) struct Loads {
    pub(super) connections: u32,
    pub(super) first: u32,
    pub(super) counted: u32,
}

impl Loads {
    /// The profiles of both.
    pub(super) async fn profiles(self, side: &Side) -> Result<[Profile; 2], String> {
        let Self { connections, first, counted } = self;
        Ok([profile(side, connections, first).await?, profile(side, connections, first + counted).await?])
    }
}

/// What callgrind wrote.
pub(super) struct Profile(String);

/// A function, and the file it is in.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Function {
    pub(super) file: String,
    pub(super) name: String,
}

async fn profile(side: &Side, connections: u32, requests: u32) -> Result<Profile, String> {
    let path = std::env::temp_dir().join(format!("tollgate-bench-{}-{}.callgrind", std::process::id(), side.name));
    let redis = Redis::start(side.counters).await?;
    let (process, address) = Process::serve_counted(side, &redis.urls(), &path)?;
    requests::send(side, address, connections, requests)?;
    process.finish()?;
    let text = fs::read_to_string(&path).map_err(|fault| format!("{}: {fault}", path.display()));
    let _ = fs::remove_file(&path);
    text.map(Profile)
}

impl Profile {
    /// All instructions of the process.
    pub(super) fn instructions(&self) -> Result<f64, String> {
        let total = self.0.lines().find_map(|line| line.strip_prefix("totals: "));
        total.and_then(|total| total.trim().parse().ok()).ok_or_else(|| "a profile without a total".to_owned())
    }

    /// How often each function was called.
    pub(super) fn calls(&self) -> HashMap<Function, u64> {
        let (mut files, mut names) = (HashMap::new(), HashMap::new());
        let (mut file, mut callee) = ("", "");
        let (mut file_of, mut calls_of) = (HashMap::new(), HashMap::<_, u64>::new());
        for line in self.0.lines() {
            let Some((field, value)) = line.split_once('=') else { continue };
            match field {
                "fl" => file = named(&mut files, value),
                "fi" | "fe" | "cfi" | "cfl" => drop(named(&mut files, value)),
                "fn" => drop(file_of.insert(named(&mut names, value), file)),
                "cfn" => callee = named(&mut names, value),
                "calls" => {
                    let calls: u64 = value.split(' ').next().and_then(|calls| calls.parse().ok()).unwrap_or_default();
                    *calls_of.entry(callee).or_default() += calls;
                }
                _ => {}
            }
        }
        let function =
            |name: &str| Function { file: (*file_of.get(name).unwrap_or(&"")).to_owned(), name: name.to_owned() };
        calls_of.into_iter().map(|(name, calls)| (function(name), calls)).collect()
    }
}

/// Callgrind writes a name once, after a number in parentheses, and from then on the number.
fn named<'a>(names: &mut HashMap<&'a str, &'a str>, value: &'a str) -> &'a str {
    match value.split_once(' ') {
        Some((number, name)) if number.starts_with('(') => {
            names.insert(number, name);
            name
        }
        _ => names.get(value).copied().unwrap_or(value),
    }
}

#[cfg(test)]
mod tests {
    use super::{Function, Profile};

    const TEXT: &str = "\
version: 1
fl=(1) /src/lib.rs
fn=(1) a
3 10
cfi=(2) /src/other.rs
cfn=(2) b
calls=2 7
4 30
cfn=(3) c
calls=1 9
5 8

fl=(2)
fn=(2)
7 20
cfi=(1)
cfn=(3)
calls=4 9
8 10

fl=(1)
fn=(3)
9 18
totals: 48
";

    #[test]
    fn a_profile_has_a_total_and_the_calls_of_each_function() {
        let profile = Profile(TEXT.to_owned());
        assert!(profile.instructions().is_ok_and(|count| (count - 48.0).abs() < 0.1));
        let calls = profile.calls();
        let of = |file: &str, name: &str| calls.get(&Function { file: file.to_owned(), name: name.to_owned() });
        assert_eq!((of("/src/other.rs", "b"), of("/src/lib.rs", "c"), calls.len()), (Some(&2), Some(&5), 2));
    }
}
