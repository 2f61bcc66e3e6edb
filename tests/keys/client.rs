//! The client's address: peer, setting, headers, and who it is, whatever bytes are sent.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::extract::connect_info::MockConnectInfo;
use http::request::Parts;
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::key::{self, ClientIp, KeyExtractor, client_ip};
use tollgate::policy::MissingKey;

use super::rig::{by, text, with};

const XFF: &str = "x-forwarded-for";
const FWD: &str = "forwarded";
const REAL: &str = "x-real-ip";

/// A client's address, one that an attacker writes, and the proxy that asks.
const CLIENT: &str = "203.0.113.9";
const EVIL: &str = "198.51.100.66";
const PROXY: &str = "10.0.0.1";
const NONE: &[&str] = &[];

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn head(peer: &str, header: &'static str, lines: &[impl AsRef<[u8]>]) -> Parts {
    by(peer, with(header, lines)).into_parts().0
}

#[track_caller]
fn row(setting: &ClientIp, peer: &str, header: &'static str, lines: &[impl AsRef<[u8]>], client: &str) {
    assert_eq!(setting.address(&head(peer, header, lines)), Some(address(client)));
}

/// Requests of the proxy with one line each.
#[track_caller]
fn rows(setting: &ClientIp, header: &'static str, lines: &[impl AsRef<[u8]>], client: &str) {
    for line in lines {
        let found = setting.address(&head(PROXY, header, &[line]));
        assert_eq!(found, Some(address(client)), "{}", line.as_ref().escape_ascii());
    }
}

/// Trusts private networks.
fn nets() -> ClientIp {
    client_ip().trusted_proxies(["10.0.0.0/8", "fc00::/7"])
}

fn hops(proxies: usize) -> ClientIp {
    client_ip().trusted_hops(proxies)
}

#[test]
fn headers_count_from_trusted_peers_only_and_of_the_chosen_name() {
    let element = format!("for={EVIL}");
    let nobody = || client_ip().trusted_proxies([""; 0]);
    for setting in [client_ip(), nobody(), nets(), hops(0), hops(1).trusted_proxies([""; 0]), nets().trusted_hops(0)] {
        for peer in [CLIENT, "127.0.0.1", "2001:db8::9"] {
            row(&setting, peer, XFF, &[EVIL, "10.0.0.1, 10.0.0.2"], peer);
            row(&setting.clone().forwarded(), peer, FWD, &[&element], peer);
            row(&setting.clone().header(REAL), peer, REAL, &[EVIL], peer);
        }
    }
    row(&nets(), PROXY, FWD, &[&element], PROXY);
    row(&nets().forwarded(), PROXY, XFF, &[EVIL], PROXY);
    row(&nets().header(REAL), PROXY, XFF, &[EVIL], PROXY);
    row(&nets().forwarded().header(REAL), PROXY, FWD, &[&element], PROXY);
}

#[test]
fn the_first_untrusted_address_from_the_right_is_the_client() {
    let chains = [
        CLIENT,
        "198.51.100.66, 10.0.0.9, 203.0.113.9, 10.0.0.2",
        // Empty elements and spaces do not count.
        " , 203.0.113.9 ,\t, ",
        "\t 203.0.113.9 \t,,\t 10.0.0.2 \t",
        // Ports, brackets and zones are dropped.
        "203.0.113.9:567, 10.0.0.2:65535",
        "203.0.113.9, fd00::2%eth0, [fd00::2]:80",
        "[::ffff:cb00:7109]:443, ::ffff:10.0.0.2",
    ];
    rows(&nets(), XFF, &chains, CLIENT);
    row(&nets(), "fd00::1", XFF, &["203.0.113.9, fd00::2"], CLIENT);
    row(&client_ip().trusted_proxies(["::ffff:10.0.0.0/104"]), PROXY, XFF, &[CLIENT], CLIENT);
    row(&client_ip().trusted_proxies(["::/0"]), "::ffff:10.0.0.1", XFF, &[EVIL], PROXY);
    rows(&nets(), XFF, &["2001:db8::9", "[2001:DB8:0::9]", "[2001:db8::9]:443, fd00::3"], "2001:db8::9");
    rows(&nets(), XFF, &["fe80::1%eth0", "[fe80::1%25eth0]:443"], "fe80::1");
    // Repeated lines are one list.
    row(&nets(), PROXY, XFF, &[EVIL, "203.0.113.9, 10.0.0.3", "10.0.0.2", "", " "], CLIENT);
    row(&nets().forwarded(), PROXY, FWD, &["for=\"198.51.100.66", "for=203.0.113.9"], CLIENT);
    // The left-most one, if all are trusted.
    row(&nets(), PROXY, XFF, NONE, PROXY);
    rows(&nets(), XFF, &["", " ,, "], PROXY);
    row(&nets(), PROXY, XFF, &["10.0.0.3", "10.0.0.2"], "10.0.0.3");
    // Those that are counted are trusted wherever they are.
    let peer = "192.0.2.1";
    row(&hops(1), peer, XFF, &["198.51.100.66, 203.0.113.9"], CLIENT);
    row(&hops(3), peer, XFF, &["198.51.100.66, 203.0.113.9", "192.0.2.3,, 192.0.2.2,"], CLIENT);
    row(&hops(2), peer, XFF, &["198.51.100.66, junk, 192.0.2.2"], "192.0.2.2");
    row(&hops(1).forwarded(), peer, FWD, &["for=198.51.100.66, for=203.0.113.9"], CLIENT);
    row(&hops(5).header(REAL), peer, REAL, &[CLIENT], CLIENT);
    row(&hops(9), peer, XFF, &["203.0.113.9, 10.0.0.2"], CLIENT);
    row(&hops(9), peer, XFF, NONE, peer);
}

#[test]
fn a_malformed_hop_ends_the_walk_at_the_proxy_before_it() {
    let names = ["unknown", "junk", "\"10.0.0.2\"", "client.example", "for=10.0.0.2", "203.0.113.９", "\u{a0}10.0.0.2"];
    let numbers = ["10.0.0.256", "010.0.0.2", "1.2.3", "3405803785", "10.0.0.0/8", "10.0.0.2 10.0.0.3"];
    let ports = ["10.0.0.2:", "10.0.0.2:65536", "10.0.0.2:+80", "10.0.0.2%eth0", "[10.0.0.2]:80", ":"];
    let brackets = ["[2001:db8::9", "[2001:db8::9]80", "2001:db8::9]", "[]"];
    for hop in names.iter().chain(&numbers).chain(&ports).chain(&brackets) {
        row(&nets(), PROXY, XFF, &[format!("198.51.100.66, {hop}")], PROXY);
        row(&nets(), PROXY, XFF, &[format!("198.51.100.66, {hop}, 10.0.0.2")], "10.0.0.2");
    }
    let hidden = ["for=unknown", "for=\"_hidden:80\"", "proto=https", "for=198.51.100.66;for=198.51.100.67", "for="];
    let bare = ["198.51.100.66", "for=198.51.100.66 junk=1", "for=198.51.100.66;junk", "for=198.51.100.66;host=a\"b\""];
    let quoted = ["for=198.51.100.66\"", "for=\"198.51.100.66\"junk", r#"for="198.51.100.6\6""#];
    for hop in hidden.iter().chain(&bare).chain(&quoted) {
        row(&nets().forwarded(), PROXY, FWD, &[format!("for=198.51.100.66, {hop}")], PROXY);
        row(&nets().forwarded(), PROXY, FWD, &[format!("for=198.51.100.66, {hop}, for=10.0.0.2")], "10.0.0.2");
    }
    rows(&nets(), XFF, &[&b"203.0.113.\xb9"[..], b"198.51.100.66, \xff\xfe"], PROXY);
    rows(&nets().forwarded(), FWD, &[&b"for=\"198.51.100.66"[..], b"for=198.51.100.66;host=\"\xff\""], PROXY);
}

#[test]
fn forwarded_is_read_with_all_its_forms() {
    let elements = [
        "for=198.51.100.66, for=203.0.113.9",
        "for=203.0.113.9, ,, for=10.0.0.2,",
        "FOR=203.0.113.9;Proto=https;by=10.0.0.1;host=a.example",
        "proto=https; for=\"203.0.113.9:567\" ;by=_a",
        "for=\"203.0.113.9:_port\"",
        "for=198.51.100.66, for=203.0.113.9:567;by=x, for=\"[fd00::2]:1\"",
        ";;for=203.0.113.9;host=\"a, for=198.51.100.66\"",
        r#"for=203.0.113.9;host="\", for=198.51.100.66;\\""#,
        r#"host="a, \"";for=203.0.113.9"#,
        // Quotes that a client leaves open hide nothing.
        "for=\", for=203.0.113.9",
        "for=\"198.51.100.66, for=\"203.0.113.9:1\"",
    ];
    rows(&nets().forwarded(), FWD, &elements, CLIENT);
    let v6 = ["for=\"[2001:db8::9]\"", "For=\"[2001:DB8::9]:443\"", r#"for="\, for="[2001:db8::9]""#];
    rows(&nets().forwarded(), FWD, &v6, "2001:db8::9");
}

#[test]
fn a_single_header_holds_one_address() {
    let real = || nets().header("X-Real-IP");
    rows(&real(), REAL, &[CLIENT, "::ffff:203.0.113.9", " 203.0.113.9:80 "], CLIENT);
    row(&real(), PROXY, REAL, &["10.0.0.2"], "10.0.0.2");
    rows(&real(), REAL, &[&b"198.51.100.66, 203.0.113.9"[..], b"junk", b"", b"203.0.113.\xb9"], PROXY);
    row(&real(), PROXY, REAL, &[EVIL, CLIENT], PROXY);
}

#[test]
fn hostile_lengths_neither_hide_the_client_nor_are_walked() {
    let (long, chain) = ("9".repeat(1 << 20), "10.9.9.9,".repeat(10_000));
    row(&nets(), PROXY, XFF, &[format!("{chain}203.0.113.9")], CLIENT);
    row(&nets(), PROXY, XFF, &[format!("203.0.113.9,{chain}")], "10.9.9.9");
    row(&nets(), PROXY, XFF, &vec![EVIL; 10_000], EVIL);
    row(&nets(), PROXY, XFF, &[format!("{long}, 203.0.113.9")], CLIENT);
    rows(&nets(), XFF, &[&long, &"\"".repeat(1 << 20), &format!("203.0.113.9{}", ",".repeat(1 << 20))], PROXY);
    row(&nets(), PROXY, XFF, &[format!("{}203.0.113.9", " ".repeat(900))], CLIENT);
    row(&nets().forwarded(), PROXY, FWD, &[format!("for=\"{long}, for=203.0.113.9")], CLIENT);
    row(&nets().forwarded(), PROXY, FWD, &["\\\"".repeat(1 << 19)], PROXY);
    // The walk ends after 64 hops.
    let chain = |length: usize| format!("203.0.113.9{}", ", 10.0.0.2".repeat(length));
    row(&nets(), PROXY, XFF, &[chain(63)], CLIENT);
    row(&nets(), PROXY, XFF, &[chain(64)], "10.0.0.2");
    row(&hops(1_000), PROXY, XFF, &[chain(64)], "10.0.0.2");
}

#[test]
fn the_key_is_the_peer_keys_with_ipv6_by_its_prefix() {
    let key = |setting: ClientIp, client: &str| text(&setting, &head(PROXY, XFF, &[client]));
    assert_eq!(key(nets(), "::ffff:203.0.113.9"), "ip:203.0.113.9");
    assert_eq!(key(nets(), "2001:db8:1:2ff::9"), "ip:2001:db8:1:200::/56");
    assert_eq!(key(nets().v6_prefix(64), "2001:db8:1:2ff::9"), "ip:2001:db8:1:2ff::/64");
    for whole in [128, 129, 255] {
        assert_eq!(key(nets().v6_prefix(whole), "2001:db8:1:2ff::9"), "ip:2001:db8:1:2ff::9/128", "{whole}");
    }
}

fn socket(last: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, last], 4_711))
}

#[test]
fn the_peer_is_found_as_each_server_inserts_it_and_without_one_all_share() {
    let mut parts = head(PROXY, XFF, &[EVIL]);
    parts.extensions.clear();
    parts.extensions.insert(ConnectInfo("a text"));
    let counts_as = |parts: &Parts, expected: &str| {
        for extractor in [&key::peer_ip() as &dyn KeyExtractor, &client_ip()] {
            assert_eq!(text(extractor, parts), expected);
        }
    };
    counts_as(&parts, "missing");
    assert_eq!(client_ip().info().missing_key, MissingKey::Share);
    parts.extensions.insert(MockConnectInfo(socket(1)));
    counts_as(&parts, "ip:203.0.113.1");
    parts.extensions.insert(socket(2));
    counts_as(&parts, "ip:203.0.113.2");
    #[cfg(feature = "tonic")]
    {
        use tonic::transport::server::TcpConnectInfo;
        parts.extensions.insert(TcpConnectInfo { local_addr: None, remote_addr: Some(socket(3)) });
        counts_as(&parts, "ip:203.0.113.3");
    }
    parts.extensions.insert(ConnectInfo(socket(4)));
    counts_as(&parts, "ip:203.0.113.4");
}

#[test]
fn a_proxy_behind_a_unix_socket_is_trusted_where_that_is_set() {
    let chain = "198.51.100.66, 203.0.113.9, 10.0.0.2";
    let unix = || client_ip().trusted_unix_socket();
    for (setting, chain, client) in [
        (client_ip(), chain, None),
        (hops(0), chain, None),
        (hops(2), chain, Some(CLIENT)),
        (hops(9), chain, Some(EVIL)),
        (nets(), chain, None),
        (unix(), chain, Some("10.0.0.2")),
        (nets().trusted_unix_socket(), chain, Some(CLIENT)),
        (unix(), "", None),
        (unix(), "203.0.113.9, unknown", None),
    ] {
        let parts = with(XFF, &[chain]).into_parts().0;
        assert_eq!(setting.address(&parts), client.map(address), "{setting:?}, {chain:?}");
    }
    row(&unix(), CLIENT, XFF, &[EVIL], CLIENT);
}

#[test]
fn what_is_no_network_and_no_name_of_a_header_is_named() {
    let error = client_ip().try_trusted_proxies(["10.0.0.0/8", "10.0.0.0/33"]).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("\"10.0.0.0/33\""), "{error}");
    let long = client_ip().try_trusted_proxies(&["x".repeat(1_000)]).unwrap_err();
    assert!(long.to_string().len() < 300);
    assert!(client_ip().try_trusted_proxies(["fe80::1", "192.0.2.1"]).is_ok());
}

/// Bytes that a header may hold.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let any = any::<u8>().prop_filter_map("no control characters", |byte| {
        (byte == b'\t' || (byte >= b' ' && byte != 127)).then_some(byte)
    });
    let telling = prop::sample::select(b"for=,;\"\\[]:%._ 0123456789".to_vec());
    let word = prop::sample::select(vec!["for=", "10.0.0.2", "198.51.100.66", "\"[::1]:80\"", ", ", ";", "unknown"]);
    prop_oneof![vec(any, 0..200), vec(telling, 0..200), vec(word, 0..100).prop_map(|words| words.concat().into_bytes())]
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_bytes_name_another_client(lines in vec(line(), 0..5), hops in 0..9_usize) {
        let single = nets().header(REAL);
        for (setting, header) in [(nets(), XFF), (nets().forwarded(), FWD), (single, REAL)] {
            prop_assert_eq!(setting.address(&head(CLIENT, header, &lines)), Some(address(CLIENT)));
            let proxied = head(PROXY, header, &lines);
            prop_assert!(setting.address(&proxied).is_some());
            prop_assert!(setting.trusted_hops(hops).address(&proxied).is_some());
        }
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
        let parts = head(PROXY, header, &lines);
        for setting in [nets(), hops(1)] {
            let setting = if header == FWD { setting.forwarded() } else { setting };
            prop_assert_eq!(setting.address(&parts), Some(address(client)));
        }
    }
}
