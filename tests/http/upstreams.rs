//! What clients receive where an upstream of another kind, or of an older draft, sends headers of a limit of its own:
//! never more than the stricter of both.

use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tollgate::{RateLimitHeaders, RateLimitLayer};
use wiremock::ResponseTemplate;

use super::proxy::{Proxy, get, per_peer, upstream};

type Lines<'a> = [(&'a str, &'a str)];

/// What others send that leave 4 of 10 units, for 7 s or longer.
const FORMS: [(&str, &Lines<'_>); 10] = [
    ("drafts 00 to 02", &[("ratelimit-limit", "10, 10;w=60"), ("ratelimit-remaining", "4"), ("ratelimit-reset", "7")]),
    (
        "drafts 03 to 06, draft-6 of express-rate-limit",
        &[
            ("ratelimit-policy", "10;w=60"),
            ("ratelimit-limit", "10"),
            ("ratelimit-remaining", "4"),
            ("ratelimit-reset", "7"),
        ],
    ),
    (
        "draft 07, draft-7 of express-rate-limit",
        &[("ratelimit-policy", "10;w=60"), ("ratelimit", "limit=10, remaining=4, reset=7")],
    ),
    ("draft 08", &[("ratelimit-policy", "default;q=10;w=60"), ("ratelimit", "default;r=4;t=7")]),
    ("draft 08 with X", &[("x-ratelimit-policy", "default;q=10;w=60"), ("x-ratelimit", "default;r=4;t=7")]),
    (
        "Kong",
        &[
            ("x-ratelimit-limit-minute", "10"),
            ("x-ratelimit-remaining-minute", "4"),
            ("x-ratelimit-limit-hour", "900"),
            ("x-ratelimit-remaining-hour", "800"),
            ("ratelimit-limit", "10"),
            ("ratelimit-remaining", "4"),
            ("ratelimit-reset", "7"),
        ],
    ),
    ("Kong before 2.0", &[("x-ratelimit-limit-minute", "10"), ("x-ratelimit-remaining-minute", "4")]),
    (
        "Envoy",
        &[
            ("x-ratelimit-limit", "10, 10;w=60;name=\"a\", 900;w=3600"),
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset", "7"),
        ],
    ),
    (
        "GitHub",
        &[
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset", "1900000000"),
            ("x-ratelimit-used", "6"),
            ("x-ratelimit-resource", "core"),
        ],
    ),
    (
        "several lines",
        &[("x-rate-limit-limit", "900"), ("x-rate-limit-remaining", "800"), ("x-rate-limit-remaining", "4")],
    ),
];

/// The headers of limits that a client receives of an upstream behind a layer, sorted.
async fn behind(layer: RateLimitLayer, status: u16, lines: &Lines<'_>) -> Vec<(String, String)> {
    let answer = ResponseTemplate::new(status);
    let answer = lines.iter().fold(answer, |answer, (name, value)| answer.append_header(*name, *value));
    let upstream = upstream(answer, 1).await;
    let proxy = Proxy::start(*upstream.address(), layer).await;
    limits(&get(&proxy, "/").await.headers)
}

fn limits(headers: &HeaderMap) -> Vec<(String, String)> {
    let lines = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()));
    sorted(lines.filter(|(name, _)| name.contains("rate")))
}

fn sorted(lines: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

fn owned(lines: &Lines<'_>) -> Vec<(String, String)> {
    sorted(lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

/// What is left of our own lines without the time of the reset.
fn ours(left: u64) -> Vec<(String, String)> {
    let (limit, wait) = (left + 1, left * 3_600 / (left + 1));
    owned(&[
        ("ratelimit", &format!("\"ip\";r={left};t={wait}")),
        ("ratelimit-policy", &format!("\"ip\";q={limit};w=3600")),
        ("x-ratelimit-limit", &limit.to_string()),
        ("x-ratelimit-remaining", &left.to_string()),
    ])
}

fn without(name: &str, mut lines: Vec<(String, String)>) -> Vec<(String, String)> {
    lines.retain(|(found, _)| found != name);
    lines
}

#[tokio::test]
async fn an_upstream_of_any_form_that_is_stricter_is_the_only_one_that_says_what_is_left() {
    for (form, theirs) in FORMS {
        let found = behind(per_peer(100), 200, theirs).await;
        // Our quota may stand beside theirs, if that is in another field: it does not say what is left.
        let has_policy = theirs.iter().any(|(name, _)| *name == "ratelimit-policy" || *name == "ratelimit");
        let found = if has_policy { found } else { without("ratelimit-policy", found) };
        assert_eq!(found, owned(theirs), "{form}");
    }
}

#[tokio::test]
async fn a_layer_that_is_stricter_leaves_no_line_of_another_form() {
    for (form, theirs) in FORMS {
        let found = behind(per_peer(3), 200, theirs).await;
        assert_eq!(without("x-ratelimit-reset", found), ours(2), "{form}");
    }
}

#[tokio::test]
async fn a_set_that_the_layer_does_not_write_promises_no_more_than_the_one_that_it_writes() {
    for (form, theirs) in FORMS {
        let ietf = behind(per_peer(3).headers(RateLimitHeaders::ietf()), 200, theirs).await;
        assert_eq!(ietf, ours(2)[..2], "{form}");
        let legacy = behind(per_peer(3).headers(RateLimitHeaders::legacy()), 200, theirs).await;
        assert_eq!(without("x-ratelimit-reset", legacy), ours(2)[2..], "{form}");
    }
    let this_draft = [("ratelimit", "\"up\";r=4;t=7")];
    let legacy = behind(per_peer(3).headers(RateLimitHeaders::legacy()), 200, &this_draft).await;
    assert_eq!(without("x-ratelimit-reset", legacy), ours(2)[2..]);
}

#[tokio::test]
async fn members_of_this_draft_are_merged_with_the_stricter_one_first() {
    // As express-rate-limit sends it with draft-8.
    let theirs =
        [("ratelimit-policy", "\"10-in-1min\"; q=10; w=60; pk=:YWJj:"), ("ratelimit", "\"10-in-1min\"; r=4; t=7")];
    for (limit, expected) in
        [(100, "\"10-in-1min\"; r=4; t=7, \"ip\";r=99;t=3564"), (3, "\"ip\";r=2;t=2400, \"10-in-1min\"; r=4; t=7")]
    {
        let found = behind(per_peer(limit), 200, &theirs).await;
        assert_eq!(found[0], ("ratelimit".into(), expected.into()));
        let policies = format!("\"10-in-1min\"; q=10; w=60; pk=:YWJj:, \"ip\";q={limit};w=3600");
        assert_eq!(found[1], ("ratelimit-policy".into(), policies));
    }
}

#[tokio::test]
async fn of_two_hops_with_a_policy_of_one_name_only_the_stricter_is_listed() {
    let theirs = [("ratelimit", "\"a\";r=9, \"ip\";r=4;t=7"), ("ratelimit-policy", "\"a\";q=9;w=1, \"ip\";q=10;w=60")];
    assert_eq!(behind(per_peer(100), 200, &theirs).await, owned(&theirs));
    assert_eq!(without("x-ratelimit-reset", behind(per_peer(3), 200, &theirs).await), ours(2));
}

#[tokio::test]
async fn of_as_many_units_the_later_reset_is_the_stricter_where_it_can_be_compared() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    // Of 5 units per hour, the one that was taken is back in 720 s.
    for (reset, is_ours) in [
        ("7", true),
        ("700", true),
        ("2000", false),
        (&(now + 7).to_string(), true),
        (&(now + 2_000).to_string(), false),
        (&(now * 1_000 + 7).to_string(), false),
        ("2038-01-01T00:00:00Z", false),
        ("soon", false),
    ] {
        let theirs = [("x-ratelimit-remaining", "4"), ("x-ratelimit-reset", reset)];
        let found = without("x-ratelimit-reset", behind(per_peer(5), 200, &theirs).await);
        let expected = if is_ours { ours(4) } else { owned(&theirs[..1]) };
        let found = if is_ours { found } else { without("ratelimit-policy", found) };
        assert_eq!(found, expected, "{reset}");
    }
}

#[tokio::test]
async fn numbers_that_cannot_be_compared_are_not_replaced() {
    let rows: [&Lines<'_>; 7] = [
        &[("ratelimit", "limit=10, remaining=-1, reset=7")],
        &[("ratelimit", "default;r=4.5")],
        &[("ratelimit-limit", "10"), ("ratelimit-reset", "7")],
        &[("ratelimit-limit", "10"), ("ratelimit-remaining", "")],
        &[("x-ratelimit-limit-minute", "10")],
        &[("x-ratelimit-remaining", "4/10")],
        &[("x-ratelimit-remaining-minute", "800"), ("x-ratelimit-remaining-hour", "a few")],
    ];
    for theirs in rows {
        let found = behind(per_peer(3), 200, theirs).await;
        assert_eq!(without("ratelimit-policy", found), owned(theirs));
    }
}

#[tokio::test]
async fn a_refusal_of_an_upstream_of_any_form_is_passed_on_as_it_is() {
    for (form, theirs) in FORMS {
        let found = behind(per_peer(3), 429, theirs).await;
        let has_policy = theirs.iter().any(|(name, _)| *name == "ratelimit-policy" || *name == "ratelimit");
        let found = if has_policy { found } else { without("ratelimit-policy", found) };
        assert_eq!(found, owned(theirs), "{form}");
    }
}

#[tokio::test]
async fn what_says_that_nothing_is_left_in_another_way_is_not_replaced_by_more() {
    let empty: [&Lines<'_>; 4] = [
        &[("x-ratelimit-remaining", "minute=0, hour=3")],
        &[("x-ratelimit-remaining", "Remaining=0")],
        &[("ratelimit", "Limit=10, Remaining=0")],
        &[("x-ratelimit-remaining", "unlimited")],
    ];
    for theirs in empty {
        let found = without("ratelimit-policy", behind(per_peer(50), 200, theirs).await);
        assert_eq!(found, owned(theirs));
    }
}

#[tokio::test]
async fn what_cannot_be_read_does_not_hide_a_limit_that_is_used_up() {
    for theirs in ["-1", "unlimited"] {
        let lines = [("x-ratelimit-remaining", theirs), ("ratelimit", "limit=1000, remaining=500, reset=9")];
        let found = without("x-ratelimit-reset", behind(per_peer(1), 200, &lines).await);
        let (rest, left): (Vec<_>, Vec<_>) = found.into_iter().partition(|(name, _)| !name.contains("remaining"));
        assert_eq!(left, owned(&[("x-ratelimit-remaining", "0")]), "{theirs}: {rest:?}");
        assert!(rest.iter().any(|(name, value)| name == "ratelimit" && value.starts_with("\"ip\";r=0;")), "{rest:?}");
    }
}
