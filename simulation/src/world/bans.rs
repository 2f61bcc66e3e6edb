//! What must be true of bans, as callers see it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use http_body::Body as _;
use tokio::time::Instant;
use tollgate::store::Mode;
use tollgate::{Ban, Decision, Outcome, Source};

use super::World;
use super::client::{Answer, Client, key_of_user};
use super::plan::BanPlan;
use super::record::Record;
use super::state::State;
use crate::ledger::{Event, Remaining, What};

/// How long strikes may be on their ways to a server, where nothing is wrong, and where something is.
const WAYS: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(7)];

/// What is known of bans.
#[derive(Debug, Default)]
pub(super) struct Bans {
    /// Those that began on a server.
    began: Vec<Began>,
    /// Of each user, until when it surely is banned, and when that was learned.
    known: BTreeMap<u8, (Instant, Instant)>,
    /// When bans were last lifted, or may have been since: then a ban from before may be over.
    lifted: Option<Instant>,
    /// Whether a lift may come at any time.
    may_be_lifted: bool,
}

/// A ban that began.
#[derive(Clone, Debug)]
struct Began {
    key: Arc<[u8]>,
    at: Instant,
    /// That of the request whose strike it was; 0 of a look.
    cost: u64,
    /// For how long its strikes may have been on their ways.
    ways: Duration,
}

impl BanPlan {
    /// The ban.
    pub(super) fn ban(self) -> Ban {
        let [within, time, most] = [self.within_ms, self.time_ms, self.most_ms].map(Duration::from_millis);
        let ban = Ban::new(self.after, within, time).backoff(f64::from(self.growth) / 100.0, most).of_verified_keys();
        if self.extends { ban.extending() } else { ban }
    }
}

/// The name of the ban of a counter.
pub(super) fn ban_of(key: &[u8]) -> Vec<u8> {
    let end = key.iter().rposition(|byte| *byte == b':').unwrap_or(key.len());
    [&key[..end], b":1b"].concat()
}

impl World {
    /// Lifts the bans of a user.
    pub(super) async fn lift(self, client: Client, user: u8) {
        let Some(key) = key_of_user(user) else { return };
        self.begins_to_reset("a ban that is lifted");
        self.lock().bans.is_lifted(user);
        let done = client.limiter.lift_ban(&key).await;
        let mut state = self.lock();
        state.resets -= 1;
        state.trace.say(format_args!("the ban of user {user} is lifted: {}", done.is_ok()));
        state.bans.is_lifted(user);
        state.bans.may_be_lifted |= done.is_err();
    }
}

impl Bans {
    fn is_lifted(&mut self, user: u8) {
        self.lifted = Some(Instant::now());
        self.known.remove(&user);
    }
}

impl State {
    /// Units that are left for a request: none if its key is banned.
    pub(super) fn room(&self, key: &[u8], at_us: u64) -> Remaining {
        let is_banned = self.ledger.remaining(&ban_of(key), at_us) == Some(0);
        if is_banned { Some(0) } else { self.ledger.remaining(key, at_us) }
    }

    /// Whether the ban of a check changed after it.
    pub(super) fn has_other_ban(&self, check: &Event) -> bool {
        let ban = ban_of(&check.key);
        let later = self.events.iter().rev().take_while(|event| *event != check);
        later.into_iter().any(|event| *event.key == *ban)
    }

    /// Whether the servers' clocks were ever set.
    fn is_clock_set(&self) -> bool {
        self.trace.met().keys().any(|met| met.starts_with("a clock that steps"))
    }

    /// Notes what a server did with a ban.
    pub(super) fn notes_ban(&mut self, event: &Event) {
        let What::Ban { cost, began, .. } = event.what else { return };
        if !began {
            return;
        }
        self.trace.meet("a ban");
        let is_longer = |began: &Began| began.key == event.key;
        if event.rule.ban.growth > 1_000 && self.bans.began.iter().any(is_longer) {
            self.trace.meet("a longer ban");
        }
        let ways = WAYS[usize::from(!self.is_calm() || !self.is_free())];
        self.bans.began.push(Began { key: Arc::clone(&event.key), at: Instant::now(), cost, ways });
    }

    /// The ban of a policy that an outcome is of.
    fn ban_of(&self, outcome: &Outcome) -> Option<BanPlan> {
        self.policies[0].ban.filter(|_| outcome.policy() == "first")
    }

    /// No ban lasts longer than the longest, and a client that waits for `Retry-After` waits for its end.
    pub(super) fn checks_banned(&mut self, record: &Record, answer: &Answer) {
        let Some(decision) = answer.extensions().get::<Decision>() else { return };
        for outcome in decision.outcomes() {
            let (Some(left), who) = (outcome.banned_for(), record.name()) else { continue };
            let Some(ban) = self.ban_of(outcome) else {
                return self.violate(format_args!("{who} is banned by {}, which has no ban", outcome.policy()));
            };
            // The time of a clock that stepped back counts as long as it may have been right when the ban began.
            let most = Duration::from_millis(ban.most_ms) * if self.is_clock_set() { 2 } else { 1 };
            let wait = outcome.retry_after();
            if outcome.is_allowed() || left > most || left.is_zero() || wait.is_some_and(|wait| wait < left) {
                return self.violate(format_args!("{who} is banned for {left:?} of {most:?}, and waits {wait:?}"));
            }
            if decision.source() == Source::DenyCache {
                self.trace.meet("a refusal from memory by a ban");
            }
            let is_since = self.bans.lifted.is_none_or(|lifted| lifted < record.began) && self.resets == 0;
            if decision.source() == Source::Store && outcome.mode() == Mode::Enforce && is_since {
                let (until, now) = (record.began + left, Instant::now());
                let known = self.bans.known.entry(record.user).or_insert((until, now));
                if until > known.0 {
                    *known = (until, now);
                }
            }
        }
    }

    /// A client that received a refusal by a ban is not served by the store before its end.
    pub(super) fn checks_barred(&mut self, record: &Record, decision: &Decision) {
        let Some((until, learned)) = self.bans.known.get(&record.user).copied() else { return };
        let is_sure = self.disturbed.is_none() && !self.bans.may_be_lifted && learned <= record.began;
        let mut barring = decision.outcomes().iter().filter(|outcome| outcome.mode() == Mode::Enforce);
        let has_ban = barring.any(|outcome| self.ban_of(outcome).is_some());
        let now = Instant::now();
        if is_sure && has_ban && now < until {
            self.violate(format_args!("{} is served, and banned for {:?} more", record.name(), until - now));
        }
    }

    /// The problem type of a refusal is that of a ban, or of the quota.
    pub(super) fn checks_problem(&mut self, place: usize, answer: Answer) {
        if self.policies[0].ban.is_none() || answer.status() != StatusCode::TOO_MANY_REQUESTS {
            return;
        }
        let is_banned = answer.extensions().get::<Decision>().is_some_and(Decision::is_banned);
        let (text, name) = (text_of(answer), self.records[place].name());
        let kind = if is_banned { "#abnormal-usage-detected\"" } else { "#quota-exceeded\"" };
        if !text.contains(kind) {
            self.violate(format_args!("{name} is refused as {text:?}, and banned: {is_banned}"));
        }
    }

    /// No ban begins without as many strikes within its window: refusals that callers saw, of any process, and those
    /// whose answers were lost.
    pub(super) fn wrong_of_bans(&self) -> Vec<String> {
        let Some(ban) = self.policies[0].ban.filter(|_| !self.is_clock_set()) else { return Vec::new() };
        let wrong = |began: &Began| {
            let strikes = self.strikes(began, ban);
            let (key, after) = (began.key.escape_ascii(), ban.after);
            (strikes < u64::from(after)).then(|| format!("{key} is banned after {strikes} strikes of {after}"))
        };
        self.bans.began.iter().filter_map(wrong).collect()
    }

    /// How many strikes there may have been within the window before a ban, with the one that began it.
    fn strikes(&self, began: &Began, ban: BanPlan) -> u64 {
        let within = Duration::from_millis(ban.within_ms) + began.ways;
        let of_each = self.policies.iter().filter(|policy| policy.ban.is_some()).count() as u64;
        let strikes = |record: &&Record| {
            let is_its = key_of_user(record.user).is_some_and(|key| {
                let name = format!("{{{}}}", key.as_str());
                began.key.windows(name.len()).any(|part| part == name.as_bytes())
            });
            let until = record.decided.or(record.ended);
            let is_then = record.began <= began.at && until.is_none_or(|until| until + within > began.at);
            is_its && is_then && (is_its_last(record, began) || may_be_strike(record))
        };
        of_each * self.records.iter().filter(strikes).count() as u64
    }
}

/// Whether a ban may have begun with a request: with its check, or with a look before that.
fn is_its_last(record: &Record, began: &Began) -> bool {
    let is_banned = record.decision.as_ref().is_some_and(|decision| decision.outcomes().iter().any(Outcome::is_banned));
    let until = record.decided.or(record.ended);
    record.cost == began.cost || began.cost == 0 && is_banned && until.is_none_or(|until| until >= began.at)
}

/// Whether a request is a strike as far as anybody can know: it does not fit, or its answer was lost.
fn may_be_strike(record: &Record) -> bool {
    let Some(decision) = &record.decision else { return true };
    let is_lost = record.has_left || record.is_excused;
    is_lost
        || matches!(decision.source(), Source::Fallback | Source::FailOpen)
        || decision
            .outcomes()
            .iter()
            .any(|outcome| outcome.policy() == "first" && !outcome.is_allowed() && !outcome.is_banned())
}

/// The whole body of an answer, which is there.
fn text_of(answer: Answer) -> String {
    let (mut body, mut text) = (Box::pin(answer.into_body()), Vec::new());
    let cx = &mut Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::as_mut(&mut body).poll_frame(cx) {
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    String::from_utf8_lossy(&text).into_owned()
}
