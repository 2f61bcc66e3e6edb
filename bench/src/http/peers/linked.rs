//! The crates that are linked into this program.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use tollgate::deadpool_redis::redis::Client;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};
use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};
use tower_redis_cell::redis_cell::Policy;
use tower_redis_cell::{Error, ProvideRule, ProvideRuleResult, RateLimitConfig, Rule};

use super::cell;
use crate::http::app::{HEADER, LIMIT, plain};
use crate::http::sides::{BURST, Counters, Setup, Side};
use crate::work::TWO;

const CELL_POLICY: Policy = Policy::from_tokens_per_hour(LIMIT as usize).max_burst(BURST as usize);

pub(super) fn all() -> Vec<Side> {
    vec![
        Side::new("tower_governor", "tower_governor, memory", |Setup { burst, .. }| {
            Box::pin(async move { governor(burst) })
        })
        .counters(Counters::Memory),
        Side::new("tower_governor-headers", "tower_governor, memory, its headers", |Setup { burst, .. }| {
            Box::pin(async move { governor_with_headers(burst) })
        })
        .counters(Counters::Memory)
        .headers(TWO),
        Side::new("tower-rate-limit-redis", "tower-rate-limit-redis", |setup| Box::pin(rate_limit_redis(setup.url)))
            .counters(Counters::Redis(None)),
        Side::new("tower-redis-cell", "tower-redis-cell", |setup| Box::pin(redis_cell(setup.url)))
            .counters(Counters::Redis(Some(cell::module))),
    ]
}

/// The value of one header.
#[derive(Clone, Copy)]
struct ApiKey;

impl ApiKey {
    fn of<T>(request: &Request<T>) -> Option<&str> {
        request.headers().get(HEADER)?.to_str().ok()
    }
}

impl KeyExtractor for ApiKey {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        Self::of(request).map(str::to_owned).ok_or(GovernorError::UnableToExtractKey)
    }
}

impl KeyResolver for ApiKey {
    type Key = String;
    type ErrorBody = Body;

    fn key<T>(&self, request: &Request<T>) -> Result<String, Response<Body>> {
        Self::of(request).map(str::to_owned).ok_or_else(|| refusal(StatusCode::UNAUTHORIZED))
    }
}

impl<T> ProvideRule<Request<T>> for ApiKey {
    fn provide<'a>(&self, request: &'a Request<T>) -> ProvideRuleResult<'a> {
        let key = Self::of(request).ok_or("no key")?;
        Ok(Some(Rule::new(key, CELL_POLICY)))
    }
}

fn governor(burst: u32) -> Router {
    let config = GovernorConfigBuilder::default()
        .key_extractor(ApiKey)
        .period(Duration::from_secs(3_600) / LIMIT)
        .burst_size(burst)
        .finish()
        .expect("neither is 0");
    plain().layer(GovernorLayer::new(config))
}

fn governor_with_headers(burst: u32) -> Router {
    let config = GovernorConfigBuilder::default()
        .key_extractor(ApiKey)
        .period(Duration::from_secs(3_600) / LIMIT)
        .burst_size(burst)
        .use_headers()
        .finish()
        .expect("neither is 0");
    plain().layer(GovernorLayer::new(config))
}

/// Its units are 65,535 at most.
async fn rate_limit_redis(url: String) -> Router {
    let client = redis_0_32::Client::open(url).expect("a URL");
    let layer = RateLimitLayer::builder()
        .conn(client.get_multiplexed_async_connection().await.expect("connected"))
        .key_resolver(ApiKey)
        .capacity(u16::MAX)
        .emission_interval(Duration::from_secs(3_600) / LIMIT)
        .timeout(Duration::from_secs(5))
        .build();
    plain().layer(layer)
}

async fn redis_cell(url: String) -> Router {
    let client = Client::open(url).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await.expect("connected");
    let config = RateLimitConfig::new(ApiKey, |error: Error, _: &Request<Body>| {
        refusal(match error {
            Error::RateLimit(_) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        })
    });
    plain().layer(tower_redis_cell::RateLimitLayer::new(config, connection))
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
