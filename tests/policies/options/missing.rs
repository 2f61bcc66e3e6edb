//! Requests without a key, for the keys that say nothing of it themselves.

use tollgate::key::{self, KeyExtractor};
use tollgate::policy::MissingKey;
use tollgate::{Policy, Quota};

use crate::rig::{body, expect, from, get, send, service};

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
fn a_refusal_for_a_missing_key_says_no_more_than_that() {
    let service = service(policy((key::client_ip(), key::bearer())).missing_key(MissingKey::Deny));
    let expected = concat!(
        r#"{"type":"about:blank","title":"Forbidden","status":403,"#,
        r#""detail":"The request does not identify its client."}"#
    );
    assert_eq!(body(send(&service, from("10.0.0.1"))), expected, "a join lacks its key if one of the two is lacking");
}
