//! A kind of keys, and the applications that read what such keys are made of.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use futures::FutureExt;
use http::Request;
use http::request::Parts;
use tollgate::key::{Extracted, KeyExtractor};

use super::addresses::PROXY;
use super::routed::at_layer;
use super::{Choices, Spelling};

/// A kind of keys.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Makes a request.
    pub(crate) spell: fn(&mut Choices<'_>) -> Spelling,
    /// Whether applications need to route it.
    pub(crate) is_routed: bool,
    /// What all that is not certain counts on, where that is no ambiguous key.
    pub(crate) shared: Option<&'static str>,
    pub(crate) apps: Vec<App>,
}

/// An application.
pub(crate) struct App {
    pub(crate) name: &'static str,
    /// The client that it sees.
    pub(crate) sees: fn(&Parts) -> Option<String>,
    /// How a client is usually written for it.
    pub(crate) plain: fn(&str) -> Spelling,
    /// Those that fit it.
    pub(crate) keys: Vec<Arc<dyn KeyExtractor>>,
}

pub(crate) fn app<const N: usize>(
    name: &'static str,
    sees: fn(&Parts) -> Option<String>,
    plain: fn(&str) -> Spelling,
    keys: [impl KeyExtractor; N],
) -> App {
    App { name, sees, plain, keys: keys.map(|key| Arc::new(key) as Arc<dyn KeyExtractor>).into() }
}

impl Kind {
    /// The head that a layer gets, if a server would hand the request on: all come from one proxy.
    pub(crate) fn receive(&self, mut request: Request<()>) -> Option<Parts> {
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((PROXY, 4711))));
        if self.is_routed { at_layer(request) } else { Some(request.into_parts().0) }
    }

    /// What a request is counted by, `None` is what is shared; an error if there is no key.
    pub(crate) fn key(&self, key: &dyn KeyExtractor, parts: &Parts) -> Result<Option<String>, String> {
        let found = match key.extract(parts).wait().now_or_never() {
            Some(Extracted::Key(key)) => key.to_string(),
            Some(Extracted::Secret(secret)) => secret.key().to_string(),
            Some(Extracted::Ambiguous) => return Ok(None),
            other => return Err(format!("{other:?}")),
        };
        Ok(Some(found).filter(|text| self.shared != Some(text.as_str())))
    }
}
