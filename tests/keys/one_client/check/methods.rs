//! The method.

use http::request::Parts;
use tollgate::key;

use super::routed::AtHandler;
use super::{Choices, Kind, Spelling, app};

pub(super) fn kind() -> Kind {
    let app = |name, sees| app(name, sees, |method| Spelling::by(method), [key::method()]);
    let apps = vec![
        app("the method", |parts| Some(parts.method.to_string())),
        app("the handler that axum runs", handler),
        app("the method in capital letters", |parts| {
            Some(parts.method.as_str().to_ascii_uppercase()).filter(|method| method != "HEAD")
        }),
        app("whether it is safe", |parts| {
            parts.method.is_safe().then(|| parts.method.to_string()).filter(|it| it == "GET")
        }),
    ];
    Kind { name: "method", spell, is_routed: true, shared: Some("method:<other>"), apps }
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    const METHODS: &[&str] =
        &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "Get", "gET", "M"];
    let method = choices.pick(METHODS);
    let method = choices.cased(method);
    let mut spelling =
        Spelling::by(if choices.one_in(8) { choices.text(&["GET", "HEAD", "A", "-", "_"], 3) } else { method });
    spelling.target = String::from(choices.pick(&["/", "/?q", "http://acme/", "/?"]));
    if choices.one_in(4) {
        spelling.lines.push((choices.pick(&["x-http-method-override", "x-http-method"]), b"DELETE".to_vec()));
    }
    spelling
}

/// Not the one for all others: those are many clients.
fn handler(parts: &Parts) -> Option<String> {
    let AtHandler(_, name) = parts.extensions.get()?;
    (*name != "fallback").then(|| (*name).to_owned())
}
