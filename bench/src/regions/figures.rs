//! What became of requests: by the second in each process, and as the figures of a side.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::LIMIT;
use super::plan::Plan;
use super::sites::Work;

/// One second of a process, or of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Second {
    /// Requests whose decision to admit them was made in this second.
    pub(super) admitted: u64,
    /// Requests sent in this second that the processes decided by their shares.
    by_share: u64,
    /// What decisions about requests took that were sent in this second, in microseconds: those that admitted them, and
    /// those that did not.
    allowed: Vec<u64>,
    refused: Vec<u64>,
}

impl Second {
    pub(super) fn note(&mut self, took: Duration, is_allowed: bool, by_share: bool) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if is_allowed { &mut self.allowed } else { &mut self.refused }.push(took);
        self.by_share += u64::from(by_share);
    }

    fn add(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.by_share += other.by_share;
        self.allowed.extend(other.allowed);
        self.refused.extend(other.refused);
    }

    /// Reads what [`Display`](fmt::Display) has written.
    pub(super) fn parse(line: &str) -> Self {
        let numbers = |part: &str| part.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        let [counts, allowed, refused] =
            [0, 1, 2].map(|part| -> Vec<u64> { numbers(line.split('|').nth(part).expect("a line has three parts")) });
        Self { admitted: counts[0], by_share: counts[1], allowed, refused }
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        write!(f, "{} {}|{}|{}", self.admitted, self.by_share, text(&self.allowed), text(&self.refused))
    }
}

/// The same seconds of several processes as one.
pub(super) fn merged(processes: Vec<Vec<Second>>) -> Vec<Second> {
    let mut all = vec![Second::default(); processes.first().map_or(0, Vec::len)];
    for process in processes {
        for (all, second) in all.iter_mut().zip(process) {
            all.add(second);
        }
    }
    all
}

/// One round of a side under one load.
pub(super) struct Figures {
    /// Admitted in the first four seconds, over the limit.
    pub(super) start: [f64; 4],
    pub(super) steady: Span,
    /// Calls a second, and of the busiest server; its microseconds a request; kB a second over the links.
    pub(super) calls: f64,
    pub(super) busiest_calls: f64,
    pub(super) busiest_us: f64,
    pub(super) link_kb: f64,
    /// While the link is cut, and after that.
    pub(super) cut: Option<[Span; 2]>,
}

/// Some seconds in a row.
pub(super) struct Span {
    /// Of requests that were admitted, in milliseconds.
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Of all requests.
    pub(super) longest_ms: f64,
    /// Admitted over the limit, and in the second with most.
    pub(super) admitted: f64,
    pub(super) worst: f64,
    /// The part of all requests that was refused, and that which was decided by shares.
    pub(super) refused: f64,
    pub(super) by_share: f64,
}

impl Figures {
    pub(super) fn new(plan: Plan, seconds: &[Second], work: Work) -> Self {
        let steady = &seconds[plan.steady()];
        let (length, sent) = (plan.seconds as f64, sent(steady));
        let span = |range: Range<usize>| Span::of(&seconds[range]);
        Self {
            start: [0, 1, 2, 3].map(|second| over_limit(seconds[second].admitted)),
            steady: Span::of(steady),
            calls: work.calls / length,
            busiest_calls: work.busiest_calls / length,
            busiest_us: work.busiest_us / sent,
            link_kb: work.link_bytes / length / 1e3,
            cut: (seconds.len() > plan.steady().end).then(|| [span(plan.cut()), span(plan.after())]),
        }
    }
}

impl Span {
    fn of(seconds: &[Second]) -> Self {
        let collect = |of: fn(&Second) -> &Vec<u64>| -> Vec<u64> {
            let mut all: Vec<u64> = seconds.iter().flat_map(of).copied().collect();
            all.sort_unstable();
            all
        };
        let (allowed, refused) = (collect(|second| &second.allowed), collect(|second| &second.refused));
        let at = |percent: usize| allowed.get(allowed.len() * percent / 100).map_or(0.0, |&us| us as f64 / 1e3);
        let longest = allowed.last().max(refused.last()).map_or(0.0, |&us| us as f64 / 1e3);
        let admitted = seconds.iter().map(|second| over_limit(second.admitted));
        let by_share: u64 = seconds.iter().map(|second| second.by_share).sum();
        Self {
            p50_ms: at(50),
            p99_ms: at(99),
            longest_ms: longest,
            admitted: admitted.clone().sum::<f64>() / seconds.len() as f64,
            worst: admitted.fold(0.0, f64::max),
            refused: refused.len() as f64 / sent(seconds),
            by_share: by_share as f64 / sent(seconds),
        }
    }
}

fn over_limit(admitted: u64) -> f64 {
    admitted as f64 / LIMIT as f64
}

fn sent(seconds: &[Second]) -> f64 {
    seconds.iter().map(|second| second.allowed.len() + second.refused.len()).sum::<usize>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(admitted: u64, allowed: &[u64], refused: &[u64]) -> Second {
        Second { admitted, by_share: 0, allowed: allowed.to_vec(), refused: refused.to_vec() }
    }

    #[test]
    fn a_second_is_read_as_it_was_written() {
        let mut second = second(7, &[1, 20_000], &[]);
        second.note(Duration::from_millis(3), false, true);
        assert_eq!(Second::parse(&second.to_string()), second);
        assert_eq!(Second::parse(&Second::default().to_string()), Second::default());
    }

    #[test]
    fn a_span_has_what_all_processes_did() {
        let process =
            |admitted| vec![second(admitted, &[1_000, 2_000, 3_000], &[9_000]), second(100, &[4_000; 97], &[])];
        let span = Span::of(&merged(vec![process(300), process(900)]));
        assert!((span.admitted - 0.7).abs() < 1e-9 && (span.worst - 1.2).abs() < 1e-9);
        assert!((span.p50_ms - 4.0).abs() < 1e-9 && (span.longest_ms - 9.0).abs() < 1e-9);
        assert!((span.refused - 2.0 / 202.0).abs() < 1e-9 && span.by_share < 1e-9);
    }
}
