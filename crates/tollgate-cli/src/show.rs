use std::array;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tollgate::{Decision, Policy};
use tollgate_admin::{Entry, PolicyState, TopKey};

use crate::args::Of;

/// Whole seconds, rounded up.
fn time(time: Duration) -> String {
    let is_part = time.subsec_nanos() > 0;
    humantime::format_duration(Duration::from_secs(time.as_secs() + u64::from(is_part))).to_string()
}

/// Whoever writes to Redis must not reach the terminal: escapes control characters, and those that reorder text.
pub(crate) fn escaped(text: &str) -> String {
    let reorders =
        |char| matches!(char, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |char: char| match char {
        _ if char.is_control() || reorders(char) => char.escape_default().to_string(),
        _ => char.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Prints for people, or as JSON.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    pub(crate) fn policies(self, policies: &[PolicyState]) {
        let window = |policy: &PolicyState| match &policy.calendar {
            Some(calendar) => calendar.clone(),
            None => format!("{:?}", Duration::from_micros(policy.window_us)),
        };
        let row = |policy: &PolicyState| {
            [
                policy.layer.clone(),
                policy.policy.clone(),
                format!("{} per {}", policy.limit, window(policy)),
                policy.algorithm.clone(),
                policy.key_kind.clone().unwrap_or_else(|| "-".to_owned()),
                policy.processes.to_string(),
                policy.breaker.clone(),
            ]
        };
        let header = ["layer", "policy", "limit", "algorithm", "keys", "processes", "breaker"];
        self.print(&policies, header, policies.iter().map(row));
    }

    pub(crate) fn top(self, keys: &[TopKey]) {
        let row =
            |one: &TopKey| [one.policy.clone(), one.key.clone(), one.denied.to_string(), one.requests.to_string()];
        self.print(keys, ["policy", "key", "denied", "requests"], keys.iter().map(row));
    }

    pub(crate) fn overrides(self, entries: &[Entry], now_ms: u64) {
        let row = |entry: &Entry| {
            let all = |text: &Option<String>| text.clone().unwrap_or_else(|| "all".to_owned());
            let effect = entry.effect.as_str().to_owned();
            let effect = match (entry.factor, entry.share) {
                (Some(factor), _) => format!("{effect} {factor}"),
                (_, Some(share)) => format!("{effect} {share}"),
                _ => effect,
            };
            let left = |until: u64| time(Duration::from_millis(until.saturating_sub(now_ms)));
            let left = entry.until_ms.map_or_else(|| "until undone".to_owned(), left);
            [effect, all(&entry.layer), all(&entry.policy), all(&entry.key), left]
        };
        self.print(&entries, ["effect", "layer", "policy", "key", "left"], entries.iter().map(row));
    }

    pub(crate) fn decision(self, of: &Of, decision: &Decision) {
        let row = |outcome: &tollgate::Outcome| {
            let wait = outcome.wait().map_or_else(|| "-".to_owned(), time);
            let state = match (outcome.banned_for(), outcome.is_allowed(), outcome.is_overridden()) {
                (Some(left), ..) => format!("banned for {}", time(left)),
                (_, false, _) => "denied by an override".to_owned(),
                (_, _, true) => "overridden".to_owned(),
                _ => "-".to_owned(),
            };
            [
                outcome.policy().to_owned(),
                outcome.key().to_string(),
                format!("{} of {}", outcome.remaining(), outcome.limit()),
                wait,
                time(outcome.reset_after()),
                state,
            ]
        };
        let [left, next, full] = ["-"; 3].map(str::to_owned);
        let exempt = [of.policy.clone(), of.key.clone(), left, next, full, "exempt or off by an override".to_owned()];
        let exempt = decision.outcomes().is_empty().then_some(exempt);
        let rows = decision.outcomes().iter().map(row).chain(exempt);
        self.print(decision, ["policy", "key", "left", "next in", "full in", "state"], rows);
    }

    pub(crate) fn changed(self, count: usize) {
        if self.json {
            println!("{}", json!({ "changed": count }));
        } else {
            println!("{}", if count == 0 { "nothing to change" } else { "done" });
        }
    }

    pub(crate) fn checked(self, policies: &[Policy]) {
        let row = |policy: &Policy| [policy.name().to_owned(), policy.quota().to_string()];
        let names: Vec<&str> = policies.iter().map(Policy::name).collect();
        self.print(&json!({ "policies": names }), ["policy", "quota"], policies.iter().map(row));
    }

    fn print<const N: usize>(
        self,
        value: &(impl Serialize + ?Sized),
        header: [&str; N],
        rows: impl Iterator<Item = [String; N]>,
    ) {
        if self.json {
            println!("{}", serde_json::to_string(value).expect("texts and numbers are JSON"));
            return;
        }
        let rows: Vec<[String; N]> =
            std::iter::once(header.map(str::to_owned)).chain(rows).map(|row| row.map(|cell| escaped(&cell))).collect();
        let widths: [usize; N] = array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
        for row in rows {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
    }
}
