//! Headers whose names are known before their values.
//!
//! A map hashes each name that is inserted, byte by byte, and those of limits are long. A copy of a map has the hashes
//! already, so to copy one with all names takes less time. A map that has headers is not replaced by a copy: in a server
//! with several threads the blocks that this allocates and frees cost more than the hashes.

use http::{HeaderMap, HeaderName, HeaderValue};

/// A map of names, and of values that stand for others.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    names: HeaderMap,
}

impl Template {
    /// Prepares these names, in their order.
    pub(super) fn of<'a>(names: &(impl Iterator<Item = &'a HeaderName> + Clone)) -> Self {
        let mut map = HeaderMap::new();
        for name in names.clone() {
            map.insert(name, HeaderValue::from_static(""));
        }
        // Maps go through their names in the order of insertion, but do not promise it.
        let is_in_order = map.keys().eq(names.clone());
        Self { names: if is_in_order { map } else { HeaderMap::new() } }
    }

    /// Writes a value for each name into headers with none of the names: `write` calls its argument with all names, in
    /// their order.
    ///
    /// Where other headers are there, it writes them one by one.
    #[inline]
    pub(super) fn fill(&self, headers: &mut HeaderMap, write: impl FnOnce(&mut dyn FnMut(&HeaderName, HeaderValue))) {
        if !headers.is_empty() || self.names.is_empty() {
            return insert(headers, write);
        }
        *headers = self.names.clone();
        let mut places = headers.iter_mut();
        write(&mut |name, value| {
            if let Some((of, place)) = places.next() {
                debug_assert_eq!(of, name);
                *place = value;
            }
        });
    }
}

/// How many headers of the limits there are by default.
const USUAL: usize = 5;

/// Inserts the headers that `write` calls its argument with, one by one.
#[inline]
pub(super) fn insert(headers: &mut HeaderMap, write: impl FnOnce(&mut dyn FnMut(&HeaderName, HeaderValue))) {
    // Once for all of them, as a map that has to grow is rebuilt.
    headers.reserve(USUAL);
    write(&mut |name, value| drop(headers.insert(name, value)));
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, SET_COOKIE, VARY};

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
