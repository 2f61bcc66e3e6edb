//! The file as it is written: its tables, and where each value stands.

use serde::Deserialize;
use toml::Spanned;

use super::lists::{Client, OneOrMany, TextList, TierTable};
use super::values::{CostText, Fraction, Period, Whole};

/// A list of texts, with its place.
pub(super) type Texts = Spanned<TextList>;

/// A list of clients, with its place.
pub(super) type Clients = Spanned<TextList<Client>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default)]
    pub(super) policy: Vec<Spanned<PolicyTable>>,
    #[serde(default)]
    pub(super) server: ServerTable,
}

/// One `[[policy]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyTable {
    pub(super) name: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<OneOrMany<String>>>,
    pub(super) algorithm: Option<Spanned<String>>,
    pub(super) limit: Option<Spanned<Whole>>,
    pub(super) window: Option<Spanned<Period>>,
    pub(super) burst: Option<Spanned<Whole>>,
    pub(super) queue: Option<Spanned<Whole>>,
    pub(super) cost: Option<Spanned<CostText>>,
    pub(super) count: Option<Spanned<OneOrMany<Whole>>>,
    pub(super) missing_key: Option<Spanned<String>>,
    pub(super) methods: Option<Texts>,
    pub(super) routes: Option<Texts>,
    pub(super) allow: Option<Clients>,
    pub(super) deny: Option<Clients>,
    pub(super) serve_unknown_addresses: Option<Spanned<bool>>,
    pub(super) reserve: Option<Spanned<Fraction>>,
    pub(super) critical: Option<Spanned<CriticalTable>>,
    pub(super) tiers: Option<Spanned<TierTable>>,
    pub(super) advertise: Option<bool>,
    pub(super) shadow: Option<bool>,
    pub(super) metered: Option<bool>,
    pub(super) preflights: Option<bool>,
    pub(super) preflights_without_key: Option<Spanned<bool>>,
    pub(super) refund_dropped: Option<bool>,
}

/// What a request has to carry to be critical.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CriticalTable {
    pub(super) header: Spanned<String>,
    pub(super) value: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    pub(super) trusted_proxies: Option<Texts>,
    pub(super) trusted_hops: Option<Spanned<Whole>>,
    pub(super) forwarded: Option<Spanned<String>>,
    pub(super) on_failure: Option<Spanned<String>>,
    pub(super) allow_for: Option<Spanned<Period>>,
    pub(super) instances: Option<Spanned<Whole>>,
}
