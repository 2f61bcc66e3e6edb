//! The example `stampede`: one report for many requests at once.

use axum::Router;
use axum::body::{Body, to_bytes};
use futures::future::join_all;
use http::Request;
use tollgate::Quota;
use tower::ServiceExt;

#[allow(dead_code, reason = "its main function is for those who run it")]
#[path = "../../examples/services/stampede.rs"]
mod example;

use example::{Reports, app};

const MANY: Quota = Quota::per_hour(1_000);

/// The status and the text of a response.
async fn ask(app: &Router, query: &str) -> (u16, String) {
    let request = Request::get(format!("/report?{query}")).body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.expect("it does not fail");
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, String::from_utf8(body.into()).expect("text"))
}

#[tokio::test]
async fn a_hundred_requests_at_once_are_one_report() {
    let reports = Reports::new();
    let app = app(reports.clone(), MANY);
    let queries = ["months=1&months=2", "months=2&months=1", "months=1&months=2&months=2&color=red"];
    let all = join_all((0..100).map(|number| ask(&app, queries[number % 3]))).await;
    assert!(all.iter().all(|response| *response == (200, "report 1 of 1,2\n".to_owned())), "{all:?}");
    assert_eq!(reports.made(), 1);
    assert_eq!(ask(&app, "months=3").await.1, "report 2 of 3\n", "another one is made for itself");
}

#[tokio::test]
async fn each_request_is_charged() {
    let reports = Reports::new();
    let app = app(reports.clone(), Quota::per_hour(5));
    let all = join_all((0..8).map(|_| ask(&app, "months=1"))).await;
    let refused = all.iter().filter(|(status, _)| *status == 429).count();
    assert_eq!((refused, reports.made()), (3, 1));
}
