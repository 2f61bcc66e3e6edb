//! A setting that has no effect on what is connected to is an error, and nothing is connected.

use std::convert::Infallible;

use tokio::net::TcpStream;
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::{Credentials, RedisStoreBuilder};
use tollgate::{Error, RedisStore};

const URL: &str = "redis://127.0.0.1:1";

/// Where a store connects to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Url(&'static str),
    Cluster,
    Sentinel,
    Pool,
}

const ENDS: [End; 6] = [
    End::Url(URL),
    End::Url("rediss://127.0.0.1:1"),
    End::Url("redis+unix:///nowhere"),
    End::Cluster,
    End::Sentinel,
    End::Pool,
];

async fn made(settings: RedisStoreBuilder, end: End) -> Result<RedisStore, Error> {
    match end {
        End::Url(url) => settings.lazy().connect(url).await,
        End::Cluster => settings.lazy().connect_cluster([URL]).await,
        End::Sentinel => settings.lazy().connect_sentinel([URL], "main").await,
        End::Pool => {
            settings.from_pool(Config::from_url(URL).create_pool(Some(Runtime::Tokio1)).expect("the URL is one"))
        }
    }
}

fn login() -> Credentials {
    Credentials::new("limiter", "secret")
}

#[tokio::test]
async fn settings_that_have_no_effect_on_what_is_connected_to_are_an_error() {
    type Set = fn(RedisStoreBuilder) -> RedisStoreBuilder;
    type IsUsed = fn(End) -> bool;
    let rows: [(&str, Set, IsUsed); 6] = [
        ("nothing", |settings| settings, |_| true),
        ("a deny cache that is left out", |settings| settings.without_deny_cache().deny_cache_capacity(9), |_| false),
        ("credentials", |settings| settings.credentials(async || Ok::<_, Infallible>(login())), |end| end != End::Pool),
        (
            "dial",
            |settings| settings.dial(|host, port| async move { TcpStream::connect((host, port)).await }),
            |end| end != End::Pool && end != ENDS[2],
        ),
        ("primary_credentials", |settings| settings.primary_credentials(login()), |end| end == End::Sentinel),
        (
            "both credentials of a primary",
            |settings| settings.primary_credentials(login()).credentials(async || Ok::<_, Infallible>(login())),
            |_| false,
        ),
    ];
    for (name, set, is_used) in rows {
        for end in ENDS {
            let made = made(set(RedisStore::builder()), end).await;
            assert_eq!(made.is_ok(), is_used(end), "{name} with {end:?}: {made:?}");
            assert!(made.err().is_none_or(|error| error.is_invalid()), "{name} with {end:?}");
        }
    }
}

/// What is no certificate is an error of what reads it, too.
#[cfg(feature = "tls")]
#[tokio::test]
async fn certificates_are_an_error_of_all_that_is_not_encrypted() {
    for end in ENDS {
        let error = made(RedisStore::builder().root_certificates("none"), end).await.expect_err("of no use");
        let is_read = error.to_string().contains("cannot be read");
        assert_eq!(is_read, end == ENDS[1], "{end:?}: {error}");
        assert!(error.is_invalid(), "{end:?}: {error}");
    }
}

#[tokio::test]
async fn what_a_url_says_in_vain_is_an_error() {
    let error = RedisStore::connect("redis://limiter@127.0.0.1:1").await.expect_err("it would be the default user");
    assert!(error.is_invalid() && !error.to_string().contains("limiter"), "{error}");
    for (first, second, is_used) in [
        (URL, "redis://127.0.0.1:2", true),
        ("redis://ada:horse@127.0.0.1:1", "redis://127.0.0.1:2", true),
        ("redis://ada:horse@127.0.0.1:1", "redis://ada:horse@127.0.0.1:2", true),
        ("redis://ada:horse@127.0.0.1:1", "redis://ada:staple@127.0.0.1:2", false),
        (URL, "redis://ada:horse@127.0.0.1:2", false),
        (URL, "rediss://127.0.0.1:2", false),
        ("rediss://127.0.0.1:1", "redis://127.0.0.1:2", false),
    ] {
        let made = RedisStore::builder().lazy().connect_cluster([first, second]).await;
        assert_eq!(made.is_ok(), is_used, "{first} {second}: {made:?}");
        assert!(made.err().is_none_or(|error| error.is_invalid() && !error.to_string().contains("staple")));
    }
}
