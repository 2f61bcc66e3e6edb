//! Makes keys of IP addresses.
//!
//! The one text that [`client_ip`](super::client_ip) and [`peer_ip`](super::peer_ip) share: `ip:203.0.113.9`, or
//! `ip:2001:db8::/56`. An IPv6 client may use any address of its network, so only a prefix identifies it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Key, counted, of_value};
use crate::core::Error;

/// The length of the kind and its colon.
const KIND: usize = "ip:".len();

/// Shorter prefixes of IPv6 addresses are of networks that several sites may share.
pub(super) const LEAST_SITE: u8 = 48;

/// The default prefix length, in bits: a site is usually delegated a /56, which has 2^72 addresses.
pub(super) const DEFAULT_V6_PREFIX: u8 = 56;

/// Makes the key of an address: IPv4 whole, also where IPv6 embeds it; other IPv6 by its prefix of at most 128 bits.
pub(super) fn ip_key(address: IpAddr, v6_prefix: u8) -> Key {
    let mut text = *b"ip:                                                 ";
    let length = match counted(address) {
        IpAddr::V4(v4) => write_v4(&mut text, v4),
        IpAddr::V6(v6) => {
            let mut rest = &mut text[KIND..];
            write!(rest, "{}/{v6_prefix}", network(v6, v6_prefix)).expect("43 bytes hold every network");
            let left = rest.len();
            text.len() - left
        }
    };
    Key::plain(&text, length)
}

/// Returns the key of an address that is given as text.
pub(super) fn ip_key_of(values: &[&[u8]], v6_prefix: u8) -> Result<Key, Error> {
    of_value::of_one("ip", values, |value| Some(ip_key(str::from_utf8(value).ok()?.parse().ok()?, v6_prefix)))
}

/// Whether this is the value of the key of some address.
pub(super) fn is_ip_key(value: &[u8], v6_prefix: u8) -> bool {
    let text = str::from_utf8(value).unwrap_or_default();
    let address = text.split_once('/').map_or(text, |(address, _)| address).parse();
    address.is_ok_and(|address| ip_key(address, v6_prefix).value() == text)
}

/// The digits of each octet with a dot behind them, the first in the lowest bits, and how many bits that is.
const OCTETS: [(u32, u32); 256] = {
    let (mut octets, mut octet) = ([(0, 0); 256], 0);
    while octet < octets.len() {
        #[allow(clippy::cast_possible_truncation, reason = "it is below 256")]
        let number = octet as u8;
        let (hundreds, tens, ones) = (b'0' + number / 100, b'0' + number / 10 % 10, b'0' + number % 10);
        octets[octet] = match number {
            0..10 => (u32::from_le_bytes([ones, b'.', 0, 0]), 16),
            10..100 => (u32::from_le_bytes([tens, ones, b'.', 0]), 24),
            100.. => (u32::from_le_bytes([hundreds, tens, ones, b'.']), 32),
        };
        octet += 1;
    }
    octets
};

/// Writes an address behind the kind, as `Display` does, in a fraction of the time. Returns the length of both.
fn write_v4(text: &mut [u8; 52], address: Ipv4Addr) -> usize {
    // Put together in registers: bytes that were written one by one make the next read of all of them wait.
    let [a, b, c, d] = address.octets().map(|octet| OCTETS[usize::from(octet)]);
    let pair = |(first, bits), (second, more)| (u64::from(first) | u64::from(second) << bits, bits + more);
    let ((front, front_bits), (back, back_bits)): ((u64, u32), (u64, u32)) = (pair(a, b), pair(c, d));
    let digits = u128::from(front) | u128::from(back) << front_bits;
    text[KIND..KIND + size_of_val(&digits)].copy_from_slice(&digits.to_le_bytes());
    // Without the last dot.
    KIND + (front_bits + back_bits) as usize / 8 - 1
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
            assert_eq!(ip_key(address.into(), 56).as_str(), format!("ip:{address}"));
        }
    }

    #[test]
    fn the_longest_network_has_room() {
        let address = Ipv6Addr::from_bits(u128::MAX);
        assert_eq!(ip_key(address.into(), 128).as_str(), format!("ip:{address}/128"));
    }
}
