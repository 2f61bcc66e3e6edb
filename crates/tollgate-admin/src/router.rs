use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Query, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate::{Decision, Error};

use crate::admin::Admin;
use crate::entry::Entry;
use crate::error::Failed;
use crate::fleet::PolicyState;
use crate::top::TopKey;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    layer: Option<String>,
    policy: String,
    key: String,
    #[serde(default)]
    units: Option<u64>,
}

impl Admin {
    /// Returns a router in which every request has to pass `guard`. All other requests get 403.
    ///
    /// Nest the router below a path, on a port or route that clients do not reach, because its responses contain keys
    /// of clients.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::Router;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    /// use tollgate_admin::Admin;
    ///
    /// let live = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).live();
    /// let admin = Admin::local().layer("api", live.clone());
    /// let token = "Bearer …";
    /// let is_operator = move |parts: &http::request::Parts| {
    ///     parts.headers.get("authorization").is_some_and(|sent| sent.as_bytes() == token.as_bytes())
    /// };
    /// let app: Router = Router::new().nest("/admin", admin.router(is_operator));
    /// # let _ = (app, live);
    /// ```
    pub fn router(&self, guard: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Router {
        let guard = Arc::new(guard);
        let pass = move |request: Request, next: Next| {
            let guard = Arc::clone(&guard);
            async move {
                let (parts, body) = request.into_parts();
                if !guard(&parts) {
                    return error(StatusCode::FORBIDDEN, "not allowed");
                }
                next.run(Request::from_parts(parts, body)).await
            }
        };
        Router::new()
            .route("/policies", get(policies))
            .route("/top", get(top))
            .route("/overrides", get(overrides).put(set).delete(remove))
            .route("/counters", get(show))
            .route("/counters/reset", post(reset))
            .route("/counters/refund", post(refund))
            .route("/counters/lift-ban", post(lift_ban))
            .fallback(async || error(StatusCode::NOT_FOUND, "no such route"))
            .method_not_allowed_fallback(async || error(StatusCode::METHOD_NOT_ALLOWED, "no such method"))
            .with_state(self.clone())
            .layer(from_fn(pass))
    }
}

async fn policies(State(admin): State<Admin>) -> Json<Vec<PolicyState>> {
    Json(admin.policies())
}

async fn top(State(admin): State<Admin>) -> Json<Vec<TopKey>> {
    Json(admin.top_keys())
}

async fn overrides(State(admin): State<Admin>) -> Result<Json<Vec<Entry>>, Failed> {
    Ok(Json(admin.overrides().await?))
}

async fn set(State(admin): State<Admin>, Body(entry): Body<Entry>) -> Result<Json<Vec<Entry>>, Failed> {
    admin.set(entry).await?;
    Ok(Json(admin.overrides().await?))
}

async fn remove(State(admin): State<Admin>, Body(entry): Body<Entry>) -> Result<Json<Value>, Failed> {
    Ok(Json(json!({ "removed": admin.remove(entry).await? })))
}

async fn show(
    State(admin): State<Admin>,
    of: Result<Query<Counter>, QueryRejection>,
) -> Result<Json<Decision>, Failed> {
    let Query(of) = of.map_err(|error| Error::invalid(error.body_text()))?;
    Ok(Json(admin.show(of.layer.as_deref(), &of.policy, &of.key).await?))
}

async fn reset(State(admin): State<Admin>, Body(of): Body<Counter>) -> Result<Response, Failed> {
    changed(admin.reset(of.layer.as_deref(), &of.policy, &of.key).await)
}

async fn refund(State(admin): State<Admin>, Body(of): Body<Counter>) -> Result<Response, Failed> {
    changed(admin.refund(of.layer.as_deref(), &of.policy, &of.key, of.units.unwrap_or(1)).await)
}

async fn lift_ban(State(admin): State<Admin>, Body(of): Body<Counter>) -> Result<Response, Failed> {
    changed(admin.lift_ban(of.layer.as_deref(), &of.policy, &of.key).await)
}

fn changed(count: Result<usize, Error>) -> Result<Response, Failed> {
    Ok(Json(json!({ "changed": count? })).into_response())
}

fn error(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

/// A body in JSON.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failed> {
        let read = Json::<T>::from_request(request, state).await;
        read.map(|Json(value)| Self(value)).map_err(|error| Failed(Error::invalid(error.body_text())))
    }
}
