//! The client's address, as proxies write it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::request::Parts;
use tollgate::key;

use super::{Choices, Kind, Spelling, app};

/// A proxy, by which all are counted whose address it does not say.
pub(super) const PROXY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

const XFF: &str = "x-forwarded-for";

pub(super) fn kind() -> Kind {
    let by_list = |name, sees| app(name, sees, |client| Spelling::with(XFF, [client]), [by_hops(), by_nets()]);
    let forwarded = |name, sees| {
        let plain = |client: &str| Spelling::with("forwarded", [format!("for=\"{client}\"")]);
        app(name, sees, plain, [by_hops().forwarded(), by_nets().forwarded()])
    };
    let apps = vec![
        by_list("the last of X-Forwarded-For", |parts| address(&last(parts, XFF)?)),
        by_list("the last of X-Forwarded-For, however written", |parts| lenient(&last(parts, XFF)?)),
        by_list("nginx in front", |parts| {
            let seen = lines(parts, "x-seen-by-nginx").next()?;
            if parts.headers.contains_key(XFF) && seen != "127.0.0.1" { address(&seen) } else { None }
        }),
        forwarded("the last of Forwarded", |parts| address(&node(&last(parts, "forwarded")?)?)),
        forwarded("the last of Forwarded, however written", |parts| lenient(&node(&last(parts, "forwarded")?)?)),
    ];
    Kind { name: "client_ip", spell, is_routed: false, shared: Some("ip:10.0.0.1"), apps }
}

fn by_hops() -> key::ClientIp {
    key::client_ip().trusted_hops(1)
}

fn by_nets() -> key::ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    let is_forwarded = choices.one_in(2);
    let lines = choices.lines(|choices| {
        let many = choices.pick(&[1, 1, 2, 3]);
        let hops: Vec<String> = (0..many).map(|_| hop(choices, is_forwarded)).collect();
        hops.join(choices.pick(&[", ", ",", " , ", ",,", ",\t"])).into_bytes()
    });
    Spelling::with(if is_forwarded { "forwarded" } else { "x-forwarded-for" }, lines)
}

fn hop(choices: &mut Choices<'_>, is_forwarded: bool) -> String {
    let address = spelled(choices);
    if !is_forwarded {
        return choices.spaced(&address);
    }
    let key = choices.cased("for");
    let rest = choices.pick(&["", "", ";proto=http", "; by=10.0.0.1", ";for=203.0.113.9", ";host=\"a,b\""]);
    match choices.below(3) {
        0 => format!("{key}={address}{rest}"),
        1 => format!("proto=https;{key}=\"{address}\"{rest}"),
        _ => format!("{key}=\"{address}\"{rest}"),
    }
}

fn spelled(choices: &mut Choices<'_>) -> String {
    const IPV4: &[&str] =
        &["203.0.113.7", "203.0.113.7", "203.0.113.8", "203.0.113.007", "0xcb.0.113.7", "203.0.28935"];
    const IPV6: &[&str] = &[
        "::ffff:203.0.113.7",
        "::FFFF:CB00:7107",
        "64:ff9b::203.0.113.7",
        "0:0:0:0:0:ffff:203.0.113.7",
        "2002:cb00:7107::1",
        "2001:db8::1",
        "2001:DB8:0:0::1",
    ];
    const OTHERS: &[&str] = &["unknown", "_hidden", "", "junk"];
    const ENDS: &[&str] = &["", "", ":80", ":443", ":", ".", "%eth0", "%25eth0"];
    let address = match choices.below(8) {
        0 => return choices.pick(OTHERS).to_owned(),
        1..=3 => choices.pick(IPV6),
        _ => choices.pick(IPV4),
    };
    let end = choices.pick(ENDS);
    match choices.below(6) {
        0 => format!("[{address}]{end}"),
        1 => format!("[{address}{end}]"),
        2 => format!("[{address}"),
        3 => format!("\"{address}\""),
        _ => format!("{address}{end}"),
    }
}

fn lines(parts: &Parts, name: &str) -> impl DoubleEndedIterator<Item = String> {
    parts.headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()).trim().to_owned())
}

/// The last element of a list that is not empty.
fn last(parts: &Parts, name: &str) -> Option<String> {
    let all = lines(parts, name).collect::<Vec<_>>().join(",");
    let mut quoted = false;
    let is_comma = |letter: char| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    };
    let elements: Vec<&str> = all.split(is_comma).map(str::trim).collect();
    elements.into_iter().rfind(|element| !element.is_empty()).map(str::to_owned)
}

/// What is in the only `for` of an element.
fn node(element: &str) -> Option<String> {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut nodes = pairs.filter(|(key, _)| key.eq_ignore_ascii_case("for"));
    let (_, node) = nodes.next()?;
    let node = node.strip_prefix('"').and_then(|node| node.strip_suffix('"')).unwrap_or(node);
    nodes.next().is_none().then(|| node.to_owned())
}

/// As the standard library reads it, with a port or without.
fn address(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parsed = bare.parse().or_else(|_| text.parse().map(|address: SocketAddr| address.ip()));
    parsed.ok().map(|address: IpAddr| address.to_canonical().to_string())
}

/// As an application reads it that drops whatever may stand around, and knows old forms.
fn lenient(text: &str) -> Option<String> {
    let text = text.trim_matches(|letter: char| "\" \t".contains(letter)).trim_start_matches('[');
    let text = text.split(']').next().unwrap_or_default().split('%').next().unwrap_or_default();
    let text = if text.matches(':').count() == 1 { text.split(':').next().unwrap_or_default() } else { text };
    let text = text.trim_end_matches('.');
    let old = || {
        let octets = text.split('.').map(str::parse::<u8>).collect::<Result<Vec<_>, _>>().ok()?;
        Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?))
    };
    text.parse().ok().or_else(old).map(|address: IpAddr| address.to_canonical().to_string())
}
