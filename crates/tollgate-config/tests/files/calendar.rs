//! Windows of a calendar in files: what is read, and what mistakes are told, with their place.

use tollgate::Quota;
use tollgate::policy::Calendar;
use tollgate_config::Config;

use super::refused;
use super::served::{limited, send};

/// A policy of five lines; what is given begins on the sixth.
fn policy(window: &str, lines: &str) -> String {
    format!("[[policy]]\nname = \"a\"\nalgorithm = \"fixed_window\"\nlimit = 3\nwindow = \"{window}\"\n{lines}")
}

fn quota(window: &str, lines: &str) -> Quota {
    *Config::from_toml(&policy(window, lines)).expect(lines).policies()[0].quota()
}

#[test]
fn a_window_may_be_a_unit_of_the_calendar_in_a_zone() {
    let of = |calendar: Result<Calendar, _>| Quota::calendar_window(3, calendar.expect("the system has time zones"));
    let berlin = "zone = \"Europe/Berlin\"";
    assert_eq!(quota("hour", "zone = \"Asia/Kolkata\""), of(Calendar::hourly("Asia/Kolkata")));
    assert_eq!(quota("day", ""), of(Calendar::daily("UTC")));
    assert_eq!(quota("day", "zone = \"europe/berlin\""), of(Calendar::daily("Europe/Berlin")));
    assert_eq!(quota("week", berlin), of(Calendar::weekly("Europe/Berlin")));
    let sunday = Calendar::weekly("Europe/Berlin").map(|week| week.anchor(7));
    assert_eq!(quota("week", &format!("{berlin}\nanchor = 7")), of(sunday));
    let last = Calendar::monthly("Europe/Berlin").map(|month| month.anchor(31));
    assert_eq!(quota("month", &format!("anchor = 0x1f\n{berlin}")), of(last));
    assert_ne!(quota("month", berlin), quota("month", ""));
    assert_ne!(quota("day", ""), quota("24h", ""));
}

/// The limits of a tier and of none, and the reset of each, of requests at the time of the system.
#[tokio::test]
async fn tiers_count_by_the_same_calendar() {
    let tiers = "tiers = { by = \"header:x-plan\", pro = 9_000 }\nanchor = 31\nzone = \"Europe/Berlin\"";
    let app = limited(&policy("month", tiers));
    let mut windows = Vec::new();
    for (plan, limit) in [("", 3), ("x-plan:pro", 9_000)] {
        let response = send(&app, &format!("/ {plan}")).await;
        let advertised = response.headers()["ratelimit-policy"].to_str().expect("it is text").to_owned();
        let window = advertised.strip_prefix(&format!("\"a\";q={limit};w=")).expect(&advertised);
        windows.push(window.parse::<u64>().expect("a number"));
    }
    // Months of 28 days, and of 31 and an hour.
    assert!(windows[0] == windows[1] && (2_419_200..=2_682_000).contains(&windows[0]), "{windows:?}");
    let error = Config::from_toml(&policy("month", "tiers = { by = \"header:x-plan\", pro = 0 }"));
    let error = error.expect_err("no limit").to_string();
    assert!(error.starts_with("line 6: tier \"pro\": limit 0 admits nothing"), "{error}");
}

#[test]
fn mistakes_in_a_calendar_name_their_line_and_column() {
    let unknown = ["time zone \"Europe/Berlim\" is not known to this system", "\"Europe/Berlin\"", "(column 8)"];
    let month = ["anchor 32 is no day of a month: use 1 to 31", "(column 10)"];
    let quoted = ["policy.anchor: invalid type: string \"31\"", "a whole number without sign or quotes"];
    let zone = ["zone has no effect without a window of \"hour\", \"day\", \"week\" or \"month\""];
    for (window, lines, line, fragments) in [
        ("day", "zone = \"Europe/Berlim\"", 6, &unknown[..]),
        ("day", "zone = \"+01:00\"", 6, &["is not known", "an IANA name"]),
        ("day", "zone = 1", 6, &["policy.zone: invalid type: integer `1`, expected a string, in quotes"]),
        ("month", "zone = \"UTC\"\nanchor = 32", 7, &month),
        ("month", "anchor = 288", 6, &["anchor 288 is no day of a month"]),
        ("month", "anchor = \"31\"", 6, &quoted),
        ("week", "anchor = 8", 6, &["anchor 8 is no day of a week: use 1 for Monday to 7 for Sunday"]),
        ("day", "anchor = 1", 6, &["anchor 1 is for weeks and months, and the window is one day"]),
        ("30d", "zone = \"UTC\"", 6, &zone),
        ("Month", "", 5, &["policy.window: \"Month\" is not a duration"]),
    ] {
        refused(&policy(window, lines), line, fragments);
    }
    let large = policy("month", "").replace("limit = 3", "limit = 562_949_953_421_312");
    refused(&large, 4, &["limit 562949953421312 is too large", "it must be at most 562949953421311"]);
    for algorithm in ["token_bucket", "sliding_window", "leaky_bucket"] {
        let file = policy("month", "").replace("fixed_window", algorithm);
        refused(&file, 5, &["window \"month\" is for a fixed_window only: use a duration, such as \"1h\" or \"30d\""]);
    }
    let without = policy("day", "").replace("algorithm = \"fixed_window\"", "");
    refused(&without, 5, &["window \"day\" is for a fixed_window only"]);
    let slots = "[[policy]]\nname = \"a\"\nalgorithm = \"concurrency\"\nlimit = 3\n";
    refused(&format!("{slots}zone = \"UTC\""), 5, &["zone has no effect without a window of"]);
    refused(&format!("{slots}window = \"day\""), 5, &["a concurrency has a slot_ttl, and no window"]);
}
