//! The layers that are compared, and what each response has to have.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use tollgate::{MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer, key};
use tollgate_admin::Top;
use tollgate_shed::{FleetShedLayer, WorkerShedLayer};
use tower::Layer;

use super::service::{Boxed, Inner, boxed};
use crate::table::Target;

/// Refuses nothing, and refills so slowly that every key stays in use.
const BURST: u32 = 30_000_000;
const PER_HOUR: u32 = 1_000;

const ONE: &str = "one policy, both header sets";
const GOVERNOR: &str = "tower_governor 0.8";
const GOVERNOR_HEADERS: &str = "tower_governor 0.8, its headers";

/// What a response has to be, for its side to have done its work.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    /// Admitted, without a header.
    Nothing,
    /// Admitted, with this header.
    Admitted(&'static str),
    /// Refused, with this header.
    Refused(&'static str),
}

impl Expected {
    pub(crate) fn is_met(self, response: &Response<()>) -> bool {
        let (status, headers): (_, &HeaderMap) = (response.status(), response.headers());
        match self {
            Self::Nothing => status == StatusCode::OK && headers.is_empty(),
            Self::Admitted(header) => status == StatusCode::OK && headers.contains_key(header),
            Self::Refused(header) => status == StatusCode::TOO_MANY_REQUESTS && headers.contains_key(header),
        }
    }
}

/// A layer around the service.
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) service: Boxed,
    pub(super) expected: Expected,
    /// The side whose time is 1, and what ours is to be at most.
    pub(super) beside: Option<(&'static str, Target)>,
}

impl Side {
    fn new(name: &'static str, service: Boxed, expected: Expected) -> Self {
        Self { name, service, expected, beside: None }
    }

    fn beside(self, name: &'static str, must: f64, stretch: f64) -> Self {
        Self { beside: Some((name, Target::AtMost { must, stretch })), ..self }
    }
}

pub(super) fn all() -> Vec<Side> {
    let ours = ours().into_iter().chain(shedders());
    #[cfg(feature = "peers")]
    return peers::all().into_iter().chain(ours).collect();
    #[cfg(not(feature = "peers"))]
    ours.collect()
}

fn ours() -> [Side; 8] {
    let ample = Quota::per_hour(PER_HOUR.into()).burst(BURST.into());
    let one = |quota| RateLimitLayer::composite(MemoryStore::new()).ip(quota);
    let window = Quota::fixed_window(BURST.into(), Duration::from_secs(3_600));
    let longer = Quota::token_bucket(PER_HOUR.into(), Duration::from_secs(7_200)).burst(BURST.into());
    let three = one(ample).policy(Policy::new("longer", longer).key(key::client_ip()));
    let three = three.global(Quota::per_second(BURST.into()));
    let without_handle = |headers| one(ample).headers(headers).without_handle();
    let side = |name, layer: RateLimitLayer, expected| Side::new(name, boxed(layer.layer(Inner)), expected);
    let counted = one(ample).on_decision(Top::new().observer());
    let (ietf, legacy) = ("ratelimit", "x-ratelimit-remaining");
    [
        side("one policy, no headers", one(ample).headers(RateLimitHeaders::none()), Expected::Nothing),
        side("one policy, no headers, no handle", without_handle(RateLimitHeaders::none()), Expected::Nothing)
            .beside(GOVERNOR, 1.3, 1.0),
        side(
            "one policy, legacy headers, no handle",
            without_handle(RateLimitHeaders::legacy()),
            Expected::Admitted(legacy),
        )
        .beside(GOVERNOR_HEADERS, 1.1, 1.0),
        side(ONE, one(ample), Expected::Admitted(ietf)).beside(GOVERNOR_HEADERS, 1.3, 1.1),
        side(super::FIXED, one(window).headers(RateLimitHeaders::ietf()), Expected::Admitted(ietf)),
        side("one policy, refused", one(Quota::per_hour(1)), Expected::Refused(ietf)).beside(ONE, 1.2, 1.0),
        side("one policy, both header sets, counted by Top", counted, Expected::Admitted(ietf)),
        side("three policies, both header sets", three, Expected::Admitted(ietf)).beside(ONE, 1.8, 1.6),
    ]
}

fn shedders() -> [Side; 3] {
    let many = NonZeroU32::new(1_000).expect("it is not zero");
    let worker = WorkerShedLayer::new("worker", many).layer(Inner);
    let measured = WorkerShedLayer::measured("worker", || 0.5).layer(Inner);
    let fleet = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(1_000), 0.2).layer(Inner);
    [
        Side::new("worker shedder", boxed(worker), Expected::Nothing),
        Side::new("worker shedder, measured", boxed(measured), Expected::Nothing),
        Side::new("fleet shedder, memory", boxed(fleet), Expected::Nothing),
    ]
}

#[cfg(feature = "peers")]
mod peers {
    //! Other crates, each by the address of the peer, as ours.

    use std::time::Duration;

    use tower::Layer;
    use tower_governor::GovernorLayer;
    use tower_governor::governor::GovernorConfigBuilder;

    use super::{BURST, Expected, GOVERNOR, GOVERNOR_HEADERS, Inner, PER_HOUR, Side, boxed};

    pub(super) fn all() -> [Side; 3] {
        let config = |burst| {
            let mut config = GovernorConfigBuilder::default();
            config.period(Duration::from_secs(3_600) / PER_HOUR).burst_size(burst);
            config
        };
        let plain = GovernorLayer::new(config(BURST).finish().expect("neither is 0"));
        let headers = GovernorLayer::new(config(BURST).use_headers().finish().expect("neither is 0"));
        let mut hourly = config(1);
        let refusing = hourly.period(Duration::from_secs(3_600)).use_headers().finish().expect("neither is 0");
        let (remaining, refused) = ("x-ratelimit-remaining", "tower_governor 0.8, its headers, refused");
        [
            Side::new(GOVERNOR, boxed(plain.layer(Inner)), Expected::Nothing),
            Side::new(GOVERNOR_HEADERS, boxed(headers.layer(Inner)), Expected::Admitted(remaining)),
            Side::new(refused, boxed(GovernorLayer::new(refusing).layer(Inner)), Expected::Refused(remaining)),
        ]
    }
}
