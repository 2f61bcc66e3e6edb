#![doc = include_str!("../README.md")]
//!
//! # `[[policy]]`
//!
//! | field | value | default |
//! | --- | --- | --- |
//! | `name` | a letter, then up to 63 letters, digits, `.`, `_` or `-`; unique in the file | required |
//! | `limit` | units per window, of a concurrency requests at once, at least 1, within the algorithm's [bounds](tollgate::Quota#bounds) | required |
//! | `window` | a duration: `"100ms"`, `"60s"`, `"1h 30m"`, `"30d"`; `m` is minutes, `M` is an error, and so are months and years, which differ in length. For a fixed window also `"hour"`, `"day"`, `"week"` or `"month"`, by the [calendar](#calendars) (feature `calendar`) | required, but a concurrency has none |
//! | `zone` | the time zone of the calendar, such as `"Europe/Berlin"` | `"UTC"` |
//! | `anchor` | the day on which weeks begin, from 1 for Monday to 7, or months, from 1 to 31: see [`Calendar`](tollgate::policy::Calendar) | 1 |
//! | `key` | the key of requests: one of the [keys](#keys), or a list of up to 8 that are joined | `"global"` |
//! | `algorithm` | the name of an [`Algorithm`](tollgate::policy::Algorithm), such as `"fixed_window"`; or `"long_sliding_log"`, a sliding log of more than 10,000 units | `"token_bucket"` |
//! | `burst` | the capacity of a token bucket, at least 1 | the limit |
//! | `queue` | how many requests of a leaky bucket may wait for their turn | 0 |
//! | `nodelay` | how many requests of a leaky bucket start immediately after a pause, at most `queue` and one | 1 |
//! | `slot_ttl` | how long a slot of a concurrency outlives its process, a duration of at least 2 s: see [`Quota::slot_ttl`](tollgate::Quota::slot_ttl) | `"30s"` |
//! | `max_hold` | the longest that a request holds its slots of a concurrency, a duration of at least 1 s: see [`Quota::max_hold`](tollgate::Quota::max_hold) | `"1h"` |
//! | `cost` | units a request takes, which may be 0 with `metered`, `ban`, `deny` or `missing_key = "deny"`; or `"header:NAME"`, a header with that number, in digits, but not for `long_sliding_log` | 1 |
//! | `min_cost` | with a cost by a header: the least units of a request, with any header value; 0 only if no client can write it | 1 |
//! | `count` | which responses count: `"all"`, `"failures"` (4xx and 5xx, gRPC statuses other than 0, errors of the service), `"successes"` (all others; denials by an inner layer are neither: see [`Count`](tollgate::policy::Count#requests-that-are-denied-inside)), `"served"` (all but denials by an inner layer: see [`Count::served`](tollgate::policy::Count::served)) or a list of statuses from 100 to 999 | `"all"` |
//! | `missing_key` | `"skip"`, `"deny"` or `"share"`: see [`MissingKey`](tollgate::policy::MissingKey); not for the key `"global"` alone, unless the cost comes from a header | the key's own |
//! | `methods` | the policy applies to these methods only, of RFC 9110 and PATCH; GET covers HEAD, too | all |
//! | `routes` | the policy applies to these route templates only, as axum 0.8 has them: `"/users/{id}"`, `"/files/{*path}"` | all |
//! | `allow` | clients that are never limited: addresses, CIDRs, or values of the policy's key, of any part of it if it is a list; `{ value = "TEXT" }` is a value whatever it looks like, `{ value = "TEXT", key = "header:NAME" }` one of that part | none |
//! | `deny` | clients that are always denied, in the same form as `allow` | none |
//! | `serve_unknown_addresses` | whether clients of unknown address are served; only where `deny` has addresses | `false` |
//! | `reserve` | the fraction of the capacity that is reserved for critical requests, above 0 and below 1 | none |
//! | `critical` | `{ header = "NAME", value = "TEXT" }`: requests are critical if this is the only value of the header | required with `reserve` |
//! | `tiers` | `{ by = "header:NAME", TIER = LIMIT, ... }`: see [tiers](#tiers) | none |
//! | `ban` | `{ after = 10, within = "5m", duration = "15m" }`, and more: see [bans](#bans) | none |
//! | `advertise` | whether headers and bodies name the policy | `true` |
//! | `shadow` | whether it only decides, counts and logs: see [`Policy::shadow`](tollgate::Policy::shadow) | `false` |
//! | `metered` | whether handlers report the real cost: see [`Policy::metered`](tollgate::Policy::metered) | `false` |
//! | `preflights_without_key` | whether CORS preflights pass without the key that `missing_key = "deny"` requires: see [`Policy::preflights_without_key`](tollgate::Policy::preflights_without_key) | `false` |
//! | `refund_dropped` | whether a request is refunded if its client disconnects before there is a response | `false` |
//!
//! A request whose cost is above the capacity is never allowed. If the cost comes from a header, it is 1 without the
//! header, and at least `min_cost`. A number too large to represent is above any capacity. A cost is ambiguous if the
//! header is not all digits, or if several lines, or values separated by commas, differ. Such a request is treated like
//! a request whose key is [ambiguous](tollgate::key::Extracted::Ambiguous), at the largest of the numbers:
//! `missing_key = "deny"` denies it with 400, and so does a policy with a `ban`. Otherwise all such requests share one
//! counter. White space around the value of a header is ignored everywhere.
//!
//! **Who sets those headers?** Clients may send anything: a low cost, a tier, a priority. Where `cost`, `critical` or
//! `tiers` read a header, a proxy or layer before this layer must set or remove it.
//!
//! ## Keys
//!
//! `"client_ip"`, `"peer_ip"`, `"route"`, `"path_param:NAME"` (these need the feature `axum`), `"path"`, `"method"`,
//! `"host"`, `"global"`, `"header:NAME"`, `"cookie:NAME"`, `"query:NAME"`, `"bearer"` and `"basic_user"`. The functions
//! in [`key`](tollgate::key) document each key. A key whose feature is off is an error that names the feature.
//!
//! Before a header, cookie or query, `"first:"` or `"last:"` selects which of several values the application uses, like
//! in `"last:cookie:session"`: without it, several that differ are [ambiguous](tollgate::key::Extracted::Ambiguous).
//! Before these and `basic_user`, `"ignore_case:"` ignores the case of letters.
//!
//! ## Tiers
//!
//! The value of the header named by `by` chooses the limit. It is compared byte for byte with the names of the tiers. A
//! request without the header, with a name that is not in the table, or with several values that differ, has the
//! policy's own `limit`. Algorithm and window or calendar are the policy's, and so are `burst`, `queue`, `nodelay`,
//! `slot_ttl` and `max_hold`. Without a `burst`, a tier's bucket holds the tier's limit.
//!
//! ## Calendars
//!
//! Hours, days, weeks and months begin when the clocks of the `zone` say so, and a month whose `anchor` is 31 begins on
//! the last day of shorter months. A zone that the system does not have is an error. `window = "24h"` is a day of UTC,
//! whatever the clocks do, and `window = "day"` a day of the zone.
//!
//! ## Bans
//!
//! After a number of denials (`after`) within a window (`within`) the key is banned for a `duration`: see
//! [`Policy::ban`](tollgate::Policy::ban). With `backoff`, a factor above 1, each ban is longer than the last one, up
//! to `max`, which is required then. With `on`, responses count instead of denials, in the syntax of
//! [`count`](#policy): `"failures"`, or a list of statuses such as `[401, 403]`, which leaves out the errors of an
//! outage. With `extend = true`, a denial during a ban restarts the time of the ban. With `layer = true`, a banned key
//! is denied on the whole layer, even where the policy does not apply. `verified_key = true` declares that the key is
//! verified before it reaches the layer. A key by which clients could get others banned is an error: an unverified
//! header, `client_ip` with `trusted_hops`, the route.
//!
//! # `[server]`
//!
//! | field | value | default |
//! | --- | --- | --- |
//! | `trusted_proxies` | CIDRs and addresses of the proxies that are trusted to name the client's address | none |
//! | `trusted_hops` | instead: how many proxies there are before the server, 0 to 64 | 0 |
//! | `trusted_unix_socket` | `true`: a peer without an address is a proxy of yours, at the other end of a Unix socket | `false` |
//! | `forwarded` | the header in which they name it: `"x-forwarded-for"`, `"forwarded"`, or one with a single address, such as `"cf-connecting-ip"` | `"x-forwarded-for"` |
//! | `on_failure` | `"fallback"`, `"allow"` or `"deny"`: see [`OnFailure`](tollgate::OnFailure) | `"fallback"` |
//! | `allow_for` | with `"allow"`: how long all requests are allowed in one outage, above 0; after that like `"fallback"` | `"60s"` |
//! | `instances` | how many processes share the limits, 1 to 4294967295; with `"deny"` only if tables of other crates share the limits | 1 |
//!
//! The first four set how `"client_ip"`, `allow` and `deny` determine a client's address:
//! [`client_ip`](fn@tollgate::key::client_ip) has the rules. They need the feature `axum`.
//!
//! Any other field or table in the file is an error that names the line and the column. So is a table of another crate,
//! unless the file is read [without](Config::from_file_without) it.
//!
//! # A file that changes
//!
//! [`Config::watch`] follows a file, and [`Config::update`] replaces the policies of a layer in use with the policies
//! of a newer file. `trusted_proxies`, `trusted_hops`, `trusted_unix_socket` and `forwarded` change with them.
//! `on_failure`, `allow_for` and `instances` stay, and a warning says so.
//!
//! Settings that no file has, such as a [`when`](tollgate::Policy::when), are added to its policies by
//! [`Config::with_policies`], also before each update.

// Without these features their items are named and not there.
#![cfg_attr(not(all(feature = "axum", feature = "calendar")), allow(rustdoc::broken_intra_doc_links))]

mod ban;
// `table` exports items of the hidden modules.
#[doc(hidden)]
mod error;
mod file;
#[doc(hidden)]
mod headers;
mod keys;
mod policy;
mod server;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
mod values;
mod watch;

pub use file::Config;
