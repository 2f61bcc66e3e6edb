//! A cookie.

use std::borrow::Cow;

use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::Cookie;
use http::header::COOKIE;
use http::request::Parts;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tollgate::key::{self, ValueKey};

use super::{Choices, Kind, Spelling, app};

const NAME: &str = "cookie";

pub(super) fn kind() -> Kind {
    let session = || key::cookie("s").plain();
    let (first, last) = (|| [session(), session().first()], || [session(), session().last()]);
    let apps = vec![
        app("CookieJar", jar, encoded, [session(), session().last(), key::cookie("s").last()]),
        app(
            "CookieJar in lower case",
            |parts| Some(jar(parts)?.to_ascii_lowercase()),
            encoded,
            last().map(ValueKey::ignore_case),
        ),
        app("actix-web", actix, encoded, first()),
        app("Go", |parts| go(parts, true), as_it_is, first()),
        app("Go, names as they are", |parts| go(parts, false), as_it_is, first()),
        app("Express", express, as_it_is, first()),
        app("Rack", rack, as_it_is, first()),
        app("Starlette", |parts| starlette(&lines(parts)), as_it_is, last()),
        app("a server that reads bytes as characters", |parts| starlette(&latin(parts)), as_it_is, last()),
    ];
    Kind { name: "cookie", spell, is_routed: false, shared: None, apps }
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    const PIECES: &[&str] = &[
        "s=", "s=REAL", "%73=", "s=%52EAL", "; ", ";", "\"", "\\", "%", "%FF", "%22", "%20", " ", "\t", "\u{e9}", "=",
        "x", ",", "s", "s =", "+", "\u{a0}", "\u{85}",
    ];
    let lines = choices.lines(|choices| {
        let many = choices.pick(&[1, 1, 1, 2, 2, 3]);
        let pairs: Vec<String> = (0..many).map(|_| pair(choices)).collect();
        let line = if choices.one_in(4) {
            choices.text(PIECES, 8)
        } else {
            pairs.join(choices.pick(&["; ", "; ", ";", " ; ", ";;", ";\t", ", "]))
        };
        // What is no text, as a whole or at its end.
        match choices.below(16) {
            0 => line.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect(),
            1 => [line.as_bytes(), b"; x=\xff"].concat(),
            _ => line.into_bytes(),
        }
    });
    let lines = lines.into_iter().map(|line| line.trim_ascii().to_vec());
    Spelling::with(NAME, lines)
}

fn pair(choices: &mut Choices<'_>) -> String {
    let name = choices.pick(&["s", "s", "s", "s", "x", "S", "ss"]);
    let value = choices.pick(&["REAL", "REAL", "Other", "RE AL", "", "a\"b", "caf\u{e9}", "a+b", "100%", "a;b", "a=b"]);
    let (name, value) = (choices.encoded(name), choices.encoded(value));
    let quoted = match choices.below(8) {
        0 => format!("\"{value}\""),
        1 => format!("%22{value}%22"),
        2 => choices.pick(&["\"REAL", "REAL\"", "\"RE\\\"AL\"", "\"\\122EAL\"", "\"\"REAL\"\""]).to_owned(),
        _ => value,
    };
    let (name, value) = (choices.spaced(&name), choices.spaced(&quoted));
    match choices.below(16) {
        0 => format!("\u{a0}{name}={value}"),
        1 => format!("{name}=\u{a0}{value}"),
        _ => format!("{name}={value}"),
    }
}

fn encoded(client: &str) -> Spelling {
    as_it_is(&utf8_percent_encode(client, NON_ALPHANUMERIC).to_string())
}

fn as_it_is(client: &str) -> Spelling {
    Spelling::with(NAME, [format!("s={client}")])
}

fn jar(parts: &Parts) -> Option<String> {
    CookieJar::from_headers(&parts.headers).get("s").map(|cookie| cookie.value().to_owned())
}

/// The first that can be decoded.
fn actix(parts: &Parts) -> Option<String> {
    let lines = parts.headers.get_all(COOKIE).iter().filter_map(|line| std::str::from_utf8(line.as_bytes()).ok());
    let mut cookies = lines.flat_map(Cookie::split_parse_encoded).filter_map(Result::ok);
    cookies.find(|cookie| cookie.name() == "s").map(|cookie| cookie.value().to_owned())
}

fn lines(parts: &Parts) -> Vec<String> {
    let lines = parts.headers.get_all(COOKIE).iter();
    lines.map(|line| String::from_utf8_lossy(line.as_bytes().trim_ascii()).into_owned()).collect()
}

/// The names and values of cookies; those without a value have an empty one.
fn pairs(lines: &[String]) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    let pairs = lines.iter().flat_map(|line| line.split(';')).map(str::trim);
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The first value that has no byte which none may have: Go's rule, which trims names, and did not.
fn go(parts: &Parts, trims: bool) -> Option<String> {
    let lines = lines(parts);
    let has_name = |name: &str| (if trims { name.trim() } else { name }) == "s";
    let may_stand = |byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
    let mut values = pairs(&lines).filter(|(name, _)| has_name(name)).map(|(_, value)| unquoted(value));
    values.find(|value| value.bytes().all(may_stand)).map(str::to_owned)
}

/// The first that is a pair, decoded if it can be.
fn express(parts: &Parts) -> Option<String> {
    let line = lines(parts).join("; ");
    let mut pairs = line.split(';').filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(name, _)| name.trim() == "s").map(|(_, value)| unquoted(value.trim()))?;
    Some(percent_decode_str(value).decode_utf8().map_or_else(|_| value.to_owned(), Cow::into_owned))
}

/// The first value, whatever it is, of the name as it stands.
fn rack(parts: &Parts) -> Option<String> {
    let line = lines(parts).join("; ");
    let mut pairs = line.split(';').map(|pair| pair.trim_start_matches(' '));
    pairs.find_map(|pair| pair.strip_prefix("s=")).map(str::to_owned)
}

/// The last of whatever values.
fn starlette(lines: &[String]) -> Option<String> {
    let last = pairs(lines).rfind(|(name, _)| name.trim() == "s");
    last.map(|(_, value)| unquoted(value.trim()).to_owned())
}

/// The lines, with a character for each byte.
fn latin(parts: &Parts) -> Vec<String> {
    let lines = parts.headers.get_all(COOKIE).iter();
    lines.map(|line| line.as_bytes().iter().copied().map(char::from).collect()).collect()
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}
