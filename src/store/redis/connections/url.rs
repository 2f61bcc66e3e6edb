//! Reading URLs: a text comes in, and where the server is and who logs in there goes out.
//!
//! The redis crate parses the URL. What it would accept though it is not safe, or reject without a
//! hint, is an error here that says what to give. No error shows the URL, which may hold a
//! password.

use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::core::Error;

/// Reads a URL: `redis://`, `rediss://` with the feature `tls`, `redis+unix://` on Unix, and the
/// same with `valkey`.
///
/// # Errors
///
/// If it is no such URL, encrypted without the feature, or encrypted without a proof of the
/// server's identity (`#insecure`): the error is one of the settings.
pub(in crate::store::redis) fn server(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|error| Error::invalid(fault(url)).with_source(error))?;
    if let ConnectionAddr::TcpTls { insecure: true, .. } = info.addr() {
        return Err(Error::invalid(
            "#insecure is not supported, as it skips the verification of the server: give its root certificate instead",
        ));
    }
    // The redis crate passes over all others: with a `db` that other clients read, two services would share database 0.
    let (known, say): (&[&str], _) = match info.addr() {
        ConnectionAddr::Unix(_) => (&["db", "user", "pass", "protocol"], "there are db, user, pass and protocol"),
        _ => (&["protocol"], "the database is a path, as in redis://host:port/1"),
    };
    let query = url.split('#').next().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
    let mut names = query.split('&').filter_map(|parameter| parameter.split('=').next());
    if names.any(|name| !name.is_empty() && !known.contains(&name)) {
        return Err(Error::invalid(format!("a parameter of the Redis URL is not known: {say}")));
    }
    Ok(info)
}

/// Returns what is wrong with a URL that the redis crate does not read, and what to give instead.
fn fault(url: &str) -> &'static str {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let encrypted = ["rediss", "valkeys"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if encrypted && !cfg!(feature = "tls") {
        "this Redis URL requires TLS: enable the feature `tls` of tollgate"
    } else {
        "not a valid Redis URL: give redis://[user:password@]host:port[/db], rediss:// for TLS, or \
         redis+unix:///path"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        let error = server(url).map(drop).expect_err("it cannot be used");
        assert!(error.is_invalid(), "{error:#}");
        error.to_string()
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_url_that_asks_for_tls_is_refused_without_the_feature_and_told_its_name() {
        for url in ["rediss://127.0.0.1:6379", "REDISS://127.0.0.1", "valkeys://user:secret@host:1/0"] {
            let message = refusal(url);
            assert!(message.contains("feature `tls`") && !message.contains("secret"), "{url}: {message}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_url_that_asks_for_tls_without_proof_is_refused() {
        let message = refusal("rediss://127.0.0.1:6379/#insecure");
        assert!(message.contains("root certificate"), "{message}");
    }

    #[test]
    fn every_kind_of_url_is_read() {
        let unix = if cfg!(unix) { &["redis+unix:///run/redis.sock", "unix:///a?db=1&user=b&pass=c"][..] } else { &[] };
        let tls = if cfg!(feature = "tls") { &["rediss://host:6380", "valkeys://user:pw@host/1"][..] } else { &[] };
        for url in ["redis://host", "valkey://:pw@[::1]:1/2"].iter().chain(unix).chain(tls) {
            assert!(server(url).is_ok(), "{url}");
        }
        assert!(refusal("http://host").contains("redis://"));
    }

    #[test]
    fn a_parameter_that_would_be_passed_over_is_refused() {
        for url in ["redis://host?db=3", "redis://host:1/2?protocol=resp3&timeout=5"] {
            assert!(refusal(url).contains("redis://host:port/1"), "{url}");
        }
        if cfg!(unix) {
            assert!(refusal("redis+unix:///a?database=1").contains("there are db,"));
        }
        assert!(server("redis://host/2?protocol=resp3").is_ok());
    }
}
