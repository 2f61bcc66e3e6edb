//! The application's own rule for several values, and for letters.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use tollgate::key::{self, KeyExtractor};
use tollgate::policy::AccessList;

use super::rig::{Service, expect, get, one, policy, service, with};

/// A service whose client REAL has nothing left.
#[track_caller]
fn spent(key: impl KeyExtractor, real: Request<String>) -> Service {
    let service = service(policy(key));
    expect(&service, [(real, 200)]);
    service
}

/// These are the client REAL, and not ambiguous: that is one more.
#[track_caller]
fn are_real(key: impl KeyExtractor, real: Request<String>, names: impl IntoIterator<Item = Request<String>>) {
    expect(&spent(key, real), names.into_iter().map(|name| (name, 429)));
}

/// These are neither REAL nor each other.
#[track_caller]
fn are_others(key: impl KeyExtractor, real: Request<String>, names: impl IntoIterator<Item = Request<String>>) {
    expect(&spent(key, real), names.into_iter().map(|name| (name, 200)));
}

/// These are ambiguous: together they have one counter.
#[track_caller]
fn are_ambiguous(key: impl KeyExtractor, real: Request<String>, names: impl IntoIterator<Item = Request<String>>) {
    let service = spent(key, real);
    for (number, name) in names.into_iter().enumerate() {
        expect(&service, [(name, if number == 0 { 200 } else { 429 })]);
    }
}

fn session(lines: impl AsRef<[u8]>) -> Request<String> {
    one("cookie", lines)
}

fn header<const N: usize>(lines: [&'static str; N]) -> Request<String> {
    with(lines.map(|line| ("x-user", line)))
}

fn basic(user: &str) -> Request<String> {
    one("authorization", format!("Basic {}", STANDARD.encode(format!("{user}:pw"))))
}

#[test]
fn the_last_line_of_a_header_counts_where_the_application_takes_it() {
    let key = || key::header("x-user").last();
    are_real(key(), header(["REAL"]), [header(["x", "REAL"]), header(["y", "x", "REAL "])]);
    are_others(key(), header(["REAL"]), [header(["REAL", "x"]), header(["REAL", "y"])]);
}

#[test]
fn the_first_line_of_a_header_counts_where_the_application_takes_it() {
    let key = || key::header("x-user").first();
    are_real(key(), header(["REAL"]), [header(["REAL", "x"]), header([" REAL", "x", "y"])]);
    are_others(key(), header(["REAL"]), [header(["x", "REAL"]), header(["y", "REAL"])]);
}

#[test]
fn the_last_cookie_counts_where_the_application_takes_it() {
    let key = || key::cookie("session").last();
    let real = || session("session=REAL");
    are_real(
        key(),
        real(),
        ["session=x; session=REAL", "session=x; session=%52EAL", "session=%FF; session=REAL"].map(session),
    );
    are_real(key(), real(), [with([("cookie", "session=x"), ("cookie", "session=REAL")])]);
    are_others(key(), real(), ["session=REAL; session=x", "session=REAL; session=y"].map(session));
}

#[test]
fn the_first_cookie_counts_where_the_application_takes_it() {
    let key = || key::cookie("session").first();
    let real = || session("session=REAL");
    are_real(
        key(),
        real(),
        ["session=REAL; session=x", "session=%52EAL; session=x", "%73ession=REAL; session=REAL"].map(session),
    );
    are_others(key(), real(), ["session=x; session=REAL", "session=y; session=REAL"].map(session));
}

#[test]
fn a_choice_of_cookies_in_which_servers_differ_is_ambiguous() {
    let real = || session("session=REAL");
    let last = ["session=REAL; %73ession=x", "session=REAL; session=%FF", "session=REAL; session=\"a\\101\""];
    are_ambiguous(key::cookie("session").last(), real(), last.map(session));
    // Some leave out a value that begins with a tab.
    are_ambiguous(key::cookie("session").first(), real(), [session("session=\tx; session=REAL")]);
    // One server drops a lone quote, and another the line that is no text.
    let quoted = with([("cookie", "session=\""), ("cookie", "session=\u{e9}")]);
    are_ambiguous(key::cookie("session").last(), real(), [quoted.clone(), quoted]);
    let first = [
        "%73ession=x; session=REAL",
        "session=%FF; session=REAL",
        "session=\"x; session=REAL",
        "session=a\"x; session=REAL",
    ];
    are_ambiguous(key::cookie("session").first(), real(), first.map(session));
    let hidden = |n: u8| {
        with([
            ("cookie", b"session=REAL".to_vec()),
            ("cookie", vec![b's', b'e', b's', b's', b'i', b'o', b'n', b'=', n, b';', 0xff]),
        ])
    };
    are_ambiguous(key::cookie("session").last(), real(), [hidden(b'1'), hidden(b'2')]);
}

#[test]
fn the_last_or_the_first_parameter_counts_where_the_application_takes_it() {
    are_real(key::query("k").last(), get("/?k=REAL"), [get("/?k=x&k=REAL"), get("/?k&%6B=%52EAL")]);
    are_others(key::query("k").last(), get("/?k=REAL"), [get("/?k=REAL&k=x"), get("/?k=REAL&k=y")]);
    are_real(key::query("k").first(), get("/?k=REAL"), [get("/?k=REAL&k=x"), get("/?k=REAL&k=y")]);
    are_others(key::query("k").first(), get("/?k=REAL"), [get("/?k=x&k=REAL"), get("/?k=y&k=REAL")]);
    are_ambiguous(key::query("k").last(), get("/?k=REAL"), [get("/?k=x;y&k=REAL"), get("/?k=1;k=REAL")]);
}

#[test]
fn the_last_or_the_first_user_counts_where_the_application_takes_it() {
    let line = |user: &str| ("authorization", format!("Basic {}", STANDARD.encode(format!("{user}:pw"))));
    let two = |first, last| with([line(first), line(last)]);
    are_real(key::basic_user().last(), basic("REAL"), [two("x", "REAL"), two("y", "REAL")]);
    are_others(key::basic_user().last(), basic("REAL"), [two("REAL", "x"), two("REAL", "y")]);
    are_real(key::basic_user().first(), basic("REAL"), [two("REAL", "x"), two("REAL", "y")]);
    are_others(key::basic_user().first(), basic("REAL"), [two("x", "REAL"), two("y", "REAL")]);
}

#[test]
fn letters_of_either_case_are_the_same_where_the_application_says_so() {
    are_real(key::basic_user().ignore_case(), basic("REAL"), [basic("real"), basic("Real")]);
    are_real(key::header("x-user").ignore_case(), header(["REAL"]), [header(["real"]), header(["Real", "rEAL"])]);
    are_real(key::cookie("session").ignore_case(), session("session=REAL"), [session("session=%72eal")]);
    are_real(key::query("k").ignore_case(), get("/?k=REAL"), [get("/?k=real"), get("/?k=Real&k=reaL")]);
    are_others(key::basic_user(), basic("REAL"), [basic("real"), basic("Real")]);
}

/// What stands before a plus sign: a mail system's rule.
fn mailbox(value: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    value.split(|byte| *byte == b'+').next().unwrap_or_default().into()
}

#[test]
fn what_the_application_normalizes_is_the_same() {
    are_real(key::basic_user().normalize(mailbox), basic("REAL"), [basic("REAL+1"), basic("REAL+2")]);
    are_real(
        key::header("x-user").normalize(mailbox),
        header(["REAL"]),
        [header([" REAL+1"]), header(["REAL+1", "REAL+2"])],
    );
    are_real(key::cookie("session").normalize(mailbox), session("session=REAL"), [session("session=REAL%2B1")]);
    are_real(key::query("k").normalize(mailbox), get("/?k=REAL"), [get("/?k=REAL%2B1")]);
    let both = key::basic_user().normalize(mailbox).ignore_case();
    are_real(both, basic("REAL"), [basic("real+1")]);
}

#[test]
fn a_list_is_compared_in_the_same_form() {
    let denied = |user| policy(key::basic_user().ignore_case()).deny(AccessList::parse([user]).expect("a user"));
    expect(&service(denied("ada")), [(basic("ADA"), 403), (basic("ada"), 403), (basic("bob"), 200)]);
    let allowed = policy(key::header("x-user").normalize(mailbox)).allow(AccessList::parse(["ada"]).expect("a user"));
    expect(&service(allowed), [(header(["ada+1"]), 200), (header(["ada+2", "ada"]), 200), (header(["ada "]), 200)]);
}

#[cfg(feature = "config")]
#[test]
fn a_file_says_the_same() {
    use tollgate_config::Config;

    let read = |key: &str| {
        let text = format!("[[policy]]\nname = \"policy\"\nlimit = 1\nwindow = \"1h\"\nkey = \"{key}\"");
        Config::from_toml(&text).map(|config| config.into_policies().remove(0))
    };
    let rows = [
        ("last:cookie:session", session("session=REAL"), session("session=x; session=REAL")),
        ("first:header:x-user", header(["REAL"]), header(["REAL", "x"])),
        ("first:ignore_case:header:x-user", header(["REAL"]), header(["real", "x"])),
        ("ignore_case:last:query:k", get("/?k=REAL"), get("/?k=x&k=Real")),
        ("ignore_case:basic_user", basic("REAL"), basic("real")),
    ];
    for (key, real, name) in rows {
        let service = service(read(key).unwrap_or_else(|error| panic!("{error}")));
        expect(&service, [(real, 200), (name, 429)]);
    }
    for (key, message) in [
        ("last:path", "takes no such choice"),
        ("ignore_case:bearer", "takes no such choice"),
        ("first:last:cookie:s", "chooses twice"),
        ("last:last:cookie:s", "chooses twice"),
        ("last", "is unknown"),
        ("last:", "is unknown"),
    ] {
        let fault = read(key).expect_err(key).to_string();
        assert!(fault.contains(message), "{fault}");
    }
}
