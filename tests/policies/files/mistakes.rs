//! Mistakes in the options of a policy: each names its line.

use tollgate::config::Config;

use super::all_refused;

#[test]
fn keys_without_a_name_are_told() {
    all_refused(&[
        ("key = \"cookie:\"", 3, &["cookie:NAME has \"\" for a name", "cookie:session"]),
        ("key = \"cookie:a b\"", 3, &["\"a b\""]),
        ("key = \"cookie\"", 3, &["cookie:session"]),
        ("key = \"query:\"", 3, &["query:NAME lacks the name"]),
        ("key = \"path_param:{id}\"", 3, &["\"{id}\"", "such as id"]),
        ("key = \"bearer:x\"", 3, &["key \"bearer:x\" is unknown", "bearer"]),
        ("key = \"path_param\"", 3, &["path_param:NAME has \"\"", "such as id"]),
        ("key = \"query\"", 3, &["query:NAME lacks the name", "query:api_key"]),
    ]);
}

#[test]
fn costs_counts_scopes_and_lists_are_checked() {
    all_refused(&[
        ("cost = -1", 3, &["`-1`", "0 or more"]),
        ("cost = 0", 3, &["requests cost 0, so this policy limits nothing"]),
        ("limit = 50\ncost = 60", 4, &["a request costs 60 and the quota holds 50 at most"]),
        ("cost = \"x-cost\"", 3, &["cost \"x-cost\" is unknown", "header:NAME"]),
        ("cost = \"header:\"", 3, &["cost header:NAME has \"\" for a name", "invalid HTTP header name"]),
        ("cost = \"header:x y\"", 3, &["\"x y\""]),
        ("cost = [1]", 3, &["a whole number, 0 or more, or \"header:NAME\""]),
        ("cost = 1.5", 3, &["a whole number"]),
        ("min_cost = 2", 3, &["min_cost has no effect without a line cost = \"header:NAME\""]),
        ("cost = 2\nmin_cost = 2", 4, &["min_cost has no effect"]),
        ("cost = \"header:x-cost\"\nmin_cost = -1", 4, &["`-1`", "0 or more"]),
        ("limit = 50\ncost = \"header:x-cost\"\nmin_cost = 51", 5, &["min_cost 51 is above what the quota holds"]),
        ("count = \"errors\"", 3, &["count \"errors\" is unknown", "all, failures, successes, served"]),
        ("count = 401", 3, &["integer `401`", "a list of statuses"]),
        ("count = []", 3, &["count is an empty list", "at least one"]),
        ("count = [401,\n99]", 4, &["status 99", "100 to 999"]),
        ("count = [1000]", 3, &["status 1000"]),
        ("count = [70000]", 3, &["status 70000"]),
        ("count = [-1]", 3, &["`-1`"]),
        ("count = [\"401\"]", 3, &["without quotes"]),
        ("methods = [\"post\"]", 3, &["method \"post\" is unknown", "GET, HEAD, POST"]),
        ("methods = [\"GET\",\n \"FETCH\"]", 4, &["method \"FETCH\" is unknown"]),
        ("methods = []", 3, &["methods is an empty list"]),
        ("methods = \"GET\"", 3, &["a list of texts in quotes, such as [\"a\", \"b\"]", "methods"]),
        ("routes = [\"users\"]", 3, &["route \"users\"", "begins with a slash"]),
        ("routes = []", 3, &["routes is an empty list"]),
        (
            "allow = [\"10.0.0.0/8\",\n \"10.0.0.0/33\"]",
            4,
            &["allow: \"10.0.0.0/33\" looks like an address but is not a valid one", "10.0.0.0/8"],
        ),
        ("deny = [\"2001:db8::/129\"]", 3, &["deny: \"2001:db8::/129\" looks like an address but is not a valid one"]),
        ("deny = []", 3, &["deny is an empty list: give at least one entry"]),
        ("allow = []", 3, &["allow is an empty list"]),
        ("deny = [\"\"]", 3, &["deny has an empty entry"]),
        ("deny = [\"friend\"]", 3, &["deny has an entry that can never match", "give the policy a key that has it"]),
        ("key = \"host\"\nallow = [\"10.0.0.0/8\",\n\"Example.com\"]", 5, &["allow has an entry that can never match"]),
        ("key = [\"method\", \"path\"]\ndeny = [\"login\"]", 4, &["deny has an entry that can never match"]),
        ("allow = \"10.0.0.0/8\"", 3, &["a list of texts", "allow"]),
        ("allow = [10]", 3, &["integer `10`", "string"]),
    ]);
}

#[test]
fn a_month_that_may_be_meant_for_a_minute_is_refused_with_both_ways_to_write_it() {
    let file = |window: &str| format!("[[policy]]\nname = \"a\"\nkey = \"global\"\nlimit = 1\nwindow = \"{window}\"");
    for window in ["1M", "1 M", "2M", "0.5M", "1M 2d", "1h1M", "1d 1M 1s"] {
        let error = Config::from_toml(&file(window)).map(drop).expect_err(window).to_string();
        for part in ["line 5", &format!("window {window:?}"), "may be minutes or months", "1m", "30d"] {
            assert!(error.contains(part), "{window}: {part:?} is not in {error}");
        }
    }
    for window in ["1Y", "1D", "1H", "1S", "1MS", "1Ms", "1Min", "1W"] {
        let error = Config::from_toml(&file(window)).map(drop).expect_err(window).to_string();
        assert!(error.contains("give a number and a unit, such as 100ms, 60s, 1h or 30d"), "{window}: {error}");
    }
    for window in ["1m", "1min", "30d", "1h 1m", "1ms", "1s", "1month"] {
        assert!(Config::from_toml(&file(window)).is_ok(), "{window}");
    }
}

#[test]
fn reserves_tiers_and_switches_are_checked() {
    all_refused(&[
        ("reserve = 0.2", 3, &["no critical requests", "critical = {"]),
        ("critical = { header = \"a\", value = \"b\" }", 3, &["without a reserve", "reserve = 0.2"]),
        ("reserve = 1\ncritical = { header = \"a\", value = \"b\" }", 3, &["reserve 1 ", "above 0 and below 1"]),
        ("reserve = 0.0\ncritical = { header = \"a\", value = \"b\" }", 3, &["reserve 0 ", "above 0 and below 1"]),
        ("reserve = nan\ncritical = { header = \"a\", value = \"b\" }", 3, &["reserve NaN"]),
        ("reserve = -0.5\ncritical = { header = \"a\", value = \"b\" }", 3, &["reserve -0.5"]),
        ("reserve = \"20%\"", 3, &["a fraction such as 0.2"]),
        ("reserve = 0.2\ncritical = { header = \"a b\", value = \"c\" }", 4, &["critical has \"a b\" for a name"]),
        ("critical = { header = \"a\" }", 3, &["missing field `value`"]),
        ("critical = { header = \"a\", value = \"b\", or = 1 }", 3, &["unknown field `or`"]),
        ("critical = \"a\"", 3, &["critical"]),
        ("tiers = { free = 1 }", 3, &["tiers has no by", "by = \"header:NAME\""]),
        ("tiers = { by = \"header:a\" }", 3, &["tiers has no tier", "pro = 5000"]),
        ("tiers = { by = \"a\", free = 1 }", 3, &["tiers by \"a\" is unknown", "header:NAME"]),
        ("tiers = { by = \"header:\", free = 1 }", 3, &["tiers by header:NAME has \"\""]),
        ("tiers = { by = 5, free = 1 }", 3, &["integer `5`"]),
        ("tiers = { by = \"header:a\", free = 0 }", 3, &["tier \"free\": limit 0 admits nothing"]),
        ("tiers = { by = \"header:a\", free = \"1\" }", 3, &["without quotes"]),
        (
            "tiers = { by = \"header:a\",\n free = 1,\n pro = 9_000_000_000_000 }",
            5,
            &["tier \"pro\": limit 9000000000000"],
        ),
        ("tiers = { by = \"header:a\", free = 1, free = 2 }", 3, &["duplicate key"]),
        ("tiers = 5", 3, &["integer `5`", "a table such as"]),
        ("shadow = 1", 3, &["boolean"]),
        ("metered = \"yes\"", 3, &["boolean"]),
        ("preflights = []", 3, &["boolean"]),
        ("refund_dropped = 0", 3, &["boolean"]),
    ]);
}

#[test]
fn bytes_are_counted_alone_and_by_quotas_that_can() {
    all_refused(&[
        ("unit = \"bytes\"", 3, &["unit \"bytes\" is unknown: give one of requests, response_bytes, request_bytes"]),
        ("unit = 5", 3, &["unit is the integer `5`"]),
        ("unit = \"response_bytes\"\nover = \"wait\"", 4, &["over \"wait\" is unknown: give one of pace, cut"]),
        ("over = \"cut\"", 3, &["over has no effect without a line unit"]),
        ("unit = \"requests\"\nover = \"cut\"", 4, &["over has no effect without a line unit"]),
        ("unit = \"request_bytes\"\ncost = 5", 4, &["cost is for policies that count requests"]),
        ("unit = \"request_bytes\"\ncount = \"failures\"", 4, &["count is for policies that count requests"]),
        ("unit = \"request_bytes\"\nmetered = true", 4, &["metered is for policies that count requests"]),
        (
            "unit = \"request_bytes\"\nban = { after = 3, within = \"5m\", time = \"15m\" }",
            4,
            &["ban is for policies that count requests"],
        ),
        ("unit = \"response_bytes\"\nalgorithm = \"leaky_bucket\"", 4, &["a leaky_bucket cannot limit bytes"]),
    ]);
}

#[test]
fn bans_are_checked_at_the_field_at_fault() {
    let usual = "within = \"5m\", time = \"15m\"";
    let with = |more: &str| format!("key = \"peer_ip\"\nban = {{ after = 3, {usual}, {more} }}");
    let cases = [
        ("ban = 3".to_owned(), 3, "ban is the integer `3`"),
        ("ban = {}".to_owned(), 3, "this ban has no after: add after = 10"),
        (format!("ban = {{ {usual} }}"), 3, "this ban has no after"),
        ("ban = { after = 3, time = \"1m\" }".to_owned(), 3, "this ban has no within: add within = \"5m\""),
        ("ban = { after = 3, within = \"1m\" }".to_owned(), 3, "this ban has no time: add time = \"15m\""),
        (format!("ban = {{ after = 0, {usual} }}"), 3, "after 0 bans everybody: give at least 1"),
        (format!("ban = {{ after = 99_999_999_999, {usual} }}"), 3, "is too large: give at most 100000"),
        (format!("ban = {{\n after = -1,\n {usual} }}"), 4, "after is the integer `-1`"),
        ("ban = {\n after = 3,\n within = \"0s\",\n time = \"1m\" }".to_owned(), 5, "is no period: give at least 1ms"),
        ("ban = {\n after = 3,\n within = \"1m\",\n time = \"0s\" }".to_owned(), 6, "ends at once: give at least 1ms"),
        ("ban = {\n after = 3,\n within = \"1m\",\n time = \"9000d\" }".to_owned(), 6, "has no end to wait for"),
        (with("growth = 2"), 4, "a ban that grows needs a longest one: add most = \"1d\""),
        (with("most = \"1d\""), 4, "most has no effect on a ban that does not grow: add growth = 2"),
        (with("\n growth = 0.5, most = \"1d\""), 5, "growth 0.5 would shrink the bans: give at least 1"),
        (with("\n growth = nan, most = \"1d\""), 5, "growth NaN would shrink the bans"),
        (with("\n growth = 101, most = \"1d\""), 5, "growth 101 is too large: give at most 100"),
        (with("\n growth = \"2\", most = \"1d\""), 5, "a number such as 2 or 1.5, without quotes"),
        (with("growth = 2,\n most = \"5m\""), 5, "is shorter than the first of 900s: give at least 900s"),
        (with("growth = 2,\n most = \"9000d\""), 5, "has no end to wait for: give at most 366 days"),
        (with("\n forever = true"), 5, "unknown field `forever`"),
        (with("\n extend = 1"), 5, "boolean"),
        (with("\n layer = \"yes\""), 5, "boolean"),
        (with("\n on = \"errors\""), 5, "on \"errors\" is unknown"),
        (with("\n on = []"), 5, "on is an empty list, so nothing begins a ban"),
        (with("\n on = [99]"), 5, "status 99"),
        (format!("ban = {{ after = 3, {usual} }}"), 3, "all clients share this key"),
        (format!("key = \"header:x-user\"\nban = {{ after = 3, {usual} }}"), 4, "clients choose this key"),
        (format!("key = [\"route\", \"method\"]\nban = {{ after = 3, {usual} }}"), 4, "all clients share this key"),
    ];
    for (lines, line, part) in &cases {
        all_refused(&[(lines, *line, &[part])]);
    }
    let hops = |ban: &str| {
        let policy = format!("[[policy]]\nname = \"a\"\nkey = \"client_ip\"\nlimit = 1\nwindow = \"1s\"\n{ban}\n");
        Config::from_toml(&format!("{policy}[server]\ntrusted_hops = 1\n")).map(drop)
    };
    assert!(hops("").is_ok());
    let error = hops(&format!("ban = {{ after = 3, {usual}, verified_key = true }}")).expect_err("it can be spoofed");
    let error = error.to_string();
    assert!(error.contains("line 6") && error.contains("give trusted_proxies"), "{error}");
}

#[test]
fn a_ban_in_a_file_is_the_one_in_code() {
    let file = "[[policy]]\nname = \"a\"\nkey = \"header:x-user\"\nlimit = 1\nwindow = \"1h\"\n\
        ban = { after = 2, within = \"1h\", time = \"10m\", growth = 1.5, most = \"1d\", extend = true, verified_key = true }\n";
    assert!(Config::from_toml(file).is_ok());
}

#[test]
fn times_of_slots_are_for_a_concurrency() {
    all_refused(&[
        ("slot_life = \"30s\"", 3, &["slot life 30s is for a concurrency only"]),
        ("hold_at_most = \"1h\"", 3, &["hold at most 3600s is for a concurrency only"]),
        ("slot_life = 30", 3, &["slot_life is the integer `30`"]),
    ]);
}
