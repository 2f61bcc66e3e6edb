//! Policies from a file: what is read, and what every mistake is told.

use std::time::Duration;

use tollgate::Quota;
use tollgate_config::Config;

mod calendar;
mod effect;
mod garbage;
mod identity;
mod layer;
#[path = "../../../../tests/support/log.rs"]
mod log;
mod mistakes;
mod served;
mod watch;

/// A file that says all there is, what excludes another thing in a comment.
const ALL: &str = include_str!("../../../../examples/policies.toml");

const GOOD: &str = r#"
# some fields
[[policy]]
name = "ip"
key = "peer_ip"
algorithm = "token_bucket"
limit = 300
window = "60s"
burst = 50
cost = 2
missing_key = "deny"
advertise = false

[[policy]]
name = "user.search-2_"
key = ["header:X-Api-Key", "route"]
algorithm = "fixed_window"
limit = 1_000
window = "30d"

[[policy]]
name = "slots"
algorithm = "concurrency"
limit = 5
slot_ttl = "1m 30s"
max_hold = "2m"

[server]
on_failure = "allow"
instances = 3
"#;

#[test]
fn a_good_file_gives_its_policies_in_order() {
    let config = Config::from_toml(GOOD).unwrap();
    let names: Vec<_> = config.policies().iter().map(tollgate::Policy::name).collect();
    assert_eq!(names, ["ip", "user.search-2_", "slots"]);
    let quotas: Vec<_> = config.policies().iter().map(|policy| *policy.quota()).collect();
    let second = Duration::from_secs(1);
    let expected = [
        Quota::token_bucket(300, 60 * second).burst(50),
        Quota::fixed_window(1_000, 30 * 86_400 * second),
        Quota::concurrency(5).slot_ttl(90 * second).max_hold(120 * second),
    ];
    assert_eq!(quotas, expected);
    assert_eq!(config.into_policies().len(), 3);
    assert!(Config::from_toml("").expect("it says nothing").policies().is_empty());
}

/// What a file may say in a place, as its reader lists it for one that says something else.
#[track_caller]
fn known(table: &str, line: &str) -> Vec<String> {
    let needed = if table == "[[policy]]" { "name = \"a\"\nlimit = 1\nwindow = \"1s\"\n" } else { "" };
    let fault = Config::from_toml(&format!("{table}\n{needed}{line}\n")).expect_err(line).to_string();
    let list = fault.split_once("one of ").unwrap_or_else(|| panic!("no list in {fault}")).1;
    let list = list.rsplit_once(" (column ").map_or(list, |(list, _)| list);
    // Fields stand in backquotes, the last one with its table behind it.
    list.split(", ").filter_map(|name| name.trim_start_matches('`').split('`').next().map(str::to_owned)).collect()
}

/// The keys a file may name, with `NAME` behind those that take one.
fn keys() -> Vec<String> {
    known("[[policy]]", "key = \"?\"")
}

#[test]
fn the_example_file_says_everything_there_is() {
    let config = Config::from_toml(ALL).unwrap();
    assert!(config.policies().len() > 9, "{:?}", config.policies());
    for table in ["[[policy]]", "[server]"] {
        let fields = known(table, "unknown_field = 1");
        assert!(fields.len() > 5, "{fields:?}");
        for field in fields {
            let says = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{field} = "));
            assert!(ALL.lines().any(says), "examples/policies.toml lacks the field {field}");
        }
    }
    for value in keys().into_iter().chain(known("[[policy]]", "algorithm = \"?\"")) {
        let value = value.strip_suffix("NAME").map_or_else(|| format!("\"{value}\""), |word| format!("\"{word}"));
        let uses = |line: &str| line.split('#').next().is_some_and(|line| line.contains(&value));
        assert!(ALL.lines().any(uses), "examples/policies.toml has nothing with {value}");
    }
    let choices = [("[[policy]]", "missing_key"), ("[[policy]]", "count"), ("[server]", "on_failure")];
    for (table, field) in choices {
        for value in known(table, &format!("{field} = \"?\"")) {
            assert!(ALL.contains(&format!("\"{value}\"")), "examples/policies.toml lacks {field} = {value:?}");
        }
    }
}

#[test]
fn what_a_file_may_say_is_documented() {
    let guide = include_str!("../../src/lib.rs");
    for field in ["[[policy]]", "[server]"].map(|table| known(table, "unknown_field = 1")).concat() {
        assert!(guide.contains(&format!("//! | `{field}` | ")), "the guide lacks a row of {field}");
    }
    let names = include_str!("../../../../docs/names.md");
    let forms: Vec<&str> = names.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    for key in keys() {
        assert!(guide.contains(&format!("`\"{key}\"`")), "the guide lacks {key}");
        let key = key.trim_end_matches(":NAME");
        assert!(forms.iter().any(|form| form.contains(&format!("`{key}`"))), "docs/names.md lacks a row of {key}");
    }
}

#[test]
fn the_file_in_the_guide_is_a_good_one() {
    let blocks = include_str!("../../../../docs/policies.md").split("```toml\n").skip(1);
    let files: Vec<_> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(Config::from_toml(files[0]).unwrap().policies().len(), 2);
}

/// A file whose one policy is good but for the lines given; they begin on line 3.
#[track_caller]
fn policy(lines: &str) -> String {
    let mut file = "[[policy]]\n\n".to_owned() + lines + "\n";
    for (field, line) in [("name", "name = \"a\""), ("limit", "limit = 5"), ("window", "window = \"60s\"")] {
        let given = lines.lines().any(|line| line.starts_with(field) || line.starts_with(&format!("# no {field}")));
        if !given {
            file = file + line + "\n";
        }
    }
    file
}

#[track_caller]
fn refused(file: &str, line: usize, fragments: &[&str]) {
    let error = Config::from_toml(file).expect_err(file);
    let text = format!("{error:#}");
    assert!(error.is_invalid(), "{text}");
    assert!(text.starts_with(&format!("line {line}: ")), "{text}\n{file}");
    assert!(!text.contains('\n') && !text.ends_with('.'), "{text:?}");
    for fragment in fragments {
        assert!(text.contains(fragment), "{text} does not say {fragment:?}");
    }
}

/// The lines of a policy, the line at fault, and what is told of it.
type Mistake<'a> = (&'a str, usize, &'a [&'a str]);

#[track_caller]
fn all_refused(mistakes: &[Mistake<'_>]) {
    for (lines, line, fragments) in mistakes {
        refused(&policy(lines), *line, fragments);
    }
}

#[test]
fn every_mistake_in_a_policy_names_its_line() {
    let table: &[Mistake<'_>] = &[
        ("colour = \"red\"", 3, &["unknown field `colour`", "`missing_key`"]),
        ("name = \"9lives\"", 3, &["\"9lives\"", "start with a letter"]),
        ("name = \"a\"\nname = \"b\"", 4, &["duplicate key"]),
        ("# no name", 1, &["policy: missing field `name`"]),
        ("# no limit", 1, &["policy: missing field `limit`"]),
        ("# no window", 4, &["no window", "window = \"60s\""]),
        ("limit = 0", 3, &["limit 0 admits nothing: at least 1 is needed (column 9)"]),
        ("limit = 99_999_999_999_999_999_999", 3, &["policy.limit: ", "at most 18446744073709551615"]),
        ("algorithm = \"sliding_log\"\nlimit = 20_000", 4, &["at most 10000"]),
        ("algorithm = \"long_sliding_log\"\nlimit = 20_000\nwindow = \"50d\"", 5, &["less than 49 days"]),
        ("window = \"18446744073709551615s 1000000000ns\"", 3, &["is too long", "60s"]),
        ("# no window\nalgorithm = \"concurrency\"\nwindow = \"60s\"", 5, &["a concurrency has a slot_ttl"]),
        ("# no window\nalgorithm = \"concurrency\"\nslot_ttl = \"1s\"", 5, &["shorter than two heartbeats"]),
        ("# no window\nalgorithm = \"concurrency\"\nmax_hold = \"10ms\"", 5, &["max_hold 10ms is too short"]),
        ("window = \"0s\"", 3, &["window 0s", "at least 1us"]),
        ("algorithm = \"leaky\"", 3, &["\"leaky\" is unknown", "one of fixed_window, ", ", long_sliding_log"]),
        ("algorithm = \"fixed_window\"\nburst = 5", 4, &["burst 5", "token bucket only"]),
        ("algorithm = \"leaky_bucket\"\nnodelay = 9\nqueue = 4", 4, &["nodelay 9 is more than the queue holds", "5"]),
        ("key = \"client\"", 3, &["key \"client\" is unknown", "client_ip, peer_ip, route", "header:NAME, cookie"]),
        ("key = \"header:x y\"", 3, &["key header:NAME has \"x y\" for a name", "x-api-key"]),
        ("key = []", 3, &["a list of 0 keys", "1 to 8"]),
        ("key = [\"path\",\"path\",\"path\",\"path\",\"path\",\"path\",\"path\",\"path\",\"path\"]", 3, &["9 keys"]),
        ("key = [\n  \"path\",\n\t\"user\",\n]", 5, &["key \"user\" is unknown", "(column 2)"]),
        ("tiers = { by = \"header:\u{fc}\", free = 1 }", 3, &["(column 16)"]),
        ("critical = { header = \"x\", value = \"\u{fc}\", or = 1 }", 3, &["(column 41)"]),
        ("missing_key = \"ignore\"", 3, &["missing_key \"ignore\" is unknown", "skip, deny, share"]),
        ("advertise", 3, &[]),
        ("\"a\\nb\" = 1", 3, &["unknown field `a\\nb`"]),
        ("key = \"a\\r\\n\\u001b[31m\"", 3, &["unknown"]),
    ];
    all_refused(table);
}

#[test]
fn every_mistake_outside_a_policy_names_its_line() {
    let idle = "allow_for has no effect without a line on_failure = \"allow\"";
    let every = "every peer would be a trusted proxy";
    for (file, line, fragments) in [
        ("\n[[polices]]\nname = \"a\"", 2, &["unknown field `polices`", "`policy`", "`server`"][..]),
        ("[policy]\nname = \"a\"", 1, &["policy: expected a list", "write [[policy]]"]),
        ("policy = [[\"a\"]]", 1, &["expected a table, under [[policy]]"]),
        ("[server]\ntrusted = []", 2, &["unknown field `trusted`", "`on_failure`"]),
        ("[server]\n\non_failure = \"open\"", 3, &["on_failure \"open\" is unknown", "fallback, allow, deny"]),
        ("[server]\ninstances = 1\nallow_for = \"60s\"", 3, &[idle]),
        ("[server]\non_failure = \"allow\"\nallow_for = \"0s\"", 3, &["allow_for of 0", "on_failure = \"fallback\""]),
        ("[server]\ninstances = 0", 2, &["server.instances: ", "integer `0`", "1 to 4294967295", "(column 13)"]),
        ("\n\n[server", 3, &["(column 8)"]),
        ("[server]\ntrusted_proxies = [\"10.0.0.0/8\",\n\"proxy\"]", 3, &["trusted proxy \"proxy\"", "CIDR"]),
        ("[server]\ntrusted_proxies = [\"10.0.0.0/8\",\n\"0.0.0.0/0\"]", 3, &[every]),
        ("[server]\ntrusted_proxies = [\"::/1\",\n\"8000::/1\"]", 2, &[every]),
        ("[server]\ntrusted_proxies = []\ntrusted_hops = 1", 3, &["exclude each other"]),
        ("[server]\ntrusted_hops = 65", 2, &["trusted_hops 65", "0 to 64"]),
        ("[server]\nforwarded = \"forwarded\"", 2, &["without a trusted proxy", "trusted_proxies"]),
        ("[server]\ntrusted_hops = 1\nforwarded = \"a b\"", 3, &["forwarded has \"a b\" for a name"]),
        ("[server]\ntrusted_unix_socket = false\nforwarded = \"forwarded\"", 3, &["without a trusted proxy"]),
        ("a = [1,\n2,\n", 2, &["unclosed array"]),
        (&GOOD.replace("\"slots\"", "\"ip\""), 22, &["policy name \"ip\" is taken on line 4"]),
    ] {
        refused(file, line, fragments);
    }
    for header in ["x-forwarded-for", "forwarded", "cf-connecting-ip"] {
        let text = format!("[server]\ntrusted_unix_socket = true\nforwarded = \"{header}\"");
        assert!(Config::from_toml(&text).is_ok(), "{header}");
    }
}

#[test]
fn instances_that_nothing_shares_are_refused() {
    let deny = "[server]\non_failure = \"deny\"\ninstances = 2\n";
    refused(deny, 3, &["instances has no effect without on_failure = \"fallback\" or \"allow\""]);
    assert!(Config::from_toml(&deny.replace("deny", "fallback")).is_ok());
    assert!(Config::from_toml_without(&format!("{deny}[ratios]\n"), &["ratios"]).is_ok());
}

#[test]
fn no_field_is_ignored() {
    let (policy_fields, server_fields) = (known("[[policy]]", "unknown = 1"), known("[server]", "unknown = 1"));
    assert_eq!((policy_fields.len(), server_fields.len()), (30, 7));
    for field in policy_fields {
        refused(&policy(&format!("{field} = 1979-05-27")), 3, &[&format!("policy.{field}: "), "expected "]);
    }
    for field in server_fields {
        refused(&format!("[server]\n{field} = 07:32:00"), 2, &[&format!("server.{field}: "), "expected "]);
    }
}

/// A file in a folder of its own, gone when dropped.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8]) -> Self {
        let folder = std::env::temp_dir().join(format!("tollgate-config-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        std::fs::write(folder.join("policies.toml"), content).expect("the temporary folder can be written");
        Self(folder)
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.join("policies.toml")
    }

    fn read(&self) -> Result<Config, tollgate::Error> {
        Config::from_file(self.path())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_error_in_a_file_starts_with_its_path() {
    assert_eq!(TempFile::new("good", GOOD.as_bytes()).read().unwrap().policies().len(), 3);
    let zero = TempFile::new("zero", policy("limit = 0").as_bytes()).read().unwrap_err().to_string();
    assert!(zero.contains("policies.toml line 3: limit 0 admits nothing"), "{zero}");
    let bytes = TempFile::new("bytes", b"[server]\n# \xff\n").read().unwrap_err().to_string();
    assert!(bytes.contains("policies.toml line 2: the file is not UTF-8"), "{bytes}");
    let gone = format!("{:#}", Config::from_file("/nowhere/policies.toml").unwrap_err());
    assert!(gone.contains("cannot read the config file /nowhere/policies.toml"), "{gone}");
    assert!(gone.contains("No such file"), "the cause is told: {gone}");
}
