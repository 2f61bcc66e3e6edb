//! Whatever bytes clients send.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::key::{self, ClientIp, KeyExtractor, client_ip};

use super::{head, head_from};

const XFF: &str = "x-forwarded-for";
const FWD: &str = "forwarded";

/// Bytes that a header may hold.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let any = any::<u8>().prop_filter_map("no control characters", |byte| {
        (byte == b'\t' || (byte >= b' ' && byte != 127)).then_some(byte)
    });
    let telling = prop::sample::select(b"for=,;\"\\[]:%._ 0123456789".to_vec());
    let word = prop::sample::select(vec!["for=", "10.0.0.2", "198.51.100.66", "\"[::1]:80\"", ", ", ";", "unknown"]);
    prop_oneof![vec(any, 0..200), vec(telling, 0..200), vec(word, 0..100).prop_map(|words| words.concat().into_bytes()),]
}

fn settings() -> impl Strategy<Value = (ClientIp, &'static str)> {
    let trusted = client_ip().trusted_proxies(["10.0.0.0/8"]);
    prop::sample::select(vec![
        (trusted.clone(), XFF),
        (trusted.clone().forwarded(), FWD),
        (trusted.header("x-real-ip"), "x-real-ip"),
    ])
}

/// A header, what a proxy appends to it, and the client of whom that tells.
fn appended() -> impl Strategy<Value = (&'static str, &'static str, &'static str)> {
    prop::sample::select(vec![
        (XFF, "203.0.113.9", "203.0.113.9"),
        (XFF, "[2001:db8::9]:443", "2001:db8::9"),
        (FWD, "for=203.0.113.9;proto=https", "203.0.113.9"),
        (FWD, "for=\"[2001:db8::9]:443\"", "2001:db8::9"),
        (FWD, r#"proto=https;host="\"a, b\\";for="203.0.113.9:80""#, "203.0.113.9"),
    ])
}

fn of(header: &str, setting: ClientIp) -> ClientIp {
    if header == FWD { setting.forwarded() } else { setting }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_sends((setting, header) in settings(), lines in vec(line(), 0..5)) {
        let client = setting.address(&head_from("203.0.113.9", header, &lines));
        prop_assert_eq!(client, Some(IpAddr::from([203, 0, 113, 9])));
    }

    #[test]
    fn no_bytes_make_the_walk_panic((setting, header) in settings(), lines in vec(line(), 0..5), hops in 0..9_usize) {
        let parts = head_from("10.0.0.1", header, &lines);
        prop_assert!(setting.address(&parts).is_some());
        prop_assert!(setting.trusted_hops(hops).address(&parts).is_some());
    }

    #[test]
    fn what_the_trusted_proxy_appends_is_the_client_whatever_stands_left_of_it(
        (header, hop, client) in appended(),
        mut lines in vec(line(), 1..4),
        same_line: bool,
    ) {
        if same_line {
            lines.last_mut().unwrap().extend([b", ", hop.as_bytes()].concat());
        } else {
            lines.push(hop.as_bytes().to_vec());
        }
        let parts = head_from("10.0.0.1", header, &lines);
        let client = Some(client.parse().unwrap());
        prop_assert_eq!(of(header, client_ip().trusted_proxies(["10.0.0.0/8"])).address(&parts), client);
        prop_assert_eq!(of(header, client_ip().trusted_hops(1)).address(&parts), client);
    }

    #[test]
    fn no_bytes_make_a_key_panic(lines in vec(line(), 1..3)) {
        for header in ["cookie", "authorization", "host"] {
            let parts = head(header, &lines);
            let keys: [Box<dyn Fn() -> bool>; 4] = [
                Box::new(|| answers(&key::cookie("for"), &parts)),
                Box::new(|| answers(&key::bearer(), &parts)),
                Box::new(|| answers(&key::basic_user(), &parts)),
                Box::new(|| answers(&key::host(), &parts)),
            ];
            prop_assert!(keys.iter().all(|key| key()));
        }
    }
}

fn answers(key: &impl KeyExtractor, parts: &http::request::Parts) -> bool {
    matches!(key.extract(parts), tollgate::store::MaybeFuture::Ready(_))
}
