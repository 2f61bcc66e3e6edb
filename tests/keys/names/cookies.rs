//! Cookies, as axum-extra's `CookieJar` and others read them.

use axum_extra::extract::CookieJar;
use http::request::Parts;
use http::{HeaderValue, Request};
use tollgate::key;
use tollgate::policy::AccessList;

use super::rig::{expect, one, policy, same, service, shared, with};

const COOKIE: &str = "cookie";

/// The session as a handler gets it.
fn jar(parts: &Parts) -> Option<String> {
    CookieJar::from_headers(&parts.headers).get("session").map(|cookie| cookie.value().to_owned())
}

/// The same without quotes.
fn trimmed(parts: &Parts) -> Option<String> {
    CookieJar::from_headers(&parts.headers).get("session").map(|cookie| cookie.value_trimmed().to_owned())
}

/// The first of several, as Go's `Request.Cookie` and Express have it: names as they are, and what is not
/// well-formed left out.
fn first(parts: &Parts) -> Option<String> {
    let lines = parts.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let text = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>().join(";");
    let mut values = text.split(';').filter_map(|pair| pair.trim().strip_prefix("session="));
    values.find(|value| !value.contains(['"', '\\'])).map(str::to_owned)
}

/// The last one, with white space of any script trimmed around names and values, as servers that read a line as UTF-8 do.
fn wide(parts: &Parts) -> Option<String> {
    let lines = parts.headers.get_all(COOKIE).iter();
    last(lines.filter_map(|line| String::from_utf8(line.as_bytes().into()).ok()))
}

/// The same of servers that read each byte as a character, such as Starlette and Node.js.
fn latin(parts: &Parts) -> Option<String> {
    let lines = parts.headers.get_all(COOKIE).iter();
    last(lines.map(|line| line.as_bytes().iter().copied().map(char::from).collect()))
}

fn last(lines: impl Iterator<Item = String>) -> Option<String> {
    let text = lines.collect::<Vec<_>>().join(";");
    let mut pairs = text.split(';').filter_map(|pair| pair.split_once('='));
    pairs.rfind(|(name, _)| name.trim() == "session").map(|(_, value)| value.trim().to_owned())
}

fn session() -> key::ValueKey {
    key::cookie("session")
}

fn line(text: impl AsRef<[u8]>) -> Request<String> {
    one(COOKIE, text)
}

fn real() -> Request<String> {
    line("session=REAL")
}

#[test]
fn a_cookie_made_up_before_the_one_the_application_takes_starts_no_counter() {
    shared(session(), jar, real(), |n| line(format!("session=junk{n}; session=REAL")));
}

#[test]
fn a_cookie_made_up_in_a_line_of_its_own_starts_no_counter() {
    shared(session(), jar, real(), |n| with([(COOKIE, format!("session=junk{n}")), (COOKIE, "session=REAL".into())]));
}

#[test]
fn a_cookie_made_up_after_the_one_the_application_takes_starts_no_counter() {
    shared(session(), first, real(), |n| line(format!("session=REAL; session=junk{n}")));
}

#[test]
fn a_percent_encoded_value_is_the_same_client() {
    same(session(), jar, real(), ["session=%52EAL", "session=R%45A%4c", "session=%52%45%41%4C"].map(line));
}

#[test]
fn a_percent_encoded_name_is_the_same_client() {
    same(session(), jar, real(), ["%73ession=REAL", "sessio%6e=REAL", "%73ession=%52EAL"].map(line));
}

#[test]
fn a_percent_encoded_name_does_not_hide_the_value_the_application_takes() {
    shared(session(), jar, real(), |n| line(format!("session=junk{n}; %73ession=REAL")));
}

#[test]
fn quotes_and_white_space_are_no_other_client_however_they_are_written() {
    let names = ["session=\"REAL\"", "session= REAL ;x", "session=%22REAL%22", "session = \"%52EAL\""];
    same(session(), trimmed, real(), names.map(line));
}

#[test]
fn a_line_that_is_no_text_does_not_hide_the_value_the_application_takes() {
    let hidden = |n: usize| [format!("session=junk{n}; x=").as_bytes(), b"\xff"].concat();
    shared(session(), jar, real(), |n| with([(COOKIE, hidden(n)), (COOKIE, b"session=REAL".to_vec())]));
}

#[test]
fn a_value_with_a_lone_quote_does_not_hide_the_one_the_application_takes() {
    shared(session(), first, real(), |n| line(format!("session=\"junk{n}; session=REAL")));
}

#[test]
fn a_denied_session_is_refused_in_whatever_way_it_is_written() {
    let service = service(policy(session()).deny(AccessList::parse(["stolen"]).expect("a value")));
    let names = ["session=stolen", "session=%73tolen", "%73ession=stolen", "session=\"%73tolen\""];
    expect(&service, names.map(|name| (line(name), 403)));
    expect(&service, ["session=junk; session=stolen", "session=stolen; session=junk"].map(|two| (line(two), 400)));
    expect(&service, [(line("session=another"), 200)]);
}

#[test]
fn a_value_in_several_pairs_of_quotes_is_the_same_client_with_some_of_them_encoded() {
    let quoted = |parts: &Parts| jar(parts).filter(|value| value == "\"\"REAL\"\"").map(|_| "REAL".to_owned());
    let names = ["session=%22%22REAL%22%22", "session=\"%22REAL%22\"", "session=%22\"REAL\"%22"];
    same(session(), quoted, line("session=\"\"REAL\"\""), names.map(line));
}

#[test]
fn white_space_of_another_script_around_a_value_starts_no_counter() {
    let spaced = |n: usize| line(format!("session={}REAL{}", "\u{a0}".repeat(n + 1), "\u{3000}".repeat(n)));
    shared(session(), wide, real(), spaced);
    shared(session().last(), wide, real(), spaced);
}

#[test]
fn white_space_of_another_script_around_a_name_does_not_hide_the_cookie() {
    shared(session(), wide, real(), |n| line(format!("{}session\u{85}=REAL", "\u{a0}".repeat(n))));
    let raw = |n: usize| [&vec![0xa0; n + 1], &b"session\x85=REAL"[..]].concat();
    shared(session(), latin, real(), |n| line(raw(n)));
    shared(session().last(), latin, real(), |n| {
        with([(COOKIE, format!("session=junk{n}").into_bytes()), (COOKIE, raw(n))])
    });
}
