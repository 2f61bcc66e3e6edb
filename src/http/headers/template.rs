//! Headers whose names are known before their values.
//!
//! A map hashes each name that is inserted, byte by byte, and those of limits are long. A copy of a map has the hashes
//! already: to copy one with all names, and to move the few values of a response into it, takes about half the time.

use std::mem;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The headers that most responses have, and no others.
static USUAL: [HeaderName; 2] = [CONTENT_TYPE, CONTENT_LENGTH];

/// A map of names, and of values that stand for others.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    /// One for each choice of the usual headers, which follow the names: with the bit of its place in [`USUAL`], each
    /// is in. A map that grew would be made anew.
    maps: [HeaderMap; 1 << USUAL.len()],
}

impl Template {
    /// Prepares these names, in their order.
    pub(super) fn of<'a>(names: &(impl Iterator<Item = &'a HeaderName> + Clone)) -> Self {
        let mut bits = 0..1 << USUAL.len();
        let map = |()| {
            let bits = bits.next().expect("there are as many maps");
            let usual = USUAL.iter().enumerate().filter(|(place, _)| bits & 1 << place != 0).map(|(_, name)| name);
            map_of(names.clone().chain(usual))
        };
        Self { maps: [(); 1 << USUAL.len()].map(map) }
    }

    /// Writes a value for each name into headers with none of the names: `write` calls its argument with all names, in
    /// their order.
    ///
    /// Where other headers than the [usual](USUAL) are there, it writes them one by one.
    #[inline]
    pub(super) fn fill(&self, headers: &mut HeaderMap, write: impl FnOnce(&mut dyn FnMut(&HeaderName, HeaderValue))) {
        let (mut map, mut found) = (0, 0);
        if headers.len() == headers.keys_len() && headers.len() <= USUAL.len() && !headers.is_empty() {
            for (place, name) in USUAL.iter().enumerate() {
                let is_there = usize::from(headers.contains_key(name));
                (map, found) = (map | is_there << place, found + is_there);
            }
        }
        let names = &self.maps[map];
        if found != headers.len() || names.is_empty() {
            return insert(headers, write);
        }
        let mut all = names.clone();
        let mut places = all.iter_mut();
        write(&mut |name, value| {
            if let Some((of, place)) = places.next() {
                debug_assert_eq!(of, name);
                *place = value;
            }
        });
        for (name, place) in places {
            if let Some(value) = headers.get_mut(name) {
                mem::swap(place, value);
            }
        }
        *headers = all;
    }
}

/// Returns a map of names, or none if it does not go through them in their order.
fn map_of<'a>(names: impl Iterator<Item = &'a HeaderName> + Clone) -> HeaderMap {
    let mut map = HeaderMap::new();
    for name in names.clone() {
        map.insert(name, HeaderValue::from_static(""));
    }
    // Maps do so, but do not promise it.
    if map.keys().eq(names) { map } else { HeaderMap::new() }
}

/// The most headers of the limits, but for unusual settings.
const MOST: usize = 5;

/// Inserts the headers that `write` calls its argument with, one by one.
#[inline]
pub(super) fn insert(headers: &mut HeaderMap, write: impl FnOnce(&mut dyn FnMut(&HeaderName, HeaderValue))) {
    // Once for all of them, as a map that has to grow is rebuilt.
    headers.reserve(MOST);
    write(&mut |name, value| drop(headers.insert(name, value)));
}

#[cfg(test)]
mod tests {
    use http::header::{ETAG, SET_COOKIE, VARY};

    use super::*;

    static NAMES: [HeaderName; 4] = [
        HeaderName::from_static("x-c"),
        HeaderName::from_static("x-a"),
        HeaderName::from_static("x-d"),
        HeaderName::from_static("x-b"),
    ];

    fn value(number: usize) -> HeaderValue {
        HeaderValue::from(number)
    }

    /// Writes all names into these headers, by a template and without.
    #[track_caller]
    fn writes(headers: &HeaderMap) {
        let write = |put: &mut dyn FnMut(&HeaderName, HeaderValue)| {
            NAMES.iter().enumerate().for_each(|(number, name)| put(name, value(number)));
        };
        let (mut with, mut without) = (headers.clone(), headers.clone());
        Template::of(&NAMES.iter()).fill(&mut with, write);
        insert(&mut without, write);
        assert_eq!(with, without);
        assert_eq!(with.len(), headers.len() + NAMES.len());
        assert!(NAMES.iter().enumerate().all(|(number, name)| with[name] == value(number)));
        assert!(headers.keys().all(|name| with.get_all(name).iter().eq(headers.get_all(name).iter())));
    }

    #[test]
    fn each_name_gets_its_value_and_headers_stay() {
        let others = [CONTENT_LENGTH, CONTENT_TYPE, ETAG, VARY];
        for choice in 0..1 << others.len() {
            let chosen = others.iter().enumerate().filter(|(place, _)| choice & 1 << place != 0);
            writes(&chosen.map(|(place, name)| (name.clone(), value(place + 7))).collect());
        }
    }

    #[test]
    fn several_values_of_a_name_keep_their_order() {
        for name in [SET_COOKIE, CONTENT_TYPE] {
            let mut headers = HeaderMap::new();
            headers.append(&name, value(2));
            headers.append(&name, value(1));
            writes(&headers);
        }
    }
}
