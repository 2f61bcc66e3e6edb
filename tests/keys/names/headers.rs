//! Headers: over HTTP/2, which keeps the white space around a value, and with several lines.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, RateLimitLayer, key};

use super::rig::{ONE, REAL, one, policy, shared, with};

const KEY: &str = "x-api-key";

/// A server behind a layer, on a socket, and a client of it that speaks HTTP/2.
struct Served {
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Served {
    async fn start(policy: Policy) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let layer = RateLimitLayer::new(MemoryStore::new(), policy);
        let app: Router = Router::new().route("/", any(tell)).layer(layer);
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Self { address, client }
    }

    async fn status(&self, value: &[u8]) -> u16 {
        let mut request = Request::get(format!("http://{}/", self.address)).body(Full::default()).expect("a request");
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().insert(KEY, HeaderValue::from_bytes(value).expect("a header value"));
        let answer = tokio::time::timeout(std::time::Duration::from_secs(20), self.client.request(request));
        let answer = answer.await.expect("it takes far too long").expect("a response");
        if answer.status() == 200 {
            let (told, sent) = (&answer.headers()["x-told"], HeaderValue::from_bytes(value).expect("the same"));
            assert_eq!(told, &sent, "white space came through");
        }
        answer.status().as_u16()
    }
}

/// Tells the value as it came.
async fn tell(headers: HeaderMap) -> [(&'static str, HeaderValue); 1] {
    // A server that echoes it as it is would have it trimmed by no one.
    [("x-told", headers[KEY].clone())]
}

/// The value as a server of HTTP/1 behind this one gets it, which takes the last of several.
fn last(parts: &Parts) -> Option<String> {
    let line = parts.headers.get_all(KEY).iter().next_back()?;
    Some(line.to_str().ok()?.trim().to_owned())
}

/// The same, which takes the first.
fn first(parts: &Parts) -> Option<String> {
    Some(parts.headers.get(KEY)?.to_str().ok()?.trim().to_owned())
}

#[tokio::test]
async fn white_space_around_a_header_over_http_2_is_no_other_client() {
    let served = Served::start(policy(key::header(KEY))).await;
    assert_eq!(served.status(b"REAL").await, 200);
    for name in ["REAL ", "REAL\t", " REAL", "\tREAL", " \t REAL\t \t"] {
        assert_eq!(served.status(name.as_bytes()).await, 429, "{name:?}");
    }
    assert_eq!(served.status(b"another ").await, 200);
}

#[tokio::test]
async fn white_space_around_a_denied_key_over_http_2_lets_nobody_in() {
    let served = Served::start(policy(key::header(KEY)).deny(AccessList::parse(["stolen"]).expect("a key"))).await;
    for name in ["stolen", "stolen ", "\tstolen", " stolen\t"] {
        assert_eq!(served.status(name.as_bytes()).await, 403, "{name:?}");
    }
    assert_eq!(served.status(b"mine ").await, 200);
}

#[test]
fn a_line_made_up_before_the_one_the_application_takes_starts_no_counter() {
    shared(key::header(KEY), last, one(KEY, REAL), |n| with([(KEY, format!("junk{n}")), (KEY, REAL.to_owned())]));
}

#[test]
fn a_line_made_up_after_the_one_the_application_takes_starts_no_counter() {
    shared(key::header(KEY), first, one(KEY, REAL), |n| with([(KEY, REAL.to_owned()), (KEY, format!("junk{n}"))]));
}

#[test]
fn a_denied_key_among_several_lines_is_refused() {
    let denying = Policy::new("policy", ONE).key(key::header(KEY)).deny(AccessList::parse(["stolen"]).expect("a key"));
    let service = super::rig::service(denying);
    for lines in [["stolen", "x"], ["x", "stolen"], ["x", "stolen "]] {
        super::rig::expect(&service, [(with(lines.map(|line| (KEY, line))), 400)]);
    }
}
