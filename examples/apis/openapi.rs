//! An OpenAPI document that has the 429: its headers, its problem document, and a reference in each operation. A test compares
//! it with a real denial. With some headers left out:
//!
//! ```text
//! $ cargo run -p tollgate-apis --example openapi &
//! $ for n in $(seq 10); do curl -so /dev/null localhost:3000/books; done; curl -si localhost:3000/books
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! retry-after: 6
//! ratelimit-policy: "api";q=10;w=60
//! ratelimit: "api";r=0;t=6
//! $ curl -s localhost:3000/openapi.json | grep -o '"429":{[^}]*}'
//! "429":{"$ref":"#/components/responses/TooManyRequests"}
//! $ curl -s localhost:3000/openapi.json | grep -o '"Retry-After":{[^}]*}[^}]*}'
//! "Retry-After":{"schema":{"type":"integer","format":"int64","minimum":0},"description":"Seconds. Absent if no wait can help."}
//! $ curl -s localhost:3000/openapi.json | grep -o '"application/problem+json":{[^}]*}'
//! "application/problem+json":{"schema":{"$ref":"#/components/schemas/Problem"}
//! ```

use std::net::SocketAddr;

use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tollgate::store::Store;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use utoipa::openapi::{OpenApi as Document, Ref, RefOr};
use utoipa::{Modify, OpenApi, ToResponse, ToSchema};

/// The problem document of a denial.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its fields are only documented")]
struct Problem {
    /// `quota-exceeded`, or `abnormal-usage-detected` if the client is banned.
    #[schema(format = "uri")]
    r#type: String,
    title: String,
    #[schema(example = 429)]
    status: u16,
    detail: String,
    /// The policies that deny the request.
    #[schema(rename = "violated-policies")]
    violated_policies: Vec<String>,
}

/// A limit is reached.
#[derive(ToResponse)]
#[response(
    content_type = "application/problem+json",
    headers(
        ("Retry-After" = u64, description = "Seconds. Absent if no wait can help."),
        ("RateLimit" = String, description = "For each policy that denies: `r` units are left for `t` seconds."),
        ("RateLimit-Policy" = String, description = "For each policy: its quota `q` and its window `w` in seconds."),
        ("X-RateLimit-Limit" = u64, description = "The limit of the policy with the longest wait."),
        ("X-RateLimit-Remaining" = u64, description = "Units that this policy has left."),
        ("X-RateLimit-Reset" = u64, description = "Unix time at which all its units are available again."),
    )
)]
#[allow(dead_code, reason = "it is only documented")]
struct TooManyRequests(Problem);

/// Adds the 429 to all operations, as the layer is around all routes.
struct Limited;

impl Modify for Limited {
    fn modify(&self, document: &mut Document) {
        for item in document.paths.paths.values_mut() {
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
            for operation in operations.into_iter().flatten() {
                let response = RefOr::Ref(Ref::from_response_name("TooManyRequests"));
                operation.responses.responses.insert("429".to_owned(), response);
            }
        }
    }
}

#[derive(OpenApi)]
#[openapi(paths(books), components(responses(TooManyRequests), schemas(Problem)), modifiers(&Limited))]
struct Api;

/// Lists all books.
#[utoipa::path(get, path = "/books", responses((status = 200, body = Vec<String>)))]
async fn books() -> Json<[&'static str; 3]> {
    Json(["Middlemarch", "Persuasion", "Villette"])
}

pub(crate) fn app(store: impl Store) -> Router {
    let policy = Policy::new("api", Quota::per_minute(10)).key(key::client_ip());
    Router::new()
        .route("/books", get(books))
        .layer(RateLimitLayer::new(store, policy))
        .route("/openapi.json", get(async || Json(Api::openapi())))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app(MemoryStore::new()).into_make_service_with_connect_info::<SocketAddr>()).await
}
