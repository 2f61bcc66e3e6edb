//! Bearer tokens and basic users.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::request::Parts;
use http::{HeaderValue, Request};
use tollgate::key;
use tollgate::policy::{AccessList, MissingKey};

use super::rig::{expect, one, policy, service, shared, with};

const AUTHORIZATION: &str = "authorization";

fn line(text: impl AsRef<[u8]>) -> Request<String> {
    one(AUTHORIZATION, text)
}

fn lines(texts: [String; 2]) -> Request<String> {
    with(texts.map(|text| (AUTHORIZATION, text)))
}

/// The token of the last line, as where lines make a map.
fn last_token(parts: &Parts) -> Option<String> {
    let line = parts.headers.get_all(AUTHORIZATION).iter().next_back()?;
    line.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned)
}

/// The first word after the scheme.
fn first_word(parts: &Parts) -> Option<String> {
    let line = parts.headers.get(AUTHORIZATION)?.to_str().ok()?;
    line.strip_prefix("Bearer ")?.split([',', ' ', '\t']).find(|word| !word.is_empty()).map(str::to_owned)
}

/// The word after the scheme where each byte is a character, and white space is that of Unicode, as in Python.
fn second_word(parts: &Parts) -> Option<String> {
    let line: String = parts.headers.get(AUTHORIZATION)?.as_bytes().iter().copied().map(char::from).collect();
    let mut words = line.split_whitespace();
    words.next().filter(|scheme| *scheme == "Bearer").and(words.next()).map(str::to_owned)
}

/// The user for a decoder that leaves out what is not base64, as Python's does.
fn user(parts: &Parts) -> Option<String> {
    let line = parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)?;
    let mut text = line.strip_prefix(b"Basic ")?.to_vec();
    text.retain(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte));
    let decoded = String::from_utf8(STANDARD_NO_PAD.decode(text).ok()?).ok()?;
    decoded.split(':').next().map(str::to_owned)
}

/// The same for one that reads bytes as Latin-1.
fn latin1_user(parts: &Parts) -> Option<String> {
    let text = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let decoded = STANDARD.decode(text).ok()?;
    let user = decoded.split(|byte| *byte == b':').next()?;
    Some(user.iter().filter(|byte| byte.is_ascii()).map(|byte| char::from(*byte)).collect())
}

fn basic(credentials: impl AsRef<[u8]>) -> Request<String> {
    line(format!("Basic {}", STANDARD.encode(credentials)))
}

#[test]
fn a_token_made_up_before_the_one_the_application_takes_starts_no_counter() {
    let real = || line("Bearer REAL");
    shared(key::bearer(), last_token, real(), |n| lines([format!("Bearer junk{n}"), "Bearer REAL".into()]));
}

#[test]
fn a_line_of_another_scheme_hides_no_token() {
    shared(key::bearer(), last_token, line("Bearer REAL"), |n| lines([format!("Basic {n}"), "Bearer REAL".into()]));
}

#[test]
fn what_follows_a_token_starts_no_counter() {
    for space in [" ", "\t", ",", ", "] {
        shared(key::bearer(), first_word, line("Bearer REAL"), |n| line(format!("Bearer REAL{space}junk{n}")));
    }
}

#[test]
fn white_space_of_latin_1_around_a_token_starts_no_counter_and_does_not_hide_it() {
    let spaces = |n: usize| vec![0xa0; n + 1];
    let real = || line("Bearer REAL");
    shared(key::bearer(), second_word, real(), |n| line([&b"Bearer REAL"[..], &spaces(n)].concat()));
    shared(key::bearer(), second_word, real(), |n| line([&b"Bearer"[..], &spaces(n), b"REAL"].concat()));
    shared(key::bearer(), second_word, real(), |n| line([&spaces(n), &b"Bearer REAL"[..]].concat()));
}

#[test]
fn white_space_around_a_token_is_no_other_client() {
    let service = service(policy(key::bearer()));
    expect(&service, [(line("Bearer REAL"), 200)]);
    for name in ["Bearer  REAL", "bearer\tREAL", "BEARER REAL \t", " Bearer REAL"] {
        expect(&service, [(line(name), 429)]);
    }
}

#[test]
fn a_denied_token_is_refused_in_whatever_way_it_is_written() {
    let service = service(policy(key::bearer()).deny(AccessList::parse(["stolen"]).expect("a token")));
    expect(&service, ["Bearer stolen", "Bearer  stolen "].map(|name| (line(name), 403)));
    expect(&service, ["Bearer stolen,x", "Bearer x stolen"].map(|name| (line(name), 400)));
    let two = ["Bearer x", "Basic x", ""].map(|other| (lines([other.into(), "Bearer stolen".into()]), 400));
    expect(&service, two);
    expect(&service, [(line("Bearer another"), 200), (line("Basic stolen"), 200)]);
}

#[test]
fn credentials_that_are_not_base64_for_all_are_limited_too() {
    let real = || basic("REAL:pw");
    let encoded = STANDARD.encode("REAL:pw");
    for junk in ["!", "!!", "*", "-", "\u{e9}", "."] {
        shared(key::basic_user(), user, real(), |n| line(format!("Basic {encoded}{}", junk.repeat(n + 1))));
    }
    let (start, end) = encoded.split_at(4);
    shared(key::basic_user(), user, real(), |n| line(format!("Basic {start}{}{end}", " ".repeat(n + 1))));
}

#[test]
fn a_user_that_is_no_utf8_is_limited_with_all_of_those() {
    shared(key::basic_user(), latin1_user, basic("REAL:pw"), |n| {
        basic([b"REAL".to_vec(), vec![0xe9; n + 1], b":pw".to_vec()].concat())
    });
}

#[test]
fn credentials_that_are_not_certain_are_refused_where_missing_ones_are() {
    let service = service(policy(key::basic_user()).missing_key(MissingKey::Deny));
    expect(&service, [(line("Basic YWRhOnB3!"), 400), (line("Basic YWRh OnB3"), 400), (basic(b"\xff:pw"), 400)]);
    expect(&service, [(line("Bearer x"), 403), (line("Basic YWRhOnB3"), 200)]);
}

#[test]
fn a_denied_user_is_refused_in_whatever_way_it_is_written() {
    let service = service(policy(key::basic_user()).deny(AccessList::parse(["ada"]).expect("a user")));
    expect(&service, [(line("Basic YWRhOnB3"), 403), (line("basic  YWRhOnB3 "), 403)]);
    // Nobody can tell whether these are she.
    expect(&service, [(line("Basic YWRhOnB3!"), 400), (line("Basic YWRhOnB3=="), 400)]);
    let both = || lines(["Basic Ym9iOnB3".into(), "Basic YWRhOnB3".into()]);
    expect(&service, [(both(), 400), (line("Basic Ym9iOnB3"), 200)]);
}

/// The token in whichever of the credentials that a proxy joined.
fn joined_token(parts: &Parts) -> Option<String> {
    let line = parts.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let token = line.split(',').find_map(|part| part.trim().strip_prefix("Bearer "))?;
    Some(token.trim().to_owned())
}

#[test]
fn a_token_that_a_proxy_joined_to_other_credentials_is_counted() {
    let real = || line("Bearer REAL");
    shared(key::bearer(), joined_token, real(), |n| line(format!("Basic junk{n}, Bearer REAL")));
    shared(key::bearer(), joined_token, real(), |n| line(format!("Digest a=\"{n}\",\tBearer REAL ,")));
}

#[test]
fn a_denied_token_is_refused_beside_other_credentials() {
    let denied = AccessList::parse(["STOLEN"]).expect("the entries are right");
    let service = service(policy(key::bearer()).deny(denied));
    expect(&service, [(line("Basic YWRhOnB3, Bearer STOLEN"), 400), (line("Digest a=\"b\", c=\"Bearer d\""), 200)]);
}
