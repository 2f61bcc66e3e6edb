use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use std::net::SocketAddr;
use tokio::time::Instant;
use tollgate::MemoryStore;
use tollgate::test_util::ManualClock;
use tower::ServiceExt;

async fn send(app: &Router, from: u8, method: &str, body: Vec<u8>) -> Response {
    let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, from], 49_152)));
    let request = Request::builder().method(method).uri("/file").extension(peer).body(Body::from(body));
    let Ok(response) = app.clone().oneshot(request.expect("a valid request")).await;
    response
}

/// The bytes of a download, and the seconds it took.
async fn download(app: &Router, from: u8) -> (usize, f64) {
    let start = Instant::now();
    let body = send(app, from, "GET", Vec::new()).await.into_body().collect().await.expect("a whole body");
    (body.to_bytes().len(), start.elapsed().as_secs_f64())
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let clock = ManualClock::paused();
    let app = app(MemoryStore::builder().clock(clock.clone()).build());

    // 12 MB, of which 4 are free: eight seconds. Another client has its own pace.
    let (one, two, other) = tokio::join!(download(&app, 1), download(&app, 1), download(&app, 2));
    assert!([one, two, other].iter().all(|(bytes, _)| *bytes == 6_000_000));
    assert!((6.0..=8.5).contains(&one.1.max(two.1)), "{one:?}, {two:?}");
    assert!((0.0..=2.5).contains(&other.1), "{other:?}");

    // Two uploads of 20 MB, the half of one, and no more.
    for expected in [200, 200, 400, 429] {
        assert_eq!(send(&app, 1, "POST", vec![0; 20_000_000]).await.status(), expected);
    }
    assert_eq!(send(&app, 1, "POST", vec![0; 100]).await.status(), 429);
    assert_eq!(send(&app, 2, "POST", vec![0; 20_000_001]).await.status(), 413);
}
