//! Clients behind a real nginx, which are one peer to the server: what one of them does is not another's fault.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::{Method, StatusCode, Uri};
use tollgate::policy::Count;
use tollgate::{Ban, MemoryStore, Policy, Quota, RateLimitLayer, key};

use crate::sockets::{Http, Server};
use crate::support::nginx::Nginx;

const MINUTE: Duration = Duration::from_secs(60);

/// An app whose `/login?right` is a login with the right password; eight wrong ones are a ban.
fn logins() -> Router {
    let ban = Ban::new(8, 10 * MINUTE, 15 * MINUTE);
    let login = Policy::new("login", Quota::per_minute(100))
        .key(key::client_ip())
        .ban_failures(ban, Count::statuses([StatusCode::UNAUTHORIZED]));
    let layer = RateLimitLayer::composite(MemoryStore::new())
        .client(key::client_ip().trusted_proxies(["127.0.0.1"]))
        .ip(Quota::per_minute(300))
        .policy(login);
    let check = async |uri: Uri| if uri.query() == Some("right") { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
    Router::new().route("/login", post(check)).layer(layer)
}

#[tokio::test]
async fn eight_wrong_passwords_of_one_client_banned_everybody_behind_the_proxy() {
    let server = Server::start(logins()).await;
    let nginx = Nginx::start_forwarding(server.address.port());
    let login = async |client: &str, query: &str| {
        let uri = format!("http://127.0.0.1:{}/login?{query}", nginx.port(false, false));
        Http::from(client).send(Method::POST, uri).await.status().as_u16()
    };
    for _ in 0..8 {
        assert_eq!(login("127.0.0.2", "wrong").await, 401);
    }
    // A strike is counted in the background.
    let mut banned = 0;
    for _ in 0..50 {
        banned = login("127.0.0.2", "right").await;
        if banned == 429 {
            break;
        }
    }
    assert_eq!(banned, 429, "who guesses is banned");
    assert_eq!(login("127.0.0.3", "right").await, 200, "who knows the password is not");
    server.stop().await;
}
