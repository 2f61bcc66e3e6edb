//! Bearer tokens, and users of basic authentication.

use axum_extra::headers::HeaderMapExt;
use axum_extra::headers::authorization::{Authorization, Basic, Bearer};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::header::AUTHORIZATION;
use http::request::Parts;
use tollgate::key;
use tonic::metadata::MetadataMap;

use super::{Choices, Kind, Spelling, app};

const NAME: &str = "authorization";

pub(super) fn bearers() -> Kind {
    let bearer = |token: &str| Spelling::with(NAME, [format!("Bearer {token}")]);
    let app = |name, sees| app(name, sees, bearer, [key::bearer()]);
    let apps = vec![
        app("TypedHeader<Authorization<Bearer>>", |parts| {
            Some(parts.headers.typed_get::<Authorization<Bearer>>()?.token().to_owned())
        }),
        app("the first line after the scheme", |parts| after_scheme(&first(parts)?, "bearer")),
        app("the last line after the scheme", |parts| after_scheme(&last(parts)?, "bearer")),
        app("any line after the scheme", |parts| lines(parts).find_map(|line| after_scheme(&line, "bearer"))),
        app("the second word", |parts| word(&first(parts)?, "bearer")),
        app("the second word, parameters apart", |parts| {
            let line = lines(parts).collect::<Vec<_>>().join(",");
            line.split(',').find_map(|part| word(part, "bearer"))
        }),
        app("tonic's metadata, by the exact scheme", |parts| {
            let metadata = MetadataMap::from_headers(parts.headers.clone());
            Some(metadata.get(NAME)?.to_str().ok()?.strip_prefix("Bearer ")?.to_owned())
        }),
    ];
    Kind { name: "bearer", spell: |choices| spell(choices, token), is_routed: false, shared: None, apps }
}

pub(super) fn users() -> Kind {
    let plain = |user: &str| Spelling::with(NAME, [format!("Basic {}", STANDARD.encode(format!("{user}:pw")))]);
    let cased = || key::basic_user().plain().ignore_case();
    let app = |name, sees| app(name, sees, plain, [key::basic_user().plain(), cased()]);
    let apps = vec![
        app("TypedHeader<Authorization<Basic>>", typed),
        super::app("the same in lower case", |parts| Some(typed(parts)?.to_ascii_lowercase()), plain, [cased()]),
        app("a decoder that skips what is no base64", |parts| user(&after_scheme(&first(parts)?, "basic")?, lenient)),
        app("the same, of the last line", |parts| user(&after_scheme(&last(parts)?, "basic")?, lenient)),
        app("the second word", |parts| user(&word(&first(parts)?, "basic")?, lenient)),
        app("the second word up to padding", |parts| user(&word(&first(parts)?, "basic")?, up_to_padding)),
        app("any line", |parts| user(&lines(parts).find_map(|line| after_scheme(&line, "basic"))?, lenient)),
    ];
    Kind { name: "basic_user", spell: |choices| spell(choices, credentials), is_routed: false, shared: None, apps }
}

fn spell(choices: &mut Choices<'_>, credentials: fn(&mut Choices<'_>) -> String) -> Spelling {
    let lines = choices.lines(|choices| {
        let scheme = choices.pick(&["Bearer", "Basic", "Basic", "Bearer", "Digest", "", "Bearer,", "Token"]);
        let (scheme, space) = (choices.cased(scheme), choices.pick(&[" ", " ", " ", "  ", "\t", " \t", ""]));
        let line = format!("{scheme}{space}{}", credentials(choices));
        choices.spaced(&line).into_bytes()
    });
    Spelling::with(NAME, lines)
}

fn token(choices: &mut Choices<'_>) -> String {
    match choices.below(4) {
        0 => choices.text(&["REAL", " ", "\t", ",", "\"", "=", "x", "Bearer ", ", "], 5),
        1 => choices.pick(&["real", "Other", "RE AL", "REAL,", "\"REAL\"", ""]).to_owned(),
        _ => "REAL".to_owned(),
    }
}

fn credentials(choices: &mut Choices<'_>) -> String {
    let user = choices.pick(&["ada", "ada", "ADA", "a da", " ada", "", "caf\u{e9}", "ad\u{1}", "x?y>z~"]);
    let password = choices.pick(&[":pw", ":pw", ":", ":p:w", "", ":passw", ":pass??>>"]);
    let pair = [user.as_bytes(), choices.pick(&[&b""[..], b"", b"", b"\xff"]), password.as_bytes()].concat();
    let mut text = if choices.one_in(4) { STANDARD_NO_PAD.encode(pair) } else { STANDARD.encode(pair) };
    if choices.one_in(4) {
        text = text.replace('+', "-").replace('/', "_");
    }
    if choices.one_in(3) {
        let at = choices.below(text.len().max(1));
        text.insert_str(at.min(text.len()), choices.pick(&[" ", "=", "!", "\t", ",", "\"", "==", ".", "A"]));
    }
    text
}

fn lines(parts: &Parts) -> impl DoubleEndedIterator<Item = String> {
    let lines = parts.headers.get_all(AUTHORIZATION).iter();
    lines.map(|line| String::from_utf8_lossy(line.as_bytes().trim_ascii()).into_owned())
}

fn first(parts: &Parts) -> Option<String> {
    lines(parts).next()
}

fn last(parts: &Parts) -> Option<String> {
    lines(parts).next_back()
}

/// What follows a scheme in any case, and white space.
fn after_scheme(line: &str, scheme: &str) -> Option<String> {
    let (found, rest) = line.split_once([' ', '\t'])?;
    found.eq_ignore_ascii_case(scheme).then(|| rest.trim().to_owned())
}

/// The word after the scheme.
fn word(line: &str, scheme: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    if words.next()?.eq_ignore_ascii_case(scheme) { words.next().map(str::to_owned) } else { None }
}

fn typed(parts: &Parts) -> Option<String> {
    Some(parts.headers.typed_get::<Authorization<Basic>>()?.username().to_owned())
}

fn user(credentials: &str, decode: fn(&str) -> Vec<u8>) -> Option<String> {
    let decoded = String::from_utf8(decode(credentials)).ok()?;
    decoded.split_once(':').map(|(user, _)| user.to_owned())
}

/// As Python and Node read it: letters of both alphabets, and nothing else matters.
fn lenient(text: &str) -> Vec<u8> {
    let bits = text.bytes().filter_map(|byte| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    });
    let sixes: Vec<u32> = bits.map(u32::from).collect();
    let groups = sixes.chunks(4).flat_map(|group| {
        let bits = group.iter().fold(0, |bits, six| bits << 6 | six) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..].iter().copied().take(group.len() * 6 / 8).collect::<Vec<u8>>()
    });
    groups.collect()
}

/// The same, which ends at the first padding.
fn up_to_padding(text: &str) -> Vec<u8> {
    lenient(text.split('=').next().unwrap_or_default())
}
