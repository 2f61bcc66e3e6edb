//! What clients receive where a service inside of the layer, which may be of another kind or of an older draft, sends
//! headers of a limit of its own: never more than the stricter of both.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tower::Layer;

use crate::rig::{Text, expect, hello, layer, line, request, responding, send};

/// What others send that leave 4 of 10 units, for 7 s or longer.
const FORMS: [(&str, &str); 10] = [
    ("drafts 00 to 02", "ratelimit-limit: 10, 10;w=60\nratelimit-remaining: 4\nratelimit-reset: 7"),
    (
        "drafts 03 to 06, draft-6 of express-rate-limit",
        "ratelimit-policy: 10;w=60\nratelimit-limit: 10\nratelimit-remaining: 4\nratelimit-reset: 7",
    ),
    ("draft 07, draft-7 of express-rate-limit", "ratelimit-policy: 10;w=60\nratelimit: limit=10, remaining=4, reset=7"),
    ("draft 08", "ratelimit-policy: default;q=10;w=60\nratelimit: default;r=4;t=7"),
    ("draft 08 with X", "x-ratelimit-policy: default;q=10;w=60\nx-ratelimit: default;r=4;t=7"),
    (
        "Kong",
        "x-ratelimit-limit-minute: 10\nx-ratelimit-remaining-minute: 4\nx-ratelimit-limit-hour: 900\n\
         x-ratelimit-remaining-hour: 800\nratelimit-limit: 10\nratelimit-remaining: 4\nratelimit-reset: 7",
    ),
    ("Kong before 2.0", "x-ratelimit-limit-minute: 10\nx-ratelimit-remaining-minute: 4"),
    ("Envoy", "x-ratelimit-limit: 10, 10;w=60;name=\"a\", 900;w=3600\nx-ratelimit-remaining: 4\nx-ratelimit-reset: 7"),
    (
        "GitHub",
        "x-ratelimit-limit: 10\nx-ratelimit-remaining: 4\nx-ratelimit-reset: 1900000000\nx-ratelimit-used: 6\n\
         x-ratelimit-resource: core",
    ),
    ("several lines", "x-rate-limit-limit: 900\nx-rate-limit-remaining: 800\nx-rate-limit-remaining: 4"),
];

/// A layer that admits so many requests an hour.
fn ours(limit: u64) -> RateLimitLayer {
    layer([Policy::new("ours", Quota::per_hour(limit))]).headers(RateLimitHeaders::both().reset_in_seconds())
}

/// The name and the value of each of these lines.
fn fields(lines: &str) -> Vec<(&str, &str)> {
    lines.lines().map(|line| line.split_once(": ").expect("a header")).collect()
}

/// The headers of a response with this status and these lines behind a layer.
#[track_caller]
fn through(layer: &RateLimitLayer, status: u16, lines: &str) -> HeaderMap {
    let field = |(name, value): (&str, &str)| {
        (name.parse::<HeaderName>().expect("a name"), value.parse::<HeaderValue>().expect("a value"))
    };
    let headers: HeaderMap = fields(lines).into_iter().map(field).collect();
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
fn behind(layer: &RateLimitLayer, status: u16, lines: &str) -> String {
    let headers = through(layer, status, lines);
    let lines = headers.iter().filter(|(name, _)| name.as_str().contains("rate"));
    sorted(lines.map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))).collect())
}

fn sorted(mut lines: Vec<String>) -> String {
    lines.sort_unstable();
    lines.join("\n")
}

/// What is sent of an hourly limit: the one set of fields, and the other.
fn sets(left: u64) -> [String; 2] {
    let (limit, reset) = (left + 1, 3_600 / (left + 1));
    let wait = left * reset;
    [
        format!("ratelimit-policy: \"ours\";q={limit};w=3600\nratelimit: \"ours\";r={left};t={wait}"),
        format!("x-ratelimit-limit: {limit}\nx-ratelimit-remaining: {left}\nx-ratelimit-reset: {reset}"),
    ]
}

/// What is sent of theirs, which says what is left: our quota stands beside that, if it is in another field.
fn kept(theirs: &str, limit: u64) -> String {
    let mut lines: Vec<String> = theirs.lines().map(str::to_owned).collect();
    if !fields(theirs).iter().any(|(name, _)| ["ratelimit", "ratelimit-policy"].contains(name)) {
        lines.push(format!("ratelimit-policy: \"ours\";q={limit};w=3600"));
    }
    sorted(lines)
}

#[test]
fn an_upstream_of_any_form_that_is_stricter_or_refuses_is_the_only_one_that_says_what_is_left() {
    for (form, theirs) in FORMS {
        for (limit, status) in [(100, 200), (3, 429)] {
            for headers in [RateLimitHeaders::both(), RateLimitHeaders::ietf()] {
                let found = behind(&ours(limit).headers(headers), status, theirs);
                assert_eq!(found, kept(theirs, limit), "{form}: {status}");
            }
            let found = behind(&ours(limit).headers(RateLimitHeaders::legacy()), status, theirs);
            assert_eq!(found, sorted(theirs.lines().map(str::to_owned).collect()), "{form}: {status}");
        }
    }
}

#[test]
fn a_layer_that_is_stricter_leaves_no_line_of_another_form_whichever_set_it_writes() {
    let this_draft = ("this draft", "ratelimit: \"up\";r=4;t=7");
    let [ietf, legacy] = sets(2);
    for (form, theirs) in FORMS.into_iter().chain([this_draft]) {
        let headers = RateLimitHeaders::legacy().reset_in_seconds();
        assert_eq!(behind(&ours(3).headers(headers), 200, theirs), legacy, "{form}");
        if form != this_draft.0 {
            assert_eq!(behind(&ours(3), 200, theirs), format!("{ietf}\n{legacy}"), "{form}");
            assert_eq!(behind(&ours(3).headers(RateLimitHeaders::ietf()), 200, theirs), ietf, "{form}");
        }
    }
}

#[test]
fn members_of_this_draft_are_merged_with_the_stricter_one_first() {
    // As express-rate-limit sends it with draft-8.
    let theirs = "ratelimit-policy: \"10-in-1min\"; q=10; w=60; pk=:YWJj:\nratelimit: \"10-in-1min\"; r=4; t=7";
    for (limit, expected) in
        [(100, "\"10-in-1min\"; r=4; t=7, \"ours\";r=99;t=3564"), (3, "\"ours\";r=2;t=2400, \"10-in-1min\"; r=4; t=7")]
    {
        let policies = format!("\"10-in-1min\"; q=10; w=60; pk=:YWJj:, \"ours\";q={limit};w=3600");
        expect(&through(&ours(limit), 200, theirs), &[("ratelimit", expected), ("ratelimit-policy", &policies)]);
    }
}

#[test]
fn of_two_hops_with_a_policy_of_one_name_only_the_stricter_is_listed() {
    let theirs = "ratelimit-policy: \"a\";q=9;w=1, \"ours\";q=10;w=60\nratelimit: \"a\";r=9, \"ours\";r=4;t=7";
    assert_eq!(behind(&ours(100), 200, theirs), theirs);
    assert_eq!(behind(&ours(3), 200, theirs), sets(2).join("\n"));
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
        let theirs = format!("x-ratelimit-remaining: 4\nx-ratelimit-reset: {reset}");
        let expected = if is_ours { sets(4).join("\n") } else { kept(&theirs, 5) };
        assert_eq!(behind(&ours(5), 200, &theirs), expected, "{reset}");
    }
}

#[test]
fn numbers_that_cannot_be_compared_are_not_replaced_and_nothing_left_is_said_in_any_way() {
    let incomparable = [
        "ratelimit: limit=10, remaining=-1, reset=7",
        "ratelimit: default;r=4.5",
        "ratelimit-limit: 10\nratelimit-reset: 7",
        "ratelimit-limit: 10\nratelimit-remaining: ",
        "x-ratelimit-limit-minute: 10",
        "x-ratelimit-remaining: 4/10",
        "x-ratelimit-remaining-minute: 800\nx-ratelimit-remaining-hour: a few",
    ];
    let empty = [
        "x-ratelimit-remaining: minute=0, hour=3",
        "x-ratelimit-remaining: Remaining=0",
        "ratelimit: Limit=10, Remaining=0",
        "x-ratelimit-remaining: unlimited",
    ];
    for (limit, theirs) in incomparable.map(|theirs| (3, theirs)).into_iter().chain(empty.map(|theirs| (50, theirs))) {
        assert_eq!(behind(&ours(limit), 200, theirs), kept(theirs, limit));
    }
    // Nor do they hide a limit that is used up.
    for theirs in ["-1", "unlimited"] {
        let lines = format!("x-ratelimit-remaining: {theirs}\nratelimit: limit=1000, remaining=500, reset=9");
        let found = through(&ours(1), 200, &lines);
        expect(&found, &[("x-ratelimit-remaining", "0")]);
        assert!(line(&found, "ratelimit").starts_with("\"ours\";r=0;"), "{found:?}");
    }
}

const STRICT: &str = "x-ratelimit-limit: 5\nx-ratelimit-remaining: 3\nx-ratelimit-reset: 1900000000";

#[test]
fn the_stricter_of_two_layers_says_what_is_left_in_each_set() {
    let both = format!("ratelimit-policy: \"up\";q=5;w=60\nratelimit: \"up\";r=3;t=40\n{STRICT}");
    let merged =
        "ratelimit-policy: \"up\";q=5;w=60, \"ours\";q=100;w=3600\nratelimit: \"up\";r=3;t=40, \"ours\";r=99;t=3564";
    let older = "ratelimit: limit=5, remaining=3, reset=40\nratelimit-policy: 5;w=60";
    let streams = layer([Policy::new("streams", Quota::concurrency(3))]);
    let slots = "x-ratelimit-limit: 9\nx-ratelimit-remaining: 5\nx-ratelimit-reset: 60";
    let two_lines = "ratelimit: \"a\";r=50;t=1\nratelimit: \"b\";r=1;t=1\nx-ratelimit-remaining: 1";
    let joined = "ratelimit: \"a\";r=50;t=1, \"b\";r=1;t=1, \"ours\";r=10;t=3273\nx-ratelimit-remaining: 1";
    let others = "content-type: text/plain\ncache-control: max-age=9\nx-other: 1";
    for (layer, inside, expected) in [
        (ours(100), &*both, &*format!("{merged}\n{STRICT}")),
        (
            ours(2),
            &both,
            "ratelimit: \"ours\";r=1;t=1800, \"up\";r=3;t=40\nx-ratelimit-limit: 2\nx-ratelimit-remaining: 1",
        ),
        (ours(11), two_lines, joined),
        (ours(11), "ratelimit: \"a\";r=50\nx-ratelimit-remaining: 1", "x-ratelimit-remaining: 1\nx-ratelimit-limit: "),
        (layer([Policy::new("hidden", Quota::per_hour(100)).unadvertised()]), older, older),
        (streams, slots, "x-ratelimit-limit: 3\nx-ratelimit-remaining: 2\nx-ratelimit-reset: "),
        (ours(2).headers(RateLimitHeaders::ietf()), "x-ratelimit-used: 2", "x-ratelimit-used: 2"),
        (ours(2), "ratelimit: \nratelimit-policy: ", &sets(1)[0]),
        (ours(2), others, others),
    ] {
        eprintln!("{inside}");
        expect(&through(&layer, 200, inside), &fields(expected));
    }
}

#[test]
fn a_stale_used_or_resource_of_an_upstream_goes_where_our_limit_is_told() {
    for theirs in [
        "x-ratelimit-used: 77\nx-ratelimit-resource: core",
        "x-ratelimit-used: 77\nx-ratelimit-limit: 100\nx-ratelimit-remaining: 23",
        "x-ratelimit-resource: core\nratelimit: \"up\";r=50",
    ] {
        let headers = RateLimitHeaders::both().used().resource();
        for (layer, used, resource) in [(ours(2), "", ""), (ours(2).headers(headers), "1", "ours")] {
            let headers = through(&layer, 200, theirs);
            expect(&headers, &[("x-ratelimit-limit", "2"), ("x-ratelimit-remaining", "1")]);
            expect(&headers, &[("x-ratelimit-used", used), ("x-ratelimit-resource", resource)]);
        }
    }
}

#[test]
#[cfg(feature = "merge-headers")]
fn a_field_that_is_not_of_this_draft_is_replaced_by_ours() {
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
            expect(&through(&ours(2), 200, &format!("{name}: {value}")), &fields(&sets(1)[0]));
        }
    }
    // It does not stop the stricter legacy set.
    assert_eq!(behind(&ours(2), 200, "ratelimit: \"up\nx-ratelimit-remaining: 50"), sets(1).join("\n"));
}

#[test]
fn a_field_in_two_drafts_stays_or_goes_as_a_whole() {
    let theirs = "ratelimit-policy: 100;w=60, \"a\";q=10;w=1\nratelimit: \"a\";r=9;t=1;more=1, old;r=7\n\
                  ratelimit: limit=5, remaining=3";
    assert_eq!(behind(&ours(100), 200, theirs), theirs);
    assert_eq!(behind(&ours(2), 200, theirs), sets(1).join("\n"));
}

#[test]
fn responses_of_any_status_carry_the_fields_and_a_wait_of_an_upstream_is_kept_and_not_contradicted() {
    for status in [200, 301, 304, 404, 429, 500] {
        let headers = through(&ours(100), status, "");
        expect(
            &headers,
            &[("ratelimit", "\"ours\";r=99;t=3564"), ("x-ratelimit-remaining", "99"), ("retry-after", "")],
        );
        expect(&through(&ours(2), status, "retry-after: 17"), &[("retry-after", "17")]);
    }
    for field in ["retry-after: 17", "x-ratelimit-remaining: 0"] {
        let policy = "ratelimit-policy: \"ours\";q=100;w=3600\nratelimit: \nx-ratelimit-limit: ";
        expect(&through(&ours(100), 429, field), &fields(&format!("{field}\n{policy}")));
    }
}

#[test]
fn an_inner_layer_s_refusal_lists_only_what_it_violates_and_an_outer_one_s_is_its_own() {
    let inner_left = "\"inner\";r=0;t=60";
    for (headers, left, remaining) in [
        (RateLimitHeaders::both(), inner_left, "0"),
        (RateLimitHeaders::ietf(), inner_left, ""),
        (RateLimitHeaders::legacy(), "", "0"),
        (RateLimitHeaders::none(), "", ""),
    ] {
        let inner = layer([Policy::new("inner", Quota::per_minute(1))]).headers(headers);
        let service = layer([Policy::new("outer", Quota::per_hour(50))]).layer(inner.layer(hello()));
        send(&service, request());
        let response = send(&service, request());
        expect(response.headers(), &[("ratelimit", left), ("x-ratelimit-remaining", remaining), ("retry-after", "60")]);
        assert!(line(response.headers(), "ratelimit-policy").ends_with("\"outer\";q=50;w=3600"));
    }
    let inner = layer([Policy::new("inner", Quota::per_minute(50))]);
    let service = layer([Policy::new("outer", Quota::per_minute(1))]).layer(inner.layer(hello()));
    send(&service, request());
    let rules = [("ratelimit", "\"outer\";r=0;t=60"), ("ratelimit-policy", "\"outer\";q=1;w=60")];
    expect(send(&service, request()).headers(), &rules);
}
