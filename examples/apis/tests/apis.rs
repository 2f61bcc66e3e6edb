//! What the examples print is what their first lines say, and the document of OpenAPI describes a real denial.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use http::{HeaderName, Request, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tollgate::MemoryStore;
use tollgate::test_util::ManualClock;
use tower::ServiceExt;

#[path = "../graphql.rs"]
#[allow(dead_code, reason = "its server is here")]
mod graphql;
#[path = "../grpc.rs"]
#[allow(dead_code, reason = "its server is here")]
mod grpc;
#[path = "../../../tests/support/header.rs"]
mod header;
#[path = "../openapi.rs"]
#[allow(dead_code, reason = "its server is here")]
mod openapi;

/// A store whose units do not come back.
fn store() -> MemoryStore {
    MemoryStore::builder().clock(ManualClock::paused()).build()
}

/// Serves until the test ends.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

#[tokio::test]
async fn graphql_prints_what_its_header_says() {
    header::holds(include_str!("../graphql.rs"), serve(graphql::app(store())).await).await;
}

#[tokio::test]
async fn openapi_prints_what_its_header_says() {
    header::holds(include_str!("../openapi.rs"), serve(openapi::app(store())).await).await;
}

#[tokio::test]
async fn grpc_prints_what_its_header_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(grpc::serve(listener));
    let mut printed = Vec::new();
    grpc::client(address, |line| printed.push(line)).await.expect("it is served");
    let (_, expected) = include_str!("../grpc.rs").split_once("-- client\n").expect("the client");
    let expected = expected.lines().map_while(|line| line.strip_prefix("//! ")).take_while(|line| *line != "```");
    // The wait depends on how long the calls took.
    let steady = |line: &str| line.replace(|any: char| any.is_ascii_digit(), "");
    assert_eq!(printed.iter().map(|line| steady(line)).collect::<Vec<_>>(), expected.map(steady).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_graphql_query_for_more_books_than_can_be_counted_is_denied_for_good() {
    let query = ["a", "b", "c"].map(|field| format!("{field}: books(first: {}) {{ title }}", i64::MAX)).join(" ");
    let request = Request::post("/graphql").header("content-type", "application/json");
    let body = serde_json::json!({ "query": format!("{{ {query} }}") }).to_string();
    let peer = ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 4_711)));
    let request = request.extension(peer).body(Body::from(body)).expect("a request");
    let response = graphql::app(store()).oneshot(request).await.expect("it does not fail");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn the_document_describes_a_real_denial() {
    let app = openapi::app(store());
    let get = async |path: &str| {
        let peer = ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 4_711)));
        let request = Request::get(path).extension(peer).body(Body::empty()).expect("a request");
        let (head, body) = app.clone().oneshot(request).await.expect("it does not fail").into_parts();
        let body = to_bytes(body, 100_000).await.expect("it is short");
        (head, serde_json::from_slice::<Value>(&body).expect("JSON"))
    };
    let (_, document) = get("/openapi.json").await;
    for _ in 0..10 {
        assert_eq!(get("/books").await.0.status, StatusCode::OK);
    }
    let (denied, problem) = get("/books").await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    let reference = document["paths"]["/books"]["get"]["responses"]["429"]["$ref"].as_str().expect("a reference");
    let response = document.pointer(reference.trim_start_matches('#')).expect("the response");
    let names = |object: &Value| object.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    for name in names(&response["headers"]) {
        assert!(denied.headers.contains_key(&name), "{name} is not sent");
    }
    let described = names(&response["headers"]).into_iter().map(|name| name.parse::<HeaderName>().expect("a name"));
    let described: Vec<_> = described.collect();
    for name in
        denied.headers.keys().filter(|name| name.as_str() == "retry-after" || name.as_str().contains("ratelimit"))
    {
        assert!(described.contains(name), "{name} is not described");
    }
    let content = denied.headers["content-type"].to_str().expect("text");
    let schema = response["content"][content]["schema"]["$ref"].as_str().expect("the schema of what is sent");
    let schema = document.pointer(schema.trim_start_matches('#')).expect("the schema");
    assert_eq!(names(&schema["properties"]), names(&problem));
    let mut required: Vec<_> = schema["required"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    required.sort_unstable();
    assert_eq!(required, names(&problem));
}
