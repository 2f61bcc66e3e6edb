//! What extractors make of a head, whoever wrote it: text of a bounded length and harmless bytes.

use futures::FutureExt;
use http::request::Parts;
use tollgate::key::Extracted;

use super::rig::every_key;

/// `<kind>:<value>`: the longest kind here, and three values of at most 64 bytes each.
const LONGEST: usize = 256;

/// Checks every extractor's answer.
#[track_caller]
pub(crate) fn assert_harmless(parts: &Parts) {
    for (number, key) in every_key().iter().enumerate() {
        let found = key.extract(parts).wait().now_or_never();
        let secret = if let Some(Extracted::Secret(secret)) = &found { Some(secret.key().clone()) } else { None };
        match secret.map(Extracted::Key).or(found) {
            Some(Extracted::Key(key)) => {
                let text = key.as_str();
                assert!(text.len() <= LONGEST, "key {number} has {} bytes: {text}", text.len());
                let harmless = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && !b"{}".contains(&byte);
                assert!(text.bytes().all(harmless), "key {number}: {text:?}");
            }
            Some(Extracted::Missing | Extracted::Ambiguous) => {}
            other => panic!("key {number} answers {other:?}"),
        }
    }
}
