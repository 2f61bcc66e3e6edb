include!("rig.rs");

use axum::http::Request;
use tollgate::test_util::ManualClock;

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = app(memory(&ManualClock::new()));
    let open = async |from| send(&app, from, Request::get("/events"), "").await;

    let mut streams = Vec::new();
    for _ in 1..=3 {
        let stream = open("192.0.2.1").await;
        assert_eq!(stream.status(), 200);
        let mut body = stream.into_body().into_data_stream();
        let first = body.next().await.expect("an event").expect("an event");
        assert_eq!(first, "data: first\n\n");
        streams.push(body);
    }
    let denied = open("192.0.2.1").await;
    assert_eq!((denied.status().as_u16(), denied.headers()["retry-after"].as_bytes()), (429, "1".as_bytes()));
    assert_eq!(open("192.0.2.2").await.status(), 200);

    // The end of one makes room for another. What was denied took nothing of the 30 of the address.
    for number in 4..=31 {
        streams.pop();
        let stream = open("192.0.2.1").await;
        assert_eq!(stream.status(), if number <= 30 { 200 } else { 429 });
        streams.push(stream.into_body().into_data_stream());
    }
}
