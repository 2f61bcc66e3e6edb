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

/// The status and the text of a response.
async fn ask(app: &Router, query: &str) -> (u16, String) {
    let request = Request::get(format!("/report?{query}")).body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.expect("it does not fail");
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, String::from_utf8(body.into()).expect("text"))
}

#[tokio::test]
async fn requests_at_once_are_one_report_for_which_each_is_charged() {
    let reports = Reports::new();
    let app = app(reports.clone(), Quota::per_hour(101));
    let queries = ["months=1&months=2", "months=2&months=1", "months=1&months=2&months=2&color=red"];
    let all = join_all((0..100).map(|number| ask(&app, queries[number % 3]))).await;
    assert!(all.iter().all(|response| *response == (200, "report 1 of 1,2\n".to_owned())), "{all:?}");
    assert_eq!(ask(&app, "months=3").await, (200, "report 2 of 3\n".to_owned()), "another one is made for itself");
    assert_eq!((ask(&app, "months=4").await.0, reports.made()), (429, 2));
}
