//! Requests without a key, for the keys that say nothing of it themselves.

use http::HeaderValue;
use tollgate::key::{self, KeyExtractor};
use tollgate::policy::MissingKey;
use tollgate::{Policy, Quota};

use super::rig::{Rig, Service, body, expect, from, get, now, with};

const ONE: Quota = Quota::per_hour(1);

fn service(key: impl KeyExtractor, rule: Option<MissingKey>) -> Service {
    let policy = Policy::new("policy", ONE).key(key);
    Rig::memory().service([rule.into_iter().fold(policy, Policy::missing_key)])
}

/// Two requests without a key.
#[track_caller]
fn without(key: impl KeyExtractor, rule: Option<MissingKey>, expected: [u16; 2]) {
    let service = service(key, rule);
    for status in expected {
        expect(&service, get(), status);
    }
}

#[test]
fn by_default_addresses_share_and_others_are_skipped() {
    without(key::client_ip(), None, [200, 429]);
    without(key::peer_ip(), None, [200, 429]);
    without(key::cookie("session"), None, [200, 200]);
    without(key::bearer(), None, [200, 200]);
    without(key::basic_user(), None, [200, 200]);
    without(key::query("token"), None, [200, 200]);
    without(key::path_param("id"), None, [200, 200]);
    without(key::route(), None, [200, 429]);
}

#[test]
fn each_key_can_be_refused_or_shared_or_skipped_where_it_lacks() {
    without(key::client_ip(), Some(MissingKey::Skip), [200, 200]);
    without(key::client_ip(), Some(MissingKey::Deny), [403, 403]);
    without(key::cookie("session"), Some(MissingKey::Share), [200, 429]);
    without(key::cookie("session"), Some(MissingKey::Deny), [403, 403]);
    without(key::bearer(), Some(MissingKey::Share), [200, 429]);
    without(key::bearer(), Some(MissingKey::Deny), [403, 403]);
    without(key::query("token"), Some(MissingKey::Share), [200, 429]);
    without(key::basic_user(), Some(MissingKey::Deny), [403, 403]);
}

#[test]
fn a_credential_of_another_kind_is_a_missing_one() {
    let service = service(key::bearer(), Some(MissingKey::Deny));
    for (value, status) in [("Bearer abc", 200), ("Basic abc", 403), ("Bearerabc", 403), ("", 403)] {
        expect(&service, with("authorization", value), status);
    }
}

#[test]
fn those_without_a_key_share_no_counter_with_those_who_have_one() {
    let service = service(key::header("x-user").plain(), Some(MissingKey::Share));
    expect(&service, get(), 200);
    for user in ["", "anonymous", "anonymous:"] {
        expect(&service, with("x-user", user), 200);
    }
    expect(&service, get(), 429);
}

#[test]
fn a_join_lacks_its_key_if_one_of_the_two_is_lacking() {
    let joined = || (key::client_ip(), key::bearer());
    let service = service(joined(), Some(MissingKey::Deny));
    let mut both = from("10.0.0.1");
    both.headers_mut().insert("authorization", HeaderValue::from_static("Bearer abc"));
    expect(&service, from("10.0.0.1"), 403);
    expect(&service, with("authorization", "Bearer abc"), 403);
    expect(&service, both, 200);
}

#[test]
fn the_refusal_says_what_is_lacking_and_no_more() {
    let response = now(&service(key::bearer(), Some(MissingKey::Deny)), get());
    let expected = concat!(
        r#"{"type":"about:blank","title":"Forbidden","status":403,"#,
        r#""detail":"The request does not identify its client."}"#
    );
    assert_eq!(body(response), expected);
}
