//! Keys by their names in files: `[first: | last:] [ignore_case:] WORD [:NAME]`. The prefixes may be in either order,
//! each once.

use std::sync::Arc;

use tollgate::key::{self, KeyExtractor, ValueKey};
use toml::Spanned;

use super::error::{At, Fault};
use super::headers::header_name;
use super::server::Server;
use super::values::WordOr;

type DynKey = Arc<dyn KeyExtractor>;

const MAX_JOINED: usize = 8;

const KEYS: &str = "client_ip, peer_ip, route, path, method, host, global, bearer, basic_user, header:NAME, cookie:NAME, \
                    query:NAME, path_param:NAME";

type Choice = fn(ValueKey) -> ValueKey;

pub(super) fn read_key(given: &Spanned<WordOr<String>>, server: &Server) -> Result<DynKey, Fault> {
    match given.get_ref() {
        WordOr::Word(text) => find(text, server).at(given),
        WordOr::List(words) if words.is_empty() || words.len() > MAX_JOINED => {
            let message = format!("a list of {} keys is not allowed: use 1 to {MAX_JOINED}", words.len());
            Err(Fault::new(given, message))
        }
        WordOr::List(words) => {
            let mut keys = words.iter().map(|word| find(word.get_ref(), server).at(word));
            let first = keys.next().expect("the list is not empty")?;
            keys.try_fold(first, |joined, key| Ok(Arc::new((joined, key?)) as DynKey))
        }
    }
}

#[cfg_attr(not(feature = "axum"), expect(unused_variables, reason = "only axum has addresses"))]
fn find(text: &str, server: &Server) -> Result<DynKey, String> {
    let (mut pick, mut case, mut key) = (None, None, text);
    while let Some((word, rest)) = key.split_once(':') {
        let (choice, new): (_, Choice) = match word {
            "first" => (&mut pick, ValueKey::first),
            "last" => (&mut pick, ValueKey::last),
            "ignore_case" => (&mut case, ValueKey::ignore_case),
            _ => break,
        };
        if choice.replace(new).is_some() {
            return Err(format!("key {text:?} chooses twice: use first or last, and ignore_case, once each"));
        }
        key = rest;
    }
    let read = |key| [pick, case].into_iter().flatten().fold(key, |key, choice| choice(key));
    let (word, name) = key.split_once(':').map_or((key, None), |(word, name)| (word, Some(name)));
    if let Some(feature) = missing_feature(word) {
        return Err(format!("key {word:?} needs the feature {feature}: turn it on, or use another key"));
    }
    let key: DynKey = match (word, name) {
        #[cfg(feature = "axum")]
        ("client_ip", None) => Arc::new(server.client.clone()),
        #[cfg(feature = "axum")]
        ("peer_ip", None) => Arc::new(key::peer_ip()),
        #[cfg(feature = "axum")]
        ("route", None) => Arc::new(key::route()),
        ("path", None) => Arc::new(key::path()),
        ("method", None) => Arc::new(key::method()),
        ("host", None) => Arc::new(key::host()),
        ("global", None) => Arc::new(key::global()),
        ("bearer", None) => Arc::new(key::bearer()),
        ("basic_user", None) => Arc::new(read(key::basic_user())),
        ("header", Some(name)) => Arc::new(read(key::header(header_name("key header:NAME", name)?))),
        ("cookie", Some(name)) if is_token(name) => Arc::new(read(key::cookie(name))),
        ("query", Some(name)) if !name.is_empty() => Arc::new(read(key::query(name))),
        #[cfg(feature = "axum")]
        ("path_param", Some(name)) if !name.is_empty() && !name.contains(['{', '}', '*', '/', ':']) => {
            Arc::new(read(key::path_param(name)))
        }
        ("header" | "cookie" | "query" | "path_param", name) => {
            let (name, advice) =
                (name.unwrap_or_default(), "header:x-api-key, cookie:session, query:tenant or path_param:id");
            return Err(format!("key {word}:NAME has {name:?} for a name: use one such as {advice}"));
        }
        _ => return Err(format!("key {text:?} is unknown: use one of {KEYS}")),
    };
    let is_value = matches!(word, "header" | "cookie" | "query" | "path_param" | "basic_user");
    if is_value || pick.is_none() && case.is_none() {
        return Ok(key);
    }
    let advice = "header, cookie, query, path_param and basic_user take first, last and ignore_case";
    Err(format!("key {word:?} takes no such choice: {advice}"))
}

fn missing_feature(word: &str) -> Option<&'static str> {
    match word {
        "client_ip" | "peer_ip" | "route" | "path_param" if cfg!(not(feature = "axum")) => Some("axum"),
        _ => None,
    }
}

/// Cookie names are tokens: <https://www.rfc-editor.org/rfc/rfc6265#section-4.1.1>.
fn is_token(name: &str) -> bool {
    let is_char = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    !name.is_empty() && name.bytes().all(is_char)
}

#[cfg(all(test, not(feature = "axum")))]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_key_whose_feature_is_off_is_an_error_that_names_the_feature() {
        let words = KEYS.split(", ").map(|form| form.trim_end_matches(":NAME"));
        let lacking: Vec<_> = words.filter_map(|word| Some((word, missing_feature(word)?))).collect();
        for (word, feature) in &lacking {
            for key in [(*word).to_owned(), format!("{word}:id"), format!("last:ignore_case:{word}:id")] {
                let text =
                    format!("[[policy]]\nname = \"a\"\nlimit = 1\nwindow = \"1s\"\nkey = [\"global\", \"{key}\"]\n");
                let error = Config::from_toml(&text).expect_err("the key is not in this build");
                let named = format!("key {word:?} needs the feature {feature}: turn it on");
                assert!(error.is_invalid() && error.to_string().contains(&named), "{error}");
            }
        }
        assert!(!lacking.is_empty());
    }
}
