//! Parses addresses and networks on lists of clients.
//!
//! An entry that is not an address is a value, so a mistyped address would silently become a value that matches
//! nothing. What looks like an address but is not a valid one is therefore an error. The rule errs on the side of
//! errors: a value that looks like an address can be given as a value explicitly.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::core::Error;

/// The characters of an invalid entry that an error shows.
const LONGEST_SHOWN: usize = 64;

/// The characters around and between addresses where people write several of them, a range or an authority.
const SEPARATORS: &[char] =
    &['/', '\\', '-', '\u{2013}', '\u{2014}', '~', ',', ';', '[', ']', '(', ')', '<', '>', '"', '\'', '!', '+', '='];

/// Parses an address, as the network of that address alone, or a CIDR; `None` if it is a value.
///
/// # Errors
///
/// If the entry looks like an address but is not a valid one.
pub(super) fn read_net(entry: &str) -> Result<Option<IpNet>, Error> {
    match parse_net(entry) {
        None if looks_like_an_address(entry) => Err(invalid(entry)),
        net => Ok(net),
    }
}

/// Parses a network. Stricter than `ipnet`, which accepts leading zeros, by which some mean octal numbers.
fn parse_net(text: &str) -> Option<IpNet> {
    let Some((address, bits)) = text.split_once('/') else {
        return text.parse().ok().map(|address: IpAddr| address.to_canonical().into());
    };
    let is_number = !bits.starts_with('0') || bits == "0";
    let bits = bits.parse().ok().filter(|_| is_number && bits.bytes().all(|byte| byte.is_ascii_digit()))?;
    IpNet::new(address.parse().ok()?, bits).ok()
}

/// Whether an entry is meant as an address: [`AccessList::parse`](super::AccessList::parse) has the rule.
fn looks_like_an_address(entry: &str) -> bool {
    let text = entry.split('%').next().unwrap_or_default().trim();
    let path = entry.starts_with('/');
    let first_word = text.split(char::is_whitespace).next().unwrap_or_default();
    let before_slash = text.split('/').next().unwrap_or_default();
    if [first_word, before_slash].into_iter().any(|part| part != entry && parse_net(part).is_some()) {
        return true;
    }
    let network = text.contains(['/', '\\']);
    let mut pieces =
        text.split(|c: char| c.is_whitespace() || SEPARATORS.contains(&c)).filter(|piece| !piece.is_empty());
    let mut addresses = 0;
    let all = pieces.all(|piece| {
        let is_address = is_like_v4(piece, network) || is_like_v6(piece);
        addresses += usize::from(is_address);
        is_address || piece.trim_start_matches(':').bytes().all(|byte| byte.is_ascii_digit())
    });
    !path && all && addresses > 0
}

/// Whether these are numbers and stars between dots: four or more, or fewer with a star, or a slash in the entry.
fn is_like_v4(piece: &str, network: bool) -> bool {
    let (numbers, port) = piece.split_once(':').unwrap_or((piece, ""));
    let is_number = |part: &str| {
        let hex = part.strip_prefix("0x").or(part.strip_prefix("0X"));
        matches!(part, "" | "*" | "x" | "X")
            || part.bytes().all(|byte| byte.is_ascii_digit())
            || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let dots = numbers.matches('.').count();
    let enough = dots >= 3 || (dots >= 1 && (network || numbers.contains('*')));
    let counted = numbers.split('.').any(|part| part.bytes().any(|byte| byte.is_ascii_digit()));
    enough && counted && numbers.split('.').all(is_number) && is_number(port)
}

/// Whether these are hexadecimal numbers and stars between two or more colons.
fn is_like_v6(piece: &str) -> bool {
    piece.parse::<Ipv6Addr>().is_ok()
        || (piece.matches(':').count() >= 2
            && piece.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:*".contains(&byte)))
}

/// The error of an entry that looks like an address but is not a valid one.
fn invalid(entry: &str) -> Error {
    let shown: String = entry.chars().take(LONGEST_SHOWN).collect();
    Error::invalid(format!(
        "{shown:?} looks like an address but is not a valid one: give an address such as 203.0.113.7 or 2001:db8::1, \
         or a CIDR such as 10.0.0.0/8 or 2001:db8::/32, without spaces, brackets, ports, stars or leading zeros, and a \
         range as several CIDRs; if it is the value of a key, give it to AccessList::key or key_of, or in a file as \
         {{ value = \"...\" }}"
    ))
}
