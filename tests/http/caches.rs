//! A cache that clients share, here a real nginx: whose limits a response has that it keeps.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{Request, Response};
use tollgate::policy::MissingKey;
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer, key};

use crate::rig::{Text, layer};
use crate::sockets::{Http, Server};
use crate::support::nginx::Nginx;

const PUBLIC: &str = "public, max-age=60";

fn per_user() -> RateLimitLayer {
    layer([Policy::new("user", Quota::per_hour(10)).key(key::header("x-user")).missing_key(MissingKey::Deny)])
}

/// A page, and what its handler says to caches.
fn page(cache_control: &'static str) -> Router {
    Router::new().route("/", get(async move || ([(CACHE_CONTROL, cache_control)], "a page")))
}

async fn get_as(address: SocketAddr, user: &str) -> Response<Bytes> {
    let request = Request::get(format!("http://{address}/")).header("x-user", user);
    Http::new().request(request.body(Text::default()).expect("a request")).await
}

/// An app behind a cache, and the address of that.
async fn cached(app: Router) -> (Server, Nginx, SocketAddr) {
    let app = Server::start(app).await;
    let nginx = Nginx::start_caching(app.address.port());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, nginx.port(false, false)));
    (app, nginx, address)
}

/// Whether a response came from the cache, and the limits in its headers.
fn shown(answer: &Response<Bytes>) -> (bool, Option<&str>) {
    let field = |name| answer.headers().get(name).map(|value| value.to_str().expect("ASCII"));
    assert_eq!(answer.status(), 200);
    (field("x-cache") == Some("HIT"), field("ratelimit"))
}

const ADA: Option<&str> = Some("\"user\";r=8;t=2880");
const BOB: Option<&str> = Some("\"user\";r=9;t=3240");

#[tokio::test]
async fn a_shared_cache_replays_the_limits_of_one_client_unless_they_are_left_out_or_it_is_private() {
    for (app, what, of_bob) in [
        (page(PUBLIC).layer(per_user()), "public", (true, ADA)),
        (page(PUBLIC).layer(per_user().headers(RateLimitHeaders::none())), "public, without headers", (true, None)),
        (page("private, max-age=60").layer(per_user()), "private", (false, BOB)),
    ] {
        let (app, _nginx, cache) = cached(app).await;
        drop(get_as(app.address, "ada").await);
        let (ada, bob) = (get_as(cache, "ada").await, get_as(cache, "bob").await);
        assert_eq!(shown(&ada), (false, of_bob.1.and(ADA)), "{what}");
        assert_eq!(shown(&bob), of_bob, "{what}");
    }
}
