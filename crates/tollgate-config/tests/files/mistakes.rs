//! Mistakes in the options of a policy: each names its line.

use tollgate_config::Config;

use super::{all_refused, policy, refused};

#[test]
fn keys_without_a_name_are_told() {
    all_refused(&[
        ("key = \"cookie\"", 3, &["cookie:session"]),
        // The values of query parameters are readable in Redis, so this is no secret.
        ("key = \"query\"", 3, &["query:tenant"]),
        ("key = \"path_param:{id}\"", 3, &["\"{id}\"", "path_param:id"]),
        ("key = \"bearer:x\"", 3, &["key \"bearer:x\" is unknown", "bearer"]),
    ]);
}

#[test]
fn costs_counts_scopes_and_lists_are_checked() {
    all_refused(&[
        ("cost = 0", 3, &["requests cost 0, so this policy limits nothing"]),
        ("limit = 50\ncost = 60", 4, &["a request costs 60 and the quota holds 50 at most"]),
        (
            "algorithm = \"long_sliding_log\"\ntiers = { by = \"header:x-plan\", pro = 1_000_000 }\ncost = \"header:x-cost\"",
            5,
            &["cost by a header is not for long_sliding_log"],
        ),
        ("cost = \"x-cost\"", 3, &["cost \"x-cost\" is unknown", "header:NAME"]),
        ("min_cost = 2", 3, &["min_cost has no effect without a line cost = \"header:NAME\""]),
        ("limit = 50\ncost = \"header:x-cost\"\nmin_cost = 51", 5, &["min_cost 51 is above what the quota holds"]),
        ("count = \"errors\"", 3, &["count \"errors\" is unknown", "all, failures, successes, served"]),
        ("count = []", 3, &["count is an empty list", "at least one"]),
        ("count = [401,\n99]", 4, &["status 99", "100 to 999"]),
        ("methods = [\"GET\",\n \"FETCH\"]", 4, &["method \"FETCH\" is unknown"]),
        ("routes = [\"users\"]", 3, &["route \"users\"", "begins with a slash"]),
        ("allow = [\"10.0.0.0/8\",\n \"10.0.0.0/33\"]", 4, &["allow: \"10.0.0.0/33\" looks like an address"]),
        ("deny = []", 3, &["deny is an empty list: at least one is needed"]),
        ("deny = [\"\"]", 3, &["deny: an empty entry: use a CIDR or the value of a key"]),
        ("deny = [\"friend\"]", 3, &["deny has an entry that can never match", "or a key that"]),
        ("key = \"host\"\nallow = [\"10.0.0.0/8\",\n\"Example.com\"]", 5, &["allow has an entry that can never match"]),
        ("allow = [\"::1\",\n { value = \"a\", or = 1 }]", 4, &["policy.allow: expected a string"]),
    ]);
}

#[test]
fn a_month_is_refused_as_it_may_be_meant_for_a_minute_and_has_no_fixed_length() {
    let file = |window: &str| policy(&format!("window = \"{window}\""));
    for window in ["1M", "1 M", "0.5M", "1h1M", "1d 1M 1s", "1month", "2 months", "1d 1y", "1year"] {
        let given = format!("policy.window: {window:?} has the unit ");
        refused(&file(window), 3, &[&given, "may be minutes or months", "1m", "30d", "\"month\""]);
    }
    for window in ["1Y", "1D", "1H", "1S", "1MS", "1Ms", "1Min", "1W"] {
        refused(&file(window), 3, &["use a number and a unit, such as 100ms, 60s, 1h or 30d"]);
    }
    for window in ["1m", "1min", "30d", "1h 1m", "1ms", "1s", "2w"] {
        assert!(Config::from_toml(&file(window)).is_ok(), "{window}");
    }
}

#[test]
fn reserves_tiers_and_switches_are_checked() {
    all_refused(&[
        ("reserve = 0.2", 3, &["reserve has no effect without critical requests", "critical = {"]),
        ("critical = { header = \"a\", value = \"b\" }", 3, &["without a reserve", "reserve = 0.2"]),
        ("reserve = 1\ncritical = { header = \"a\", value = \"b\" }", 3, &["reserve 1 ", "above 0 and below 1"]),
        ("reserve = 0.2\ncritical = { header = \"a b\", value = \"c\" }", 4, &["critical has \"a b\" for a name"]),
        ("critical = { header = \"a\", value = \"b\", or = 1 }", 3, &["unknown field `or`"]),
        ("tiers = { free = 1 }", 3, &["tiers has no by", "by = \"header:NAME\""]),
        ("tiers = { by = \"header:a\" }", 3, &["tiers has no tier", "pro = 5000"]),
        ("tiers = { by = \"a\", free = 1 }", 3, &["tiers by \"a\" is unknown", "header:NAME"]),
        ("tiers = { by = 5, free = 1 }", 3, &["tiers by is a number: use header:NAME"]),
        ("tiers = { by = \"header:a\", free = \"header:b\" }", 3, &["tier \"free\" is no limit", "(column 35)"]),
        ("cost = 3\ntiers = { by = \"header:a\", free = 2 }", 4, &["tier \"free\": a request costs at least 3"]),
        ("tiers = { by = \"header:a\",\n free = 1,\n pro = 9_000_000_000_000 }", 5, &["tier \"pro\": limit"]),
        ("slot_ttl = \"30s\"", 3, &["slot_ttl 30s is for a concurrency only"]),
    ]);
}

#[test]
fn bans_are_checked_at_the_field_at_fault() {
    let usual = "within = \"5m\", duration = \"15m\"";
    let with = |more: &str| format!("key = \"peer_ip\"\nban = {{ after = 3, {usual}, {more} }}");
    let times = |within: &str, duration: &str| {
        format!("ban = {{\n after = 3,\n within = \"{within}\",\n duration = \"{duration}\" }}")
    };
    let cases = [
        ("ban = [10, \"5m\", \"15m\"]".to_owned(), 3, "expected a table such as { after = 10"),
        ("ban = { after = 3, duration = \"1m\" }".to_owned(), 3, "policy.ban: missing field `within`"),
        (format!("ban = {{\n after = -1,\n {usual} }}"), 4, "policy.ban.after: invalid value: integer `-1`"),
        (times("0s", "1m"), 5, "within must be whole milliseconds, from 1ms to 366 days"),
        (times("1m", "0s"), 6, "duration must be whole milliseconds, from 1ms"),
        (with("backoff = 2"), 4, "backoff has no effect without the longest ban, such as max = \"1d\": add it"),
        (with("max = \"1d\""), 4, "max has no effect without backoff, such as backoff = 2: add it"),
        (with("\n backoff = 0.5, max = \"1d\""), 5, "backoff must be from 1 to 100, not 0.5"),
        (with("\n backoff = 1, max = \"1d\""), 5, "backoff has no effect without a factor above 1"),
        (with("backoff = 2,\n max = \"5m\""), 5, "from the first of 900s to 366 days, not 300s"),
        (with("backoff = 2,\n max = \"9000d\""), 5, "the longest ban must be whole milliseconds"),
        (with("\n forever = true"), 5, "unknown field `forever`"),
        (with("\n extend = 1"), 5, "policy.ban.extend: invalid type: integer `1`, expected true or false"),
        (with("\n on = \"errors\""), 5, "on \"errors\" is unknown"),
        (format!("ban = {{ after = 3, {usual} }}"), 3, "all clients share this key"),
        (format!("key = \"header:x\"\nban = {{ after = 3, {usual} }}"), 4, "verified before (verified_key = true)"),
        (with("\n on = [401], extend = true"), 4, "a ban by failures is not extended: remove extend (column"),
    ];
    for (lines, line, part) in &cases {
        all_refused(&[(lines, *line, &[part])]);
    }
    let hops = |ban: &str| {
        let policy = format!("[[policy]]\nname = \"a\"\nkey = \"client_ip\"\nlimit = 1\nwindow = \"1s\"\n{ban}\n");
        Config::from_toml(&format!("{policy}[server]\ntrusted_hops = 1\n")).map(drop)
    };
    assert!(hops("").is_ok());
    let all =
        with("backoff = 1.5, max = \"1d\", extend = true, verified_key = true").replace("peer_ip", "header:x-user");
    assert!(Config::from_toml(&policy(&all)).is_ok());
    let error = hops(&format!("ban = {{ after = 3, {usual}, verified_key = true }}")).expect_err("it can be spoofed");
    let error = error.to_string();
    assert!(error.contains("line 6") && error.contains("use trusted_proxies"), "{error}");
}

#[test]
fn what_a_concurrency_cannot_settle_is_an_error_at_its_line() {
    let slots = |line: &str| format!("# no window\nalgorithm = \"concurrency\"\n{line}");
    for (line, option) in [("metered = true", "metered"), ("count = \"failures\"", "count"), ("count = [401]", "count")]
    {
        let advice = format!("its slots are released at the end of each request: remove {option}");
        all_refused(&[(&slots(line), 5, &[&advice])]);
    }
    assert!(Config::from_toml(&policy(&slots("metered = false"))).is_ok());
}

#[test]
fn options_without_effect_are_refused() {
    let global = &["missing_key has no effect without a key that requests may lack"];
    let addresses = &["serve_unknown_addresses has no effect without an address in a list deny"];
    all_refused(&[
        ("missing_key = \"deny\"", 3, global),
        ("key = \"header:a\"\ndeny = [\"b\"]\nserve_unknown_addresses = true", 5, addresses),
        ("serve_unknown_addresses = true", 3, addresses),
        (
            "key = \"header:a\"\nmissing_key = \"deny\"\nmethods = [\"POST\"]\npreflights_without_key = true",
            6,
            &["preflights_without_key has no effect without \"OPTIONS\" in methods"],
        ),
        ("key = \"header:a\"\npreflights_without_key = true", 4, &["preflights_without_key has no effect"]),
        ("# no window\nalgorithm = \"concurrency\"\nrefund_dropped = true", 5, &["refund_dropped has no effect"]),
    ]);
    let preflights =
        "key = \"header:a\"\nmissing_key = \"deny\"\nmethods = [\"POST\", \"OPTIONS\"]\npreflights_without_key = true";
    assert!(Config::from_toml(&policy(preflights)).is_ok());
    let by_header = "missing_key = \"deny\"\ncost = \"header:x-cost\"";
    assert!(Config::from_toml(&policy(by_header)).is_ok(), "it is the rule for ambiguous costs");
    let addresses = "deny = [\"192.0.2.1\"]\nserve_unknown_addresses = true";
    assert!(Config::from_toml(&policy(addresses)).is_ok());
}
