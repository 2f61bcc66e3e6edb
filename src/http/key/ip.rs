//! Makes keys of IP addresses.
//!
//! The one text that [`client_ip`](super::client_ip) and [`peer_ip`](super::peer_ip) share: `ip:203.0.113.9`, or
//! `ip:2001:db8::/56`. An IPv6 client may use any address of its network, so only a prefix identifies it.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Key, counted};

/// Shorter prefixes of IPv6 addresses are of networks that several sites may share.
pub(super) const LEAST_SITE: u8 = 48;

/// The default prefix length, in bits: a site is usually delegated a /56, which has 2^72 addresses.
pub(super) const DEFAULT_V6_PREFIX: u8 = 56;

/// Makes the key of an address: IPv4 whole, also where IPv6 embeds it; other IPv6 by its prefix of at most 128 bits.
pub(super) fn ip_key(address: IpAddr, v6_prefix: u8) -> Key {
    let mut text = [0_u8; 48];
    let mut rest = &mut text[..];
    match counted(address) {
        IpAddr::V4(v4) => write_v4(&mut rest, v4),
        IpAddr::V6(v6) => write!(rest, "{}/{v6_prefix}", network(v6, v6_prefix)),
    }
    .expect("43 bytes hold every address with its prefix");
    let left = rest.len();
    let used = text.len() - left;
    Key::plain("ip", &text[..used])
}

/// Whether this is the value of the key of some address.
pub(super) fn is_ip_key(value: &[u8], v6_prefix: u8) -> bool {
    let text = str::from_utf8(value).unwrap_or_default();
    let address = text.split_once('/').map_or(text, |(address, _)| address).parse();
    address.is_ok_and(|address| ip_key(address, v6_prefix).value() == text)
}

/// Writes an address as `Display` does, in a fraction of the time.
fn write_v4(text: &mut impl Write, address: Ipv4Addr) -> io::Result<()> {
    let (mut digits, mut length) = ([b'.'; 16], 0);
    for octet in address.octets() {
        if octet >= 100 {
            digits[length] = b'0' + octet / 100;
            length += 1;
        }
        if octet >= 10 {
            digits[length] = b'0' + octet / 10 % 10;
            length += 1;
        }
        digits[length] = b'0' + octet % 10;
        length += 2;
    }
    text.write_all(&digits[..length - 1])
}

/// Clears the bits of an address after its prefix.
fn network(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_octet_of_an_address_is_written_as_display_writes_it() {
        for octet in 0..=u8::MAX {
            let address = Ipv4Addr::new(octet, octet.wrapping_mul(7), octet.wrapping_add(90), octet / 3);
            let mut text = Vec::new();
            write_v4(&mut text, address).expect("a vector takes all");
            assert_eq!(text, address.to_string().into_bytes());
        }
    }
}
