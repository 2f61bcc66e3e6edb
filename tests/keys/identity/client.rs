//! The client's address: peer, setting, headers, and who it is.

use axum::extract::ConnectInfo;
use tollgate::key::{self, ClientIp, Extracted, KeyExtractor, client_ip};
use tollgate::policy::MissingKey;
use tollgate::store::MaybeFuture;

use super::{head, head_from, text};

const XFF: &str = "x-forwarded-for";
const FWD: &str = "forwarded";
const REAL: &str = "x-real-ip";

/// A client's address, and one that an attacker writes.
const CLIENT: &str = "203.0.113.9";
const EVIL: &str = "198.51.100.66";
const NONE: &[&str] = &[];

#[track_caller]
fn row(setting: &ClientIp, peer: &str, header: &str, lines: &[impl AsRef<[u8]>], client: &str) {
    let found = setting.address(&head_from(peer, header, lines));
    assert_eq!(found, Some(client.parse().expect("an address")));
}

fn nobody() -> ClientIp {
    client_ip()
}

/// Trusts private networks.
fn nets() -> ClientIp {
    client_ip().trusted_proxies(["10.0.0.0/8", "fc00::/7"])
}

fn hops(proxies: usize) -> ClientIp {
    client_ip().trusted_hops(proxies)
}

#[test]
fn the_table_has_at_least_sixty_rows() {
    let rows = include_str!("client.rs").lines().filter(|line| line.starts_with("    row(")).count();
    assert!(rows >= 60, "only {rows}");
}

#[test]
fn by_default_nobody_is_trusted() {
    row(&nobody(), CLIENT, XFF, NONE, CLIENT);
    row(&nobody(), CLIENT, XFF, &[EVIL], CLIENT);
    row(&nobody(), "127.0.0.1", XFF, &[EVIL], "127.0.0.1");
    row(&nobody(), "2001:db8::9", XFF, &[EVIL], "2001:db8::9");
    row(&nobody().forwarded(), CLIENT, FWD, &["for=198.51.100.66"], CLIENT);
    row(&nobody().header(REAL), CLIENT, REAL, &[EVIL], CLIENT);
    row(&client_ip().trusted_proxies([""; 0]), CLIENT, XFF, &[EVIL], CLIENT);
}

#[test]
fn headers_of_an_untrusted_peer_are_ignored() {
    row(&nets(), CLIENT, XFF, &[EVIL], CLIENT);
    row(&nets(), CLIENT, XFF, &["10.0.0.1"], CLIENT);
    row(&nets(), CLIENT, XFF, &[EVIL, "10.0.0.1, 10.0.0.2"], CLIENT);
    row(&nets(), "11.0.0.1", XFF, &[EVIL], "11.0.0.1");
    row(&nets(), "2001:db8::9", XFF, &[EVIL], "2001:db8::9");
    row(&nets().forwarded(), CLIENT, FWD, &["for=198.51.100.66"], CLIENT);
    row(&nets().header(REAL), CLIENT, REAL, &[EVIL], CLIENT);
    row(&hops(0), "10.0.0.1", XFF, &[EVIL], "10.0.0.1");
}

#[test]
fn the_first_untrusted_address_from_the_right_is_the_client() {
    row(&nets(), "10.0.0.1", XFF, &[CLIENT], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66, 203.0.113.9"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["10.0.0.9, 203.0.113.9"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["203.0.113.9, 10.0.0.2"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["203.0.113.9, 10.0.0.4, 10.0.0.3, 10.0.0.2"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66, 10.0.0.9, 203.0.113.9, 10.0.0.2"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["127.0.0.1"], "127.0.0.1");
    row(&nets(), "fd00::1", XFF, &["203.0.113.9, fd00::2"], CLIENT);
}

#[test]
fn the_left_most_is_the_client_if_all_are_trusted() {
    row(&nets(), "10.0.0.1", XFF, NONE, "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
    row(&nets(), "10.0.0.1", XFF, &["10.0.0.3", "10.0.0.2"], "10.0.0.3");
    row(&hops(9), "10.0.0.1", XFF, &["203.0.113.9, 10.0.0.2"], CLIENT);
    row(&hops(9), "10.0.0.1", XFF, NONE, "10.0.0.1");
}

#[test]
fn counted_proxies_are_trusted_wherever_they_are() {
    row(&hops(1), "192.0.2.1", XFF, &[CLIENT], CLIENT);
    row(&hops(1), "192.0.2.1", XFF, &["198.51.100.66, 203.0.113.9"], CLIENT);
    row(&hops(2), "192.0.2.1", XFF, &["198.51.100.66, 203.0.113.9, 192.0.2.2"], CLIENT);
    row(&hops(3), "192.0.2.1", XFF, &["198.51.100.66, 203.0.113.9", "192.0.2.3", "192.0.2.2"], CLIENT);
    row(&hops(2), "192.0.2.1", XFF, &["203.0.113.9, , 192.0.2.2,"], CLIENT);
    row(&hops(2), "192.0.2.1", XFF, &["198.51.100.66, junk, 192.0.2.2"], "192.0.2.2");
    row(&hops(1).forwarded(), "192.0.2.1", FWD, &["for=198.51.100.66, for=203.0.113.9"], CLIENT);
    row(&hops(1).header(REAL), "192.0.2.1", REAL, &[CLIENT], CLIENT);
    row(&hops(5).header(REAL), "192.0.2.1", REAL, &[CLIENT], CLIENT);
}

#[test]
fn repeated_lines_are_one_list() {
    row(&nets(), "10.0.0.1", XFF, &[EVIL, CLIENT], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66, 203.0.113.9", "10.0.0.2"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &[EVIL, "203.0.113.9, 10.0.0.3", "10.0.0.2"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["junk", CLIENT], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66", "for=203.0.113.9"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=\"198.51.100.66", "for=203.0.113.9"], CLIENT);
}

#[test]
fn empty_elements_and_spaces_do_not_count() {
    row(&nets(), "10.0.0.1", XFF, &["203.0.113.9,,10.0.0.2"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &[" , 203.0.113.9 ,\t, "], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &[CLIENT, "", " "], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["\t 203.0.113.9 \t,\t 10.0.0.2 \t"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["", ",", " ,, "], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=203.0.113.9, ,, for=10.0.0.2,"], CLIENT);
}

#[test]
fn ports_brackets_and_zones_are_dropped() {
    row(&nets(), "10.0.0.1", XFF, &["203.0.113.9:567"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["203.0.113.9:567, 10.0.0.2:65535"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["2001:db8::9"], "2001:db8::9");
    row(&nets(), "10.0.0.1", XFF, &["[2001:db8::9]"], "2001:db8::9");
    row(&nets(), "10.0.0.1", XFF, &["[2001:db8::9]:443, [fd00::2]:80, fd00::3"], "2001:db8::9");
    row(&nets(), "10.0.0.1", XFF, &["2001:DB8:0:0::9"], "2001:db8::9");
    row(&nets(), "10.0.0.1", XFF, &["fe80::1%eth0"], "fe80::1");
    row(&nets(), "10.0.0.1", XFF, &["[fe80::1%25eth0]:443"], "fe80::1");
    row(&nets(), "10.0.0.1", XFF, &["203.0.113.9, fd00::2%eth0"], CLIENT);
}

#[test]
fn mapped_addresses_are_ipv4() {
    row(&nobody(), "::ffff:203.0.113.9", XFF, NONE, CLIENT);
    row(&nets(), "::ffff:10.0.0.1", XFF, &[CLIENT], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["::ffff:203.0.113.9"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &["[::ffff:cb00:7109]:443, ::ffff:10.0.0.2"], CLIENT);
    row(&client_ip().trusted_proxies(["::ffff:10.0.0.0/104"]), "10.0.0.1", XFF, &[CLIENT], CLIENT);
    row(&client_ip().trusted_proxies(["::/0"]), "::ffff:10.0.0.1", XFF, &[EVIL], "10.0.0.1");
}

#[test]
fn a_malformed_hop_ends_the_walk_at_the_proxy_before_it() {
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66, unknown"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66, junk, 10.0.0.2"], "10.0.0.2");
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66, \"10.0.0.2\""], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66 10.0.0.2"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66;10.0.0.2"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["10.0.0.256"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["010.0.0.2"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["1.2.3"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["3405803785"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["10.0.0.0/8"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["client.example"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["for=198.51.100.66"], "10.0.0.1");
}

#[test]
fn malformed_ports_brackets_and_zones_end_it_too() {
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66:"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66:65536"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66:+80"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["198.51.100.66%eth0"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["[198.51.100.66]:80"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["[2001:db8::9"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["[2001:db8::9]80"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["2001:db8::9]"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["[]"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &[":"], "10.0.0.1");
}

#[test]
fn forwarded_is_read_with_all_its_forms() {
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=203.0.113.9"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["FOR=203.0.113.9;Proto=https;by=10.0.0.1;host=a.example"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["proto=https; for=\"203.0.113.9:567\" ;by=_a"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=\"203.0.113.9:_port\""], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=203.0.113.9:567"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=\"[2001:db8::9]\""], "2001:db8::9");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["For=\"[2001:DB8::9]:443\""], "2001:db8::9");
    row(
        &nets().forwarded(),
        "10.0.0.1",
        FWD,
        &["for=198.51.100.66, for=203.0.113.9;by=x, for=\"[fd00::2]:1\""],
        CLIENT,
    );
    row(&nets().forwarded(), "10.0.0.1", FWD, &[";;for=203.0.113.9;"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=203.0.113.9;host=\"a, for=198.51.100.66\""], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &[r#"for=203.0.113.9;host="\", for=198.51.100.66;\\""#], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &[r#"host="\\";for=203.0.113.9"#], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &[r#"host="a, \"";for=203.0.113.9"#], CLIENT);
}

#[test]
fn forwarded_hops_without_an_address_end_the_walk() {
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66, for=unknown"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66, for=_hidden, for=10.0.0.2"], "10.0.0.2");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66, for=\"_hidden:80\""], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66, proto=https"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66;for=198.51.100.67"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["198.51.100.66"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=\"198.51.100.66"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66\""], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=\"198.51.100.66\"junk"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66 junk=1"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66;junk"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=198.51.100.66;host=a\"b\""], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &[r#"for="198.51.100.6\6""#], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for="], "10.0.0.1");
}

#[test]
fn quotes_that_a_client_leaves_open_hide_nothing() {
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=\", for=203.0.113.9"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=\"198.51.100.66, for=\"203.0.113.9:1\""], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &[r#"for="\, for="[2001:db8::9]""#], "2001:db8::9");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["\", for=10.0.0.3, for=10.0.0.2"], "10.0.0.3");
}

#[test]
fn a_single_header_holds_one_address() {
    row(&nets().header(REAL), "10.0.0.1", REAL, &[CLIENT], CLIENT);
    row(&nets().header("X-Real-IP"), "10.0.0.1", REAL, &[" [2001:db8::9]:80 "], "2001:db8::9");
    row(&nets().header("cf-connecting-ip"), "10.0.0.1", "CF-Connecting-IP", &["::ffff:203.0.113.9"], CLIENT);
    row(&nets().header(REAL), "10.0.0.1", REAL, &["10.0.0.2"], "10.0.0.2");
    row(&nets().header(REAL), "10.0.0.1", REAL, &["198.51.100.66, 203.0.113.9"], "10.0.0.1");
    row(&nets().header(REAL), "10.0.0.1", REAL, &[EVIL, CLIENT], "10.0.0.1");
    row(&nets().header(REAL), "10.0.0.1", REAL, &["10.0.0.2", EVIL], "10.0.0.1");
    row(&nets().header(REAL), "10.0.0.1", REAL, &["junk"], "10.0.0.1");
    row(&nets().header(REAL), "10.0.0.1", REAL, &[""], "10.0.0.1");
    row(&nets().header(REAL), "10.0.0.1", REAL, &[b"203.0.113.\xb9"], "10.0.0.1");
    row(&nets().header(REAL), "10.0.0.1", REAL, &["1".repeat(1 << 20)], "10.0.0.1");
}

#[test]
fn only_the_chosen_header_is_read() {
    row(&nets(), "10.0.0.1", FWD, &["for=198.51.100.66"], "10.0.0.1");
    row(&nets(), "10.0.0.1", REAL, &[EVIL], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", XFF, &[EVIL], "10.0.0.1");
    row(&nets().header(REAL), "10.0.0.1", XFF, &[EVIL], "10.0.0.1");
    row(&nets().forwarded().header(REAL), "10.0.0.1", FWD, &["for=198.51.100.66"], "10.0.0.1");
    row(&nets().trusted_hops(0), "10.0.0.1", XFF, &[EVIL], "10.0.0.1");
    row(&hops(1).trusted_proxies([""; 0]), "10.0.0.1", XFF, &[EVIL], "10.0.0.1");
}

#[test]
fn bytes_that_are_no_utf_8_are_malformed() {
    row(&nets(), "10.0.0.1", XFF, &[b"\xff\xfe, 203.0.113.9"], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &[b"198.51.100.66, \xff, 10.0.0.2"], "10.0.0.2");
    row(&nets(), "10.0.0.1", XFF, &[b"203.0.113.\xb9"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["203.0.113.９"], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &["\u{a0}203.0.113.9"], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &[b"for=\xff, for=203.0.113.9"], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &[b"for=198.51.100.66;host=\"\xff\""], "10.0.0.1");
}

#[test]
fn hostile_lengths_neither_hide_the_client_nor_are_walked() {
    let (long, chain) = ("9".repeat(1 << 20), "10.9.9.9,".repeat(10_000));
    row(&nets(), "10.0.0.1", XFF, &[format!("{chain}203.0.113.9")], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &[format!("203.0.113.9,{chain}")], "10.9.9.9");
    row(&nets(), "10.0.0.1", XFF, &vec![EVIL; 10_000], EVIL);
    row(&nets(), "10.0.0.1", XFF, &[format!("{long}, 203.0.113.9")], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &[long.as_str()], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &[format!("{long}, 10.0.0.2")], "10.0.0.2");
    row(&nets(), "10.0.0.1", XFF, &[format!("203.0.113.9{}", ",".repeat(1 << 20))], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &[format!("203.0.113.9{}", " ".repeat(1 << 20))], "10.0.0.1");
    row(&nets(), "10.0.0.1", XFF, &[format!("{}203.0.113.9", " ".repeat(900))], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &[format!("for=\"{long}, for=203.0.113.9")], CLIENT);
    row(&nets().forwarded(), "10.0.0.1", FWD, &["\\\"".repeat(1 << 19)], "10.0.0.1");
    row(&nets().forwarded(), "10.0.0.1", FWD, &["for=10.9.9.9,".repeat(10_000)], "10.9.9.9");
}

#[test]
fn the_walk_ends_after_sixty_four_hops() {
    let chain = |length: usize| format!("203.0.113.9{}", ", 10.0.0.2".repeat(length));
    row(&nets(), "10.0.0.1", XFF, &[chain(63)], CLIENT);
    row(&nets(), "10.0.0.1", XFF, &[chain(64)], "10.0.0.2");
    row(&hops(1_000), "10.0.0.1", XFF, &[chain(64)], "10.0.0.2");
}

#[test]
fn the_key_is_the_peer_keys_with_ipv6_by_its_prefix() {
    let key = |setting: ClientIp, client: &str| text(&setting, &head_from("10.0.0.1", XFF, &[client]));
    assert_eq!(key(nets(), "::ffff:203.0.113.9"), "ip:203.0.113.9");
    assert_eq!(key(nets(), "2001:db8:1:2ff::9"), "ip:2001:db8:1:200::/56");
    assert_eq!(key(nets().v6_prefix(64), "2001:db8:1:2ff::9"), "ip:2001:db8:1:2ff::/64");
    for whole in [128, 129, 255] {
        assert_eq!(key(nets().v6_prefix(whole), "2001:db8:1:2ff::9"), "ip:2001:db8:1:2ff::9/128", "{whole}");
    }
    let parts = head_from("2001:db8:1:2ff::9", XFF, &[EVIL]);
    assert_eq!(text(&client_ip(), &parts), text(&key::peer_ip(), &parts));
}

#[test]
fn without_a_peer_there_is_no_client_and_all_share() {
    let parts = head(XFF, &[EVIL]);
    assert_eq!(nets().address(&parts), None);
    assert_eq!(text(&nets(), &parts), "missing");
    assert_eq!(client_ip().info().missing_key, MissingKey::Share);
    let mut parts = parts;
    parts.extensions.insert(ConnectInfo("a text"));
    assert_eq!(nets().address(&parts), None);
}

#[test]
fn a_bad_cidr_is_named() {
    let error = client_ip().try_trusted_proxies(["10.0.0.0/8", "10.0.0.0/33"]).unwrap_err();
    assert!(error.is_invalid());
    assert!(error.to_string().contains("\"10.0.0.0/33\""), "{error}");
    let long = client_ip().try_trusted_proxies(&["x".repeat(1_000)]).unwrap_err();
    assert!(long.to_string().len() < 300);
    assert!(client_ip().try_trusted_proxies(["fe80::1", "192.0.2.1"]).is_ok());
    let error = client_ip().try_header("no header").unwrap_err();
    assert!(error.to_string().starts_with("\"no header\" is not a header name"), "{error}");
}

#[test]
#[should_panic(expected = "trusted proxy \"localhost\" is not a network")]
fn trusting_what_is_no_network_panics() {
    let _ = client_ip().trusted_proxies(["localhost"]);
}

#[test]
fn the_name_of_a_header_may_be_in_any_case() {
    let parts = http::Request::get("/").header("x-api-key", "1").body(()).expect("a request").into_parts().0;
    let of = |name| match key::header(name).plain().extract(&parts) {
        MaybeFuture::Ready(Extracted::Key(key)) => key.as_str().to_owned(),
        _ => panic!("{name} is there"),
    };
    assert_eq!((of("X-Api-Key"), of("x-api-key")), ("header x-api-key:1".to_owned(), "header x-api-key:1".to_owned()));
}

#[test]
#[should_panic(expected = "\"x api\" is not a header name: use letters, digits and '-'")]
fn a_key_by_what_is_no_header_name_panics_with_the_name() {
    let _ = key::header("x api");
}
