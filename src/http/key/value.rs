//! Keys from the value of a header, cookie, parameter or user name: which of several values counts, and in which form
//! it is compared.
//!
//! The same value must be the same key over HTTP/1 and HTTP/2, which differ in whether they keep white space around it.
//! The case and the inside of values stay unchanged: only the application knows whether they matter.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::authorization::user_value;
use super::cookie::{bare, cookie_value};
use super::extracted::Extracted;
use super::reading::{Choices, Pick, Value, bytes, carried, lines, text};
#[cfg(feature = "axum")]
use super::route::param_value;
use super::{KeyExtractor, KeyInfo};
use crate::core::error::built;
use crate::core::{Error, Key, KeyKind, MaybeFuture};

/// Extractor of a value that clients send.
///
/// Created by [`header`](super::header), [`cookie`](super::cookie()), [`query`](super::query()),
/// [`path_param`](super::path_param()) and [`basic_user`](super::basic_user()), which have the rules and examples.
/// If a request has several values that differ, the key is [ambiguous](Extracted::Ambiguous), unless
/// [`first`](Self::first) or [`last`](Self::last) states which of them the application reads.
#[derive(Clone)]
#[must_use]
pub struct ValueKey {
    source: ValueSource,
    kind: KeyKind,
    plain: bool,
    choices: Choices,
}

#[derive(Clone)]
enum ValueSource {
    Header(HeaderName),
    Cookie(String),
    Query(String),
    #[cfg(feature = "axum")]
    PathParam(String),
    BasicUser,
}

/// Identifies clients by the value of a header, such as an API key.
///
/// White space around the value is ignored. A header with several lines that differ is
/// [ambiguous](Extracted::Ambiguous), unless [`first`](ValueKey::first) or [`last`](ValueKey::last) states which of them
/// the application reads.
///
/// The value is treated as a secret: only a hash of it leaves the process, unless [`plain`](ValueKey::plain) is set. A
/// request without the header has no key. An empty value is a value like any other.
///
/// The client chooses the value: each invented value starts its own counter, unless an outer layer has verified it.
///
/// # Panics
///
/// If `name` is not a header name: see [`try_header`]. The case of `name` does not matter, and an [`http::HeaderName`]
/// never panics.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let region = key::header("x-region").plain();
///
/// let (parts, ()) = http::Request::get("/").header("x-region", "eu").body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = region.extract(&parts) else { panic!("there is a header") };
/// assert_eq!(key.as_str(), "header x-region:eu");
///
/// let request = http::Request::get("/").header("x-region", "eu").header("x-region", "us");
/// let (parts, ()) = request.body(())?.into_parts();
/// assert!(matches!(region.extract(&parts), MaybeFuture::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
#[track_caller]
pub fn header(name: impl AsRef<str>) -> ValueKey {
    built(try_header(name))
}

/// Fallible version of [`header`].
///
/// # Errors
///
/// If `name` is not a header name.
pub fn try_header(name: impl AsRef<str>) -> Result<ValueKey, Error> {
    let header = header_name(name.as_ref())?;
    let kind = format!("header {header}");
    Ok(ValueKey::new(ValueSource::Header(header), &kind))
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, Error> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
        let shown: String = name.chars().take(64).collect();
        Error::invalid(format!("{shown:?} is not a header name: use letters, digits and '-'")).with_source(error)
    })
}

/// Identifies clients by the value of a cookie, such as a session.
///
/// Names and values are percent-decoded. Double quotes and white space around a value are ignored. The case of the name
/// matters. A cookie with several values that differ is [ambiguous](Extracted::Ambiguous), unless
/// [`first`](ValueKey::first) or [`last`](ValueKey::last) states which of them the application reads: browsers send
/// several values if a cookie is set for two paths or domains. A value is also ambiguous if it is not UTF-8, has a
/// quote on one side only, or has a backslash in quotes. So is a value with white space other than spaces and tabs
/// around the value or its name.
///
/// The value is treated as a secret: only a hash of it leaves the process, unless [`plain`](ValueKey::plain) is set. A
/// request without the cookie has no key. An empty value is a value like any other.
///
/// The client chooses the value: each invented value starts its own counter, unless an outer layer has verified it.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let theme = key::cookie("theme").plain();
///
/// let (parts, ()) = http::Request::get("/").header("cookie", "id=7; theme=dark").body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = theme.extract(&parts) else { panic!("there is a cookie") };
/// assert_eq!(key.as_str(), "cookie theme:dark");
///
/// let (parts, ()) = http::Request::get("/").header("cookie", "theme=dark; theme=light").body(())?.into_parts();
/// assert!(matches!(theme.extract(&parts), MaybeFuture::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
pub fn cookie(name: impl AsRef<str>) -> ValueKey {
    let name = name.as_ref();
    ValueKey::new(ValueSource::Cookie(name.to_owned()), &format!("cookie {name}"))
}

/// Identifies clients by the value of a query parameter.
///
/// Names and values are percent-decoded, and `+` is a space. A parameter with several values that differ is
/// [ambiguous](Extracted::Ambiguous), unless [`first`](ValueKey::first) or [`last`](ValueKey::last) states which of
/// them the application reads. A parameter is also ambiguous if it has another value when `;` separates parameters like
/// `&`.
///
/// The value stays readable in the store and in logs of keys, unless its escaped form is longer than 64 bytes. Then it
/// is hashed. So a secret, such as a token, should be a [`header`](super::header), whose values are hashed. A request
/// without the parameter has no key. An empty value is a value like any other.
///
/// The client chooses the value: each invented value starts its own counter.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let tenant = key::query("tenant");
///
/// let (parts, ()) = http::Request::get("/orders?tenant=acme&page=2").body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = tenant.extract(&parts) else { panic!("there is a tenant") };
/// assert_eq!(key.as_str(), "query tenant:acme");
///
/// let (parts, ()) = http::Request::get("/orders?tenant=acme&tenant=eve").body(())?.into_parts();
/// assert!(matches!(tenant.extract(&parts), MaybeFuture::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
pub fn query(name: impl AsRef<str>) -> ValueKey {
    let name = name.as_ref();
    ValueKey::new(ValueSource::Query(name.to_owned()), &format!("query {name}")).plain()
}

/// Identifies clients by a parameter of the route, such as `id` in `/users/{id}` or `rest` in `/files/{*rest}`.
///
/// The value is percent-decoded and equal to the value in axum's `Path`, even if the path was rewritten before it was
/// routed. It stays readable in the store, unless its escaped form is longer than 64 bytes. Then it is hashed. A
/// request whose route has no such parameter has no key. The parameter is [ambiguous](Extracted::Ambiguous) if its
/// value is not UTF-8, or if nested routers have several parameters with this name and different values.
///
/// axum sets the route only in layers that are added with `Router::layer` or `route_layer`, not in layers around the
/// whole service.
///
/// If the application parses the value, several spellings are one client: to `Path<u64>`, `07` and `+7` are `7`. Set
/// [`normalize`](ValueKey::normalize) for it.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// let policy = Policy::new("tenant", Quota::per_minute(600)).key(key::path_param("tenant"));
/// let app: Router = Router::new()
///     .route("/{tenant}/orders", get(|| async {}))
///     .layer(RateLimitLayer::new(MemoryStore::new(), policy));
/// # let _ = app;
/// ```
#[cfg(feature = "axum")]
pub fn path_param(name: impl AsRef<str>) -> ValueKey {
    let name = name.as_ref();
    ValueKey::new(ValueSource::PathParam(name.to_owned()), &format!("path_param {name}")).plain()
}

/// Identifies clients by the user name of `Authorization: Basic`, whatever the password.
///
/// Only a hash of the name leaves the process, unless [`plain`](ValueKey::plain) is set. The password is never used. A
/// request without the header, or with another scheme, has no key. An empty name is a value like any other. Credentials
/// that are not base64, or whose name is not UTF-8, are [ambiguous](Extracted::Ambiguous), because servers differ in
/// how they read them. Credentials are also ambiguous if another `Authorization` line differs, unless
/// [`first`](ValueKey::first) or [`last`](ValueKey::last) picks a line, whatever its scheme.
///
/// This key suits limits of failed logins. If the application treats `ADA` and `ada` as one user, set
/// [`ignore_case`](ValueKey::ignore_case). The client chooses the name: each invented name starts its own counter.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let user = key::basic_user().plain().ignore_case();
///
/// // `Ada:secret`
/// let request = http::Request::get("/").header("authorization", "Basic QWRhOnNlY3JldA==");
/// let (parts, ()) = request.body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = user.extract(&parts) else { panic!("there is a name") };
/// assert_eq!(key.as_str(), "basic_user:ada");
/// # Ok::<(), http::Error>(())
/// ```
pub fn basic_user() -> ValueKey {
    ValueKey::new(ValueSource::BasicUser, "basic_user")
}

impl ValueKey {
    fn new(source: ValueSource, kind: &str) -> Self {
        let kind = KeyKind::new(kind);
        Self { source, kind, plain: false, choices: Choices::new() }
    }

    /// Keeps the value readable in keys, and so in the store, instead of a hash of it.
    ///
    /// Values of query and path parameters are always readable. A value whose escaped form is longer than 64 bytes is
    /// hashed even so.
    pub fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// Uses the first of several values, instead of the [`last`](Self::last), for applications that read the first.
    ///
    /// Go's `Request.Cookie` and Rack read the first cookie. Servers may differ in which cookie is the first, because
    /// some decode names and some drop malformed cookies. In such a case, the cookie is ambiguous if another value
    /// differs from it.
    pub fn first(self) -> Self {
        Self { choices: Choices { pick: Pick::First, ..self.choices }, ..self }
    }

    /// Uses the last of several values, instead of the [`first`](Self::first), for applications that read the last.
    ///
    /// axum-extra's `CookieJar` and axum's `Query` of a map read the last. For cookies it has the same limits as
    /// [`first`](Self::first).
    pub fn last(self) -> Self {
        Self { choices: Choices { pick: Pick::Last, ..self.choices }, ..self }
    }

    /// Lower-cases ASCII letters, for applications that ignore their case.
    pub fn ignore_case(self) -> Self {
        Self { choices: Choices { ignores_case: true, ..self.choices }, ..self }
    }

    /// Identifies clients by the result of a function of the value.
    ///
    /// The function receives the value decoded and without white space around it. It must return one result for all
    /// values that the application treats as one client, and must return its own results unchanged, because entries of
    /// [lists](crate::policy::AccessList) are such results.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key;
    ///
    /// // The application ignores leading zeros.
    /// let account = key::header("x-account").normalize(|value| {
    ///     let zeros = value.iter().take_while(|byte| **byte == b'0').count();
    ///     value[zeros..].into()
    /// });
    ///
    /// // `s:<session>.<signature>`: the session stays the same when the signature is renewed.
    /// let session = key::cookie("sid").normalize(|value| {
    ///     value.split(|byte| *byte == b'.').next().unwrap_or(value).into()
    /// });
    /// # let _ = (account, session);
    /// ```
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        Self { choices: Choices { normalize: Some(Arc::new(normalize)), ..self.choices }, ..self }
    }

    pub(super) fn value<'a>(&'a self, parts: &'a Parts) -> Value<'a> {
        let choices = &self.choices;
        match &self.source {
            ValueSource::Header(name) => {
                choices.pick.pick(lines(&parts.headers, name).map(|line| choices.form(Cow::Borrowed(line))))
            }
            ValueSource::Cookie(name) => cookie_value(choices, name, parts),
            ValueSource::Query(name) => query_value(choices, name, parts),
            #[cfg(feature = "axum")]
            ValueSource::PathParam(name) => param_value(choices, name, parts),
            ValueSource::BasicUser => user_value(choices, parts),
        }
    }

    fn key(&self, value: &[u8]) -> Key {
        if self.plain { self.kind.key(value) } else { self.kind.hashed(value) }
    }
}

#[diagnostic::do_not_recommend]
impl KeyExtractor for ValueKey {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(self.value(parts).map(|value| value.map(|value| self.key(&value))).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new(self.kind.as_str().to_owned())
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        let read = match &self.source {
            ValueSource::Header(_) => carried(value),
            ValueSource::Cookie(_) => text(value).map(bare),
            ValueSource::BasicUser => text(value).filter(|name| !name.contains(&b':')),
            ValueSource::Query(_) => text(value),
            #[cfg(feature = "axum")]
            ValueSource::PathParam(_) => text(value),
        };
        // A closure may return values that no request can carry.
        let is_result = || self.choices.normalize.is_some() && *self.choices.form(Cow::Borrowed(value)) == *value;
        let value = read.or_else(|| is_result().then_some(value))?;
        Some(self.key(&self.choices.form(Cow::Borrowed(value))))
    }
}

impl fmt::Debug for ValueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueKey").field("kind", &self.kind).field("pick", &self.choices.pick).finish_non_exhaustive()
    }
}

fn query_value<'a>(choices: &'a Choices, name: &str, parts: &'a Parts) -> Value<'a> {
    let query = parts.uri.query().unwrap_or_default();
    let values = |piece: &'a str| {
        let pairs =
            piece.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let of_name = pairs.filter(|(of, _)| form_text(of) == name);
        of_name.map(|(_, value)| choices.form(bytes(form_text(value))))
    };
    // Some servers also split queries at `;`.
    if query.contains(';') && !values(query).eq(query.split(';').flat_map(values)) {
        return Err(super::Ambiguous);
    }
    choices.pick.pick(values(query))
}

/// Decodes a form's name or value: <https://url.spec.whatwg.org/#urlencoded-parsing>.
fn form_text(text: &str) -> Cow<'_, str> {
    if !text.contains('+') {
        return percent_decode_str(text).decode_utf8_lossy();
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}
