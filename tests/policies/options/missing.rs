//! Requests without a key, for the keys that say nothing of it themselves.

use tollgate::key::{self, KeyExtractor};
use tollgate::policy::MissingKey;
use tollgate::{Policy, Quota};

use crate::rig::{Rig, Service, and, body, expect, from, get, now, with};

fn service(key: impl KeyExtractor, rule: Option<MissingKey>) -> Service {
    let policy = Policy::new("policy", Quota::per_hour(1)).key(key);
    Rig::memory().service([rule.into_iter().fold(policy, Policy::missing_key)])
}

/// Two requests without a key.
#[track_caller]
fn without(key: impl KeyExtractor, rule: Option<MissingKey>, expected: [u16; 2]) {
    expect(&service(key, rule), expected.map(|status| (get(), status)));
}

#[test]
fn by_default_addresses_share_and_others_are_skipped() {
    without(key::client_ip(), None, [200, 429]);
    without(key::peer_ip(), None, [200, 429]);
    without(key::route(), None, [200, 429]);
    without(key::cookie("session"), None, [200, 200]);
    without(key::bearer(), None, [200, 200]);
    without(key::basic_user(), None, [200, 200]);
    without(key::query("token"), None, [200, 200]);
    without(key::path_param("id"), None, [200, 200]);
}

#[test]
fn each_key_can_be_refused_or_shared_or_skipped_where_it_lacks() {
    without(key::client_ip(), Some(MissingKey::Skip), [200, 200]);
    without(key::client_ip(), Some(MissingKey::Deny), [403, 403]);
    without(key::bearer(), Some(MissingKey::Share), [200, 429]);
    without(key::bearer(), Some(MissingKey::Deny), [403, 403]);
    without(key::query("token"), Some(MissingKey::Share), [200, 429]);
}

#[test]
fn those_without_a_key_share_no_counter_with_those_who_have_one() {
    let service = service(key::header("x-user").plain(), Some(MissingKey::Share));
    let users = ["", "anonymous", "anonymous:"].map(|user| (with("x-user", user), 200));
    expect(&service, [(get(), 200)].into_iter().chain(users).chain([(get(), 429)]));
}

#[test]
fn a_join_lacks_its_key_if_one_of_the_two_is_lacking_and_the_refusal_says_no_more_than_that() {
    let service = service((key::client_ip(), key::bearer()), Some(MissingKey::Deny));
    let bearer = ("authorization", "Bearer abc");
    let both = and(from("10.0.0.1"), bearer.0, bearer.1);
    expect(&service, [(from("10.0.0.1"), 403), (with(bearer.0, bearer.1), 403), (both, 200)]);
    let expected = concat!(
        r#"{"type":"about:blank","title":"Forbidden","status":403,"#,
        r#""detail":"The request does not identify its client."}"#
    );
    assert_eq!(body(now(&service, get())), expected);
}
