//! What clients receive where a service inside of the layer, which may be of another kind or of an older draft, sends
//! headers of a limit of its own: never more than the stricter of both.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tower::Layer;

use crate::rig::{Text, expect, hello, layer, line, request, responding, send};

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

/// A layer that admits so many requests an hour.
fn hourly(limit: u64) -> RateLimitLayer {
    layer([Policy::new("ip", Quota::per_hour(limit))])
}

/// A layer that admits so many requests a minute.
fn ours(limit: u64) -> RateLimitLayer {
    layer([policy(limit)])
}

fn policy(limit: u64) -> Policy {
    Policy::new("ours", Quota::per_minute(limit))
}

/// The headers of a response with this status and these lines behind a layer.
#[track_caller]
fn through(layer: &RateLimitLayer, status: u16, lines: &Lines<'_>) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().expect("a name"), value.parse::<HeaderValue>().expect("a value"))
    };
    let headers = lines.iter().map(line).collect::<HeaderMap>();
    let service = layer.layer(responding(move |_| {
        let mut response = Response::new(Text::default());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        headers.clone_into(response.headers_mut());
        response
    }));
    send(&service, request()).headers().clone()
}

/// The headers of limits behind a layer, sorted.
#[track_caller]
fn behind(layer: &RateLimitLayer, status: u16, lines: &Lines<'_>) -> Vec<(String, String)> {
    let headers = through(layer, status, lines);
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

/// What an hourly limit says by itself when so many units are left, but for the time of the reset.
fn own(left: u64) -> Vec<(String, String)> {
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

#[test]
fn an_upstream_of_any_form_that_is_stricter_or_refuses_is_the_only_one_that_says_what_is_left() {
    for (form, theirs) in FORMS {
        for (limit, status) in [(100, 200), (3, 429)] {
            let found = behind(&hourly(limit), status, theirs);
            // Our quota may stand beside theirs, if that is in another field: it does not say what is left.
            let has_policy = theirs.iter().any(|(name, _)| *name == "ratelimit-policy" || *name == "ratelimit");
            let found = if has_policy { found } else { without("ratelimit-policy", found) };
            assert_eq!(found, owned(theirs), "{form}: {status}");
        }
    }
}

#[test]
fn a_layer_that_is_stricter_leaves_no_line_of_another_form_whichever_set_it_writes() {
    let this_draft = ("this draft", &[("ratelimit", "\"up\";r=4;t=7")] as &Lines<'_>);
    for (form, theirs) in FORMS.into_iter().chain([this_draft]) {
        let legacy = behind(&hourly(3).headers(RateLimitHeaders::legacy()), 200, theirs);
        assert_eq!(without("x-ratelimit-reset", legacy), own(2)[2..], "{form}");
        if form != this_draft.0 {
            let both = behind(&hourly(3), 200, theirs);
            assert_eq!(without("x-ratelimit-reset", both), own(2), "{form}");
            let ietf = behind(&hourly(3).headers(RateLimitHeaders::ietf()), 200, theirs);
            assert_eq!(ietf, own(2)[..2], "{form}");
        }
    }
}

#[test]
fn members_of_this_draft_are_merged_with_the_stricter_one_first() {
    // As express-rate-limit sends it with draft-8.
    let theirs =
        [("ratelimit-policy", "\"10-in-1min\"; q=10; w=60; pk=:YWJj:"), ("ratelimit", "\"10-in-1min\"; r=4; t=7")];
    for (limit, expected) in
        [(100, "\"10-in-1min\"; r=4; t=7, \"ip\";r=99;t=3564"), (3, "\"ip\";r=2;t=2400, \"10-in-1min\"; r=4; t=7")]
    {
        let policies = format!("\"10-in-1min\"; q=10; w=60; pk=:YWJj:, \"ip\";q={limit};w=3600");
        expect(&through(&hourly(limit), 200, &theirs), &[("ratelimit", expected), ("ratelimit-policy", &policies)]);
    }
}

#[test]
fn of_two_hops_with_a_policy_of_one_name_only_the_stricter_is_listed() {
    let theirs = [("ratelimit", "\"a\";r=9, \"ip\";r=4;t=7"), ("ratelimit-policy", "\"a\";q=9;w=1, \"ip\";q=10;w=60")];
    assert_eq!(behind(&hourly(100), 200, &theirs), owned(&theirs));
    assert_eq!(without("x-ratelimit-reset", behind(&hourly(3), 200, &theirs)), own(2));
}

#[test]
fn of_as_many_units_the_later_reset_is_the_stricter_where_it_can_be_compared() {
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
        let found = without("x-ratelimit-reset", behind(&hourly(5), 200, &theirs));
        let expected = if is_ours { own(4) } else { owned(&theirs[..1]) };
        let found = if is_ours { found } else { without("ratelimit-policy", found) };
        assert_eq!(found, expected, "{reset}");
    }
}

#[test]
fn numbers_that_cannot_be_compared_are_not_replaced_and_nothing_left_is_said_in_any_way() {
    let incomparable: [&Lines<'_>; 7] = [
        &[("ratelimit", "limit=10, remaining=-1, reset=7")],
        &[("ratelimit", "default;r=4.5")],
        &[("ratelimit-limit", "10"), ("ratelimit-reset", "7")],
        &[("ratelimit-limit", "10"), ("ratelimit-remaining", "")],
        &[("x-ratelimit-limit-minute", "10")],
        &[("x-ratelimit-remaining", "4/10")],
        &[("x-ratelimit-remaining-minute", "800"), ("x-ratelimit-remaining-hour", "a few")],
    ];
    let empty: [&Lines<'_>; 4] = [
        &[("x-ratelimit-remaining", "minute=0, hour=3")],
        &[("x-ratelimit-remaining", "Remaining=0")],
        &[("ratelimit", "Limit=10, Remaining=0")],
        &[("x-ratelimit-remaining", "unlimited")],
    ];
    for (limit, theirs) in incomparable.map(|theirs| (3, theirs)).into_iter().chain(empty.map(|theirs| (50, theirs))) {
        assert_eq!(without("ratelimit-policy", behind(&hourly(limit), 200, theirs)), owned(theirs));
    }
    // Nor do they hide a limit that is used up.
    for theirs in ["-1", "unlimited"] {
        let lines = [("x-ratelimit-remaining", theirs), ("ratelimit", "limit=1000, remaining=500, reset=9")];
        let found = through(&hourly(1), 200, &lines);
        expect(&found, &[("x-ratelimit-remaining", "0")]);
        assert!(line(&found, "ratelimit").starts_with("\"ip\";r=0;"), "{found:?}");
    }
}

const STRICT: &Lines<'_> = &[
    ("ratelimit-policy", "\"up\";q=5;w=60"),
    ("ratelimit", "\"up\";r=3;t=40"),
    ("x-ratelimit-limit", "5"),
    ("x-ratelimit-remaining", "3"),
    ("x-ratelimit-reset", "1900000000"),
];

/// As GitHub sends it.
const LEGACY: &Lines<'_> = &[
    ("x-ratelimit-limit", "5"),
    ("x-ratelimit-remaining", "3"),
    ("x-ratelimit-used", "2"),
    ("x-ratelimit-resource", "core"),
];

#[test]
fn the_stricter_of_two_layers_says_what_is_left_in_each_set() {
    let older: &Lines<'_> = &[("ratelimit", "limit=5, remaining=3, reset=40"), ("ratelimit-policy", "5;w=60")];
    let unreadable: &Lines<'_> =
        &[("x-ratelimit-remaining", "a few"), ("x-ratelimit-limit", "some"), ("x-ratelimit-reset", "soon")];
    let reset: &Lines<'_> = &[("x-ratelimit-limit", "5"), ("x-ratelimit-reset", "1900000000")];
    let slots: &Lines<'_> = &[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "60")];
    let others: &Lines<'_> = &[("content-type", "text/plain"), ("cache-control", "max-age=9"), ("x-other", "1")];
    let of_slots = || layer([Policy::new("streams", Quota::concurrency(3))]);
    // Our layer, what is inside, and what comes of it.
    let rows: [(RateLimitLayer, &Lines<'_>, &Lines<'_>); 16] = [
        (ours(100), STRICT, &STRICT[2..]),
        (ours(100), STRICT, &[("ratelimit-policy", "\"up\";q=5;w=60, \"ours\";q=100;w=60")]),
        (ours(100), STRICT, &[("ratelimit", "\"up\";r=3;t=40, \"ours\";r=99;t=60")]),
        (ours(2), STRICT, &[("ratelimit", "\"ours\";r=1;t=30, \"up\";r=3;t=40")]),
        (ours(2), STRICT, &[("x-ratelimit-limit", "2"), ("x-ratelimit-remaining", "1")]),
        (
            ours(11),
            &[("ratelimit", "\"a\";r=50;t=1"), ("ratelimit", "\"b\";r=1;t=1"), ("x-ratelimit-remaining", "1")],
            &[("ratelimit", "\"a\";r=50;t=1, \"b\";r=1;t=1, \"ours\";r=10;t=55"), ("x-ratelimit-remaining", "1")],
        ),
        (
            ours(11),
            &[("ratelimit", "\"a\";r=50;t=1"), ("x-ratelimit-remaining", "1")],
            &[("x-ratelimit-remaining", "1"), ("x-ratelimit-limit", "")],
        ),
        (ours(100), reset, reset),
        (ours(2), unreadable, unreadable),
        (ours(100).headers(RateLimitHeaders::legacy()), older, older),
        (layer([policy(100).unadvertised()]), older, older),
        (of_slots(), slots, &[("x-ratelimit-limit", "3"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "")]),
        (ours(100).headers(RateLimitHeaders::ietf()), LEGACY, LEGACY),
        (ours(2).headers(RateLimitHeaders::ietf()), &LEGACY[2..3], &LEGACY[2..3]),
        (
            ours(2),
            &[("ratelimit", ""), ("ratelimit-policy", " ")],
            &[("ratelimit", "\"ours\";r=1;t=30"), ("ratelimit-policy", "\"ours\";q=2;w=60")],
        ),
        (ours(2), others, others),
    ];
    for (place, (layer, inside, expected)) in rows.into_iter().enumerate() {
        eprintln!("row {place}: {inside:?}");
        expect(&through(&layer, 200, inside), expected);
    }
}

#[test]
fn a_stale_used_or_resource_of_an_upstream_goes_where_our_limit_is_told() {
    let rows: [&Lines<'_>; 3] = [
        &[("x-ratelimit-used", "77"), ("x-ratelimit-resource", "core")],
        &[("x-ratelimit-used", "77"), ("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "23")],
        &[("x-ratelimit-resource", "core"), ("ratelimit", "\"up\";r=50")],
    ];
    for theirs in rows {
        let headers = through(&ours(2), 200, theirs);
        expect(&headers, &[("x-ratelimit-limit", "2"), ("x-ratelimit-remaining", "1")]);
        expect(&headers, &[("x-ratelimit-used", ""), ("x-ratelimit-resource", "")]);
        let headers = through(&ours(2).headers(RateLimitHeaders::both().used().resource()), 200, theirs);
        expect(&headers, &[("x-ratelimit-used", "1"), ("x-ratelimit-resource", "ours")]);
    }
}

#[test]
#[cfg(feature = "merge-headers")]
fn a_field_that_is_not_of_this_draft_is_replaced_by_ours() {
    let expected = [("ratelimit", "\"ours\";r=1;t=30"), ("ratelimit-policy", "\"ours\";q=2;w=60")];
    for value in [
        "limit=5, remaining=3, reset=40",
        "5;w=60",
        "up;r=3;t=40",
        "\"up\";left=3",
        "\"up\";r=3;t=soon",
        "(\"up\");r=3",
        "\"up",
        "\"up\"\t;;",
    ] {
        for name in ["ratelimit", "ratelimit-policy"] {
            expect(&through(&ours(2), 200, &[(name, value)]), &expected);
        }
    }
    // It does not stop the stricter legacy set.
    let headers = through(&ours(2), 200, &[("ratelimit", "\"up"), ("x-ratelimit-remaining", "50")]);
    expect(&headers, &[expected[0], ("x-ratelimit-remaining", "1"), ("x-ratelimit-limit", "2")]);
}

#[test]
fn a_field_in_two_drafts_stays_or_goes_as_a_whole() {
    let fields = [
        ("ratelimit", "\"a\";r=9;t=1;more=1, old;r=7"),
        ("ratelimit", "limit=5, remaining=3"),
        ("ratelimit-policy", "100;w=60, \"a\";q=10;w=1"),
    ];
    let headers = through(&ours(100), 200, &fields);
    let lines = headers.get_all("ratelimit").iter().collect::<Vec<_>>();
    assert_eq!(lines, [fields[0].1, fields[1].1]);
    expect(&headers, &[fields[2], ("x-ratelimit-remaining", "")]);
    let headers = through(&ours(2), 200, &fields);
    expect(&headers, &[("ratelimit", "\"ours\";r=1;t=30"), ("ratelimit-policy", "\"ours\";q=2;w=60")]);
}

#[test]
fn responses_of_any_status_carry_the_fields_and_a_wait_of_an_upstream_is_kept_and_not_contradicted() {
    for status in [200, 201, 301, 304, 401, 403, 404, 429, 500, 503] {
        let headers = through(&ours(100), status, &[]);
        expect(&headers, &[("ratelimit", "\"ours\";r=99;t=60"), ("x-ratelimit-remaining", "99"), ("retry-after", "")]);
        expect(&through(&ours(2), status, &[("retry-after", "17")]), &[("retry-after", "17")]);
    }
    for field in [("retry-after", "17"), ("x-ratelimit-remaining", "0")] {
        let headers = through(&ours(100), 429, &[field]);
        expect(&headers, &[field, ("ratelimit", ""), ("x-ratelimit-limit", "")]);
        expect(&headers, &[("ratelimit-policy", "\"ours\";q=100;w=60")]);
    }
}

// Layers of this crate around each other.

#[test]
fn nested_layers_make_one_line_of_each_field() {
    for (inner, outer) in [(10, 20), (20, 10)] {
        let [inside, outside] = [("inner", inner), ("outer", outer)]
            .map(|(name, limit)| layer([Policy::new(name, Quota::per_minute(limit))]));
        let response = send(&outside.layer(inside.layer(hello())), request());
        let (first, last) = if inner < outer { ("inner", "outer") } else { ("outer", "inner") };
        expect(
            response.headers(),
            &[
                ("ratelimit", &format!("\"{first}\";r=9;t=54, \"{last}\";r=19;t=57")),
                ("ratelimit-policy", &format!("\"inner\";q={inner};w=60, \"outer\";q={outer};w=60")),
                ("x-ratelimit-limit", "10"),
                ("x-ratelimit-remaining", "9"),
            ],
        );
        assert_eq!(response.headers().get_all("x-ratelimit-reset").iter().count(), 1);
    }
}

#[test]
fn an_inner_layer_s_refusal_lists_only_what_it_violates_and_an_outer_one_s_is_its_own() {
    let all =
        [RateLimitHeaders::both(), RateLimitHeaders::ietf(), RateLimitHeaders::legacy(), RateLimitHeaders::none()];
    for headers in all {
        let inner = layer([Policy::new("inner", Quota::per_minute(1))]).headers(headers.clone());
        let service = layer([Policy::new("outer", Quota::per_hour(50))]).layer(inner.layer(hello()));
        send(&service, request());
        let response = send(&service, request());
        assert_eq!(response.status(), 429);
        let left = line(response.headers(), "ratelimit");
        assert!(left.is_empty() || left == "\"inner\";r=0;t=60", "{headers:?}: {left}");
        let remaining = line(response.headers(), "x-ratelimit-remaining");
        assert!(remaining.is_empty() || remaining == "0", "{headers:?}: {remaining}");
        assert!(line(response.headers(), "ratelimit-policy").ends_with("\"outer\";q=50;w=3600"));
        expect(response.headers(), &[("retry-after", "60")]);
    }
    let inner = layer([Policy::new("inner", Quota::per_minute(50))]);
    let service = layer([Policy::new("outer", Quota::per_minute(1))]).layer(inner.layer(hello()));
    send(&service, request());
    let rules = [("ratelimit", "\"outer\";r=0;t=60"), ("ratelimit-policy", "\"outer\";q=1;w=60")];
    expect(send(&service, request()).headers(), &rules);
}
