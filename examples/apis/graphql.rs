//! GraphQL whose queries cost the values that they return, 100 a minute for each address. Before a query runs it takes its
//! complexity, and what it does not return is refunded. With some headers left out:
//!
//! ```text
//! $ cargo run -p tollgate-apis --example graphql &
//! $ curl -si localhost:3000/graphql -H 'content-type: application/json' \
//!     -d '{"query": "{ books(first: 40) { title year } }"}'
//! HTTP/1.1 200 OK
//! ratelimit: "requests";r=59;t=59, "values";r=94;t=57
//!
//! {"data":{"books":[{"title":"Middlemarch","year":1871},{"title":"Persuasion","year":1817},{"title":"Villette","year":1853}]}}
//! $ curl -si localhost:3000/graphql -H 'content-type: application/json' \
//!     -d '{"query": "{ books(first: 48) { title year } }"}'
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/graphql-response+json
//! retry-after: 2
//! ratelimit: "values";r=94;t=2
//!
//! {"data":null,"errors":[{"message":"rate limit exceeded","extensions":{"code":"RATE_LIMITED","retryAfter":2}}]}
//! $ curl -s localhost:3000/graphql -H 'content-type: application/json' \
//!     -d '{"query": "{ books(first: 99) { title year } }"}'
//! {"data":null,"errors":[{"message":"rate limit exceeded","extensions":{"code":"RATE_LIMITED","retryAfter":null}}]}
//! ```
//!
//! The second query would be allowed after 2 seconds, and the third one never.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_graphql::async_trait::async_trait;
use async_graphql::extensions::{Extension, ExtensionContext, ExtensionFactory, NextExecute, NextValidation};
use async_graphql::{
    EmptyMutation, EmptySubscription, ErrorExtensionValues, Object, Request, Response as Reply, Schema, ServerError,
    SimpleObject, ValidationResult, Value,
};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::net::TcpListener;
use tollgate::store::Store;
use tollgate::{MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, key};

type Books = Schema<Query, EmptyMutation, EmptySubscription>;

/// The most books that one list has.
const PAGE: usize = 100;

struct Query;

#[derive(SimpleObject)]
struct Book {
    title: &'static str,
    year: u16,
}

#[Object]
impl Query {
    // No more than a page: a client may send any numbers, and their sum must not overflow.
    #[graphql(complexity = "first.min(PAGE) * child_complexity")]
    async fn books(&self, first: usize) -> Vec<Book> {
        let books = [("Middlemarch", 1871), ("Persuasion", 1817), ("Villette", 1853)];
        books.into_iter().take(first.min(PAGE)).map(|(title, year)| Book { title, year }).collect()
    }
}

/// What a query has taken, which is charged when it is valid and settled when it has run.
#[derive(Default)]
struct Cost(AtomicU64);

impl ExtensionFactory for Cost {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Cost::default())
    }
}

#[async_trait]
impl Extension for Cost {
    async fn validation(
        &self,
        context: &ExtensionContext<'_>,
        next: NextValidation<'_>,
    ) -> Result<ValidationResult, Vec<ServerError>> {
        let valid = next.run(context).await?;
        let (limits, cost) = (context.data_unchecked::<RateLimitHandle>(), valid.complexity as u64);
        // The client of the layer's own policy.
        let Some(client) = limits.decision().outcomes().first().map(|outcome| outcome.key().clone()) else {
            return Ok(valid);
        };
        let policy = Policy::new("values", Quota::per_minute(100)).cost(cost).metered();
        match limits.check(&policy, &client).await {
            Ok(decision) if decision.is_allowed() => self.0.store(cost, Ordering::Relaxed),
            Ok(decision) => {
                let headers = limits.denial(&decision).into_parts().0.headers;
                let seconds = headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
                return Err(vec![ServerError { source: Some(Arc::new(headers)), ..too_many(seconds) }]);
            }
            Err(error) => return Err(vec![ServerError::new(error.to_string(), None)]),
        }
        Ok(valid)
    }

    async fn execute(&self, context: &ExtensionContext<'_>, name: Option<&str>, next: NextExecute<'_>) -> Reply {
        let reply = next.run(context, name).await;
        let unused = self.0.load(Ordering::Relaxed).saturating_sub(values(&reply.data));
        context.data_unchecked::<RateLimitHandle>().refund(unused);
        reply
    }
}

/// How many values there are in what a query returns.
fn values(data: &Value) -> u64 {
    match data {
        Value::List(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 1,
    }
}

/// A denial in the form of GraphQL's errors.
fn too_many(retry_after: Option<u64>) -> ServerError {
    let mut extensions = ErrorExtensionValues::default();
    extensions.set("code", "RATE_LIMITED");
    extensions.set("retryAfter", retry_after.map_or(Value::Null, Value::from));
    ServerError { extensions: Some(extensions), ..ServerError::new("rate limit exceeded", None) }
}

fn response(status: StatusCode, headers: HeaderMap, reply: Reply) -> Response {
    let graphql = HeaderValue::from_static("application/graphql-response+json");
    let mut response = (status, headers, Json(reply)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, graphql);
    response
}

async fn query(State(books): State<Books>, limits: RateLimitHandle, Json(request): Json<Request>) -> Response {
    let reply = books.execute(request.data(limits)).await;
    match reply.errors.first().and_then(|error| error.source::<HeaderMap>()).cloned() {
        Some(headers) => response(StatusCode::TOO_MANY_REQUESTS, headers, reply),
        None => response(StatusCode::OK, HeaderMap::new(), reply),
    }
}

pub(crate) fn app(store: impl Store) -> Router {
    let requests = Policy::new("requests", Quota::per_minute(60)).key(key::client_ip());
    let limits = RateLimitLayer::new(store, requests).on_denied(|_, denial| {
        let reply = Reply::from_errors(vec![too_many(denial.retry_after_secs())]);
        response(denial.status(), HeaderMap::new(), reply)
    });
    let books = Schema::build(Query, EmptyMutation, EmptySubscription).extension(Cost::default()).finish();
    Router::new().route("/graphql", post(query)).layer(limits).with_state(books)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app(MemoryStore::new()).into_make_service_with_connect_info::<SocketAddr>()).await
}
