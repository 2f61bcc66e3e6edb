//! The layers that are compared, and what each response has to have.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate::{MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer, key};
use tollgate_admin::Top;
use tollgate_shed::{FleetShedLayer, WorkerShedLayer};
use tower::Layer;

use super::service::{Boxed, Inner, boxed};
use crate::versions::titled;
use crate::work::{Answers, BOTH, IETF, LEGACY, NO_HEADERS};

/// Refuses nothing, and refills so slowly that every key stays in use.
const BURST: u32 = 30_000_000;
const PER_HOUR: u32 = 1_000;

pub(crate) const ONE: &str = "one policy, both header sets";
pub(crate) const BARE: &str = "one policy, no headers, no handle";
pub(crate) const WITH_LEGACY: &str = "one policy, legacy headers, no handle";
pub(crate) const REFUSED: &str = "one policy, refused";
pub(crate) const THREE: &str = "three policies, both header sets";
const GOVERNOR: &str = "tower_governor";
const GOVERNOR_HEADERS: &str = "tower_governor, its headers";

const OF_REFUSED: &[&str] = &[
    "cache-control",
    "content-type",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// What a side is compared with.
#[derive(Clone, Copy)]
pub(super) struct Beside {
    pub(super) name: &'static str,
    /// Whether both answer with the same.
    pub(super) is_equal: bool,
}

/// A layer around the service.
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) service: Boxed,
    pub(super) answers: Answers,
    pub(super) beside: Option<Beside>,
    /// Where no header tells what is counted: the same with one unit for each client.
    pub(super) twin: Option<Boxed>,
    /// Whether it counts for each client.
    pub(super) is_limit: bool,
}

impl Side {
    fn new(name: &'static str, service: Boxed, answers: Answers) -> Self {
        Self { name, service, answers, beside: None, twin: None, is_limit: true }
    }

    fn twin(self, twin: Boxed) -> Self {
        Self { twin: Some(twin), ..self }
    }

    fn equals(self, name: &'static str) -> Self {
        Self { beside: Some(Beside { name, is_equal: true }), ..self }
    }

    fn beside(self, name: &'static str) -> Self {
        Self { beside: Some(Beside { name, is_equal: false }), ..self }
    }

    pub(super) fn title(&self) -> String {
        titled(self.name)
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
    let plain = |quota| one(quota).headers(RateLimitHeaders::none());
    let legacy = one(ample).headers(RateLimitHeaders::legacy()).without_handle();
    let wrapped = |layer: RateLimitLayer| boxed(layer.layer(Inner));
    let side = |name, layer, headers| Side::new(name, wrapped(layer), Answers::admitted(headers));
    let scant = Quota::per_hour(1);
    let counted = one(ample).on_decision(Top::new().observer());
    [
        side("one policy, no headers", plain(ample), NO_HEADERS).twin(wrapped(plain(scant))),
        side(BARE, plain(ample).without_handle(), NO_HEADERS)
            .twin(wrapped(plain(scant).without_handle()))
            .equals(GOVERNOR),
        side(WITH_LEGACY, legacy, LEGACY).beside(GOVERNOR_HEADERS),
        side(ONE, one(ample), BOTH).beside(GOVERNOR_HEADERS),
        side(super::FIXED, one(window).headers(RateLimitHeaders::ietf()), IETF),
        Side::new(REFUSED, wrapped(one(scant)), Answers::refused(OF_REFUSED)).beside(ONE),
        side("one policy, both header sets, counted by Top", counted, BOTH),
        side(THREE, three, BOTH).equals(ONE),
    ]
}

fn shedders() -> [Side; 3] {
    let many = NonZeroU32::new(1_000).expect("it is not zero");
    let worker = WorkerShedLayer::new("worker", many).layer(Inner);
    let measured = WorkerShedLayer::measured("worker", || 0.5).layer(Inner);
    let fleet = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(1_000), 0.2).layer(Inner);
    let side = |name, service| Side { is_limit: false, ..Side::new(name, service, Answers::admitted(NO_HEADERS)) };
    [
        side("worker shedder", boxed(worker)),
        side("worker shedder, measured", boxed(measured)),
        side("fleet shedder, memory", boxed(fleet)),
    ]
}

#[cfg(feature = "peers")]
mod peers {
    //! Other crates, each by the address of the peer, as ours.

    use std::time::Duration;

    use tower::Layer;
    use tower_governor::GovernorLayer;
    use tower_governor::governor::GovernorConfigBuilder;

    use super::{Answers, BURST, GOVERNOR, GOVERNOR_HEADERS, Inner, NO_HEADERS, PER_HOUR, Side, boxed};
    use crate::work::TWO;

    const REFUSED: &[&str] = &["retry-after", "x-ratelimit-after", "x-ratelimit-limit", "x-ratelimit-remaining"];

    /// The one that refuses spends nearly all of its time on a new clock for each refusal: that reads CPUID, at which a
    /// virtual machine waits for its host.
    pub(super) fn all() -> [Side; 3] {
        let config = |burst| {
            let mut config = GovernorConfigBuilder::default();
            config.period(Duration::from_secs(3_600) / PER_HOUR).burst_size(burst);
            config
        };
        let plain = |burst| boxed(GovernorLayer::new(config(burst).finish().expect("neither is 0")).layer(Inner));
        let headers = GovernorLayer::new(config(BURST).use_headers().finish().expect("neither is 0"));
        let mut hourly = config(1);
        let refusing = hourly.period(Duration::from_secs(3_600)).use_headers().finish().expect("neither is 0");
        let refusing = boxed(GovernorLayer::new(refusing).layer(Inner));
        [
            Side::new(GOVERNOR, plain(BURST), Answers::admitted(NO_HEADERS)).twin(plain(1)),
            Side::new(GOVERNOR_HEADERS, boxed(headers.layer(Inner)), Answers::admitted(TWO)),
            Side::new("tower_governor, its headers, refused", refusing, Answers::refused(REFUSED)),
        ]
    }
}
