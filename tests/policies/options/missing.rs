//! Requests without a key, for the keys that say nothing of it themselves.

use tollgate::key::{self, KeyExtractor};
use tollgate::policy::MissingKey;
use tollgate::{Policy, Quota};

use crate::rig::{and, body, expect, from, get, send, service, with};

fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("policy", Quota::per_hour(1)).key(key)
}

#[test]
fn by_default_addresses_share_and_others_are_skipped() {
    const SHARED: [u16; 2] = [200, 429];
    const SKIPPED: [u16; 2] = [200, 200];
    for (policy, expected) in [
        (policy(key::client_ip()), SHARED),
        (policy(key::peer_ip()), SHARED),
        (policy(key::route()), SHARED),
        (policy(key::cookie("session")), SKIPPED),
        (policy(key::bearer()), SKIPPED),
        (policy(key::basic_user()), SKIPPED),
        (policy(key::query("token")), SKIPPED),
        (policy(key::path_param("id")), SKIPPED),
        // Unless the policy says otherwise.
        (policy(key::client_ip()).missing_key(MissingKey::Skip), SKIPPED),
        (policy(key::client_ip()).missing_key(MissingKey::Deny), [403, 403]),
        (policy(key::bearer()).missing_key(MissingKey::Share), SHARED),
    ] {
        expect(&service(policy), expected.map(|status| (get(), status)));
    }
}

#[test]
fn those_without_a_key_share_no_counter_with_those_who_have_one() {
    let service = service(policy(key::header("x-user").plain()).missing_key(MissingKey::Share));
    let users = ["", "anonymous", "anonymous:"].map(|user| (with("x-user", user), 200));
    expect(&service, [(get(), 200)].into_iter().chain(users).chain([(get(), 429)]));
}

#[test]
fn a_join_lacks_its_key_if_one_of_the_two_is_lacking_and_the_refusal_says_no_more_than_that() {
    let service = service(policy((key::client_ip(), key::bearer())).missing_key(MissingKey::Deny));
    let bearer = |request| and(request, "authorization", "Bearer abc");
    expect(&service, [(from("10.0.0.1"), 403), (bearer(get()), 403), (bearer(from("10.0.0.1")), 200)]);
    let expected = concat!(
        r#"{"type":"about:blank","title":"Forbidden","status":403,"#,
        r#""detail":"The request does not identify its client."}"#
    );
    assert_eq!(body(send(&service, get())), expected);
}
