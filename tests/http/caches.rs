//! A cache that clients share, here a real nginx: whose limits a response has that it keeps.

use axum::Router;
use axum::routing::get;
use http::Request;
use http::header::CACHE_CONTROL;
use tollgate::policy::MissingKey;
use tollgate::{Policy, Quota, RateLimitHeaders, key};

use crate::rig::{Text, expect, layer, with};
use crate::sockets::{Http, Server};
use crate::support::nginx::Nginx;

const ADA: &str = "\"user\";r=8;t=2880";
const BOB: &str = "\"user\";r=9;t=3240";

#[tokio::test]
async fn a_shared_cache_replays_the_limits_of_one_client_unless_they_are_left_out_or_it_is_private() {
    for (cache_control, headers, of_ada, of_bob, of_cache) in [
        ("public, max-age=60", RateLimitHeaders::both(), ADA, ADA, "HIT"),
        ("public, max-age=60", RateLimitHeaders::none(), "", "", "HIT"),
        ("private, max-age=60", RateLimitHeaders::both(), ADA, BOB, "MISS"),
    ] {
        let policy = Policy::new("user", Quota::per_hour(10)).key(key::header("x-user")).missing_key(MissingKey::Deny);
        let page = get(async move || ([(CACHE_CONTROL, cache_control)], "a page"));
        let app = Server::start(Router::new().route("/", page).layer(layer([policy]).headers(headers))).await;
        let nginx = Nginx::start_caching(app.address.port());
        let cache = format!("http://127.0.0.1:{}/", nginx.port(false, false));
        for (uri, user, left, from) in [
            (&app.uri("/"), "ada", None, ""),
            (&cache, "ada", Some(of_ada), "MISS"),
            (&cache, "bob", Some(of_bob), of_cache),
        ] {
            let request = Request::get(uri).body(Text::default()).expect("a request");
            let response = Http::new().request(with(request, "x-user", user)).await;
            assert_eq!(response.status(), 200, "{cache_control}");
            expect(response.headers(), &[("x-cache", from)]);
            if let Some(left) = left {
                expect(response.headers(), &[("ratelimit", left)]);
            }
        }
    }
}
