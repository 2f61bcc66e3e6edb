//! Redis behind TLS: who is believed, and who is refused.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tollgate::deadpool_redis::redis::{Client, cmd};
use tollgate::store::RedisStoreBuilder;
use tollgate::{Error, RedisStore};

use crate::stores::{PATIENCE, cut, remaining, take, time_to_decide};
use crate::support::server::RedisServer;

const BOUND: Duration = Duration::from_secs(5);

/// Who vouches for certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate whose issuer has its own name would count as one that vouches for itself.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key can be made");
        Self(CertifiedIssuer::self_signed(params, key).expect("the certificate is one"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for some hosts.
    pub(crate) fn identity(&self, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("these are hosts");
        change(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.0).expect("the certificate is one").pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

/// Where a server finds what it shows, and who vouches for clients.
pub(crate) struct Files {
    pub(crate) ca: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Files {
    pub(crate) fn write(folder: &Path, authority: &Authority, shown: &Identity) -> Self {
        let file = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("the server's folder can be written");
            folder.join(name).display().to_string()
        };
        let (certificate, key) = (file("server.pem", &shown.certificate), file("server.key", &shown.key));
        Self { ca: file("ca.pem", &authority.pem()), certificate, key }
    }
}

/// A server with a port for TLS beside its plain one.
pub(crate) struct TlsServer {
    pub(crate) plain: RedisServer,
    pub(crate) port: u16,
}

impl TlsServer {
    /// A server that shows this certificate, and asks clients for one that the authority vouches for if
    /// `clients` is `yes`.
    pub(crate) fn start(authority: &Authority, shown: &Identity, clients: &str) -> Self {
        Self::of(RedisServer::start(), authority, shown, clients)
    }

    pub(crate) fn of(plain: RedisServer, authority: &Authority, shown: &Identity, clients: &str) -> Self {
        let (_, folder): (String, String) = plain.ask(&["CONFIG", "GET", "dir"]);
        let Files { ca, certificate, key } = Files::write(Path::new(&folder), authority, shown);
        let mut connection = Client::open(plain.url()).and_then(|client| client.get_connection()).expect("it answers");
        let mut set = |name: &str, value: &str| cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut connection);
        let files = [("tls-cert-file", &*certificate), ("tls-key-file", &*key), ("tls-ca-cert-file", &*ca)];
        for (name, value) in files.into_iter().chain([("tls-auth-clients", clients)]) {
            set(name, value).expect("this server has TLS");
        }
        for port in plain.port() + 1..plain.port() + 200 {
            if set("tls-port", &port.to_string()).is_ok() {
                return Self { plain, port };
            }
        }
        panic!("no port for TLS is free, or this server has no TLS");
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.port)
    }
}

pub(crate) fn settings() -> RedisStoreBuilder {
    // A busy machine may take its time for a handshake.
    RedisStore::builder().timeout(PATIENCE).connect_timeout(Duration::from_secs(4))
}

/// The error of a connection that is refused, in time, and with a cause that says why.
async fn refusal(settings: RedisStoreBuilder, url: &str, cause: &str) -> Error {
    let start = Instant::now();
    let error = settings.connect(url).await.expect_err("it is refused");
    assert!(start.elapsed() < BOUND, "{error:#} took {:?}", start.elapsed());
    assert!(format!("{error:#}").contains(cause), "{error:#} does not say {cause:?}");
    error
}

#[tokio::test]
async fn a_store_decides_over_tls_with_a_private_root_and_comes_back_after_its_connection_was_closed() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.identity(&["127.0.0.1", "localhost"], |_| {}), "no");
    // One of several roots is enough.
    let roots = format!("{}{}", Authority::new().pem(), authority.pem());
    for host in ["127.0.0.1", "localhost"] {
        let store = settings().root_certificates(roots.clone()).connect(&server.url(host)).await.unwrap();
        drop(take(&store, "ada", 1).await.unwrap());
        cut(&server.plain);
        time_to_decide(&store, "ada").await;
    }
    let store = settings().connect(&server.plain.url()).await.unwrap();
    assert_eq!(remaining(&store, "ada").await, 46, "both ways lead to one Redis");
}

#[tokio::test]
async fn a_server_whose_root_is_another_is_refused_as_is_a_certificate_for_another_host_or_one_that_is_over() {
    let (authority, other) = (Authority::new(), Authority::new());
    let trusting = |authority: &Authority| settings().root_certificates(authority.pem());
    let right = || authority.identity(&["127.0.0.1"], |_| {});
    let over = authority.identity(&["127.0.0.1"], |params| params.not_after = date_time_ymd(2001, 1, 1));
    for (shown, settings, cause) in [
        (right(), trusting(&other), "invalid peer certificate"),
        (right(), settings(), "invalid peer certificate"),
        (authority.identity(&["redis.example"], |_| {}), trusting(&authority), "not valid for name"),
        (over, trusting(&authority), "expired"),
    ] {
        let server = TlsServer::start(&authority, &shown, "no");
        let error = refusal(settings, &server.url("127.0.0.1"), cause).await;
        assert!(error.is_connection() && error.to_string().contains(&server.port.to_string()), "{error:#}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_takes_one_its_authority_vouches_for() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = TlsServer::start(&authority, &authority.identity(&["127.0.0.1"], |_| {}), "yes");
    let trusting = || settings().root_certificates(authority.pem());
    let (known, unknown) = (authority.identity(&["client"], |_| {}), other.identity(&["client"], |_| {}));
    let store = trusting().client_certificate(known.certificate, known.key).connect(&server.url("127.0.0.1")).await;
    assert_eq!(remaining(&store.unwrap(), "ada").await, 50);
    let stranger = trusting().client_certificate(unknown.certificate, unknown.key);
    for settings in [trusting(), stranger] {
        let error = refusal(settings, &server.url("127.0.0.1"), "cannot use Redis").await;
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_read_or_would_not_be_used_are_invalid() {
    let authority = Authority::new();
    let Identity { certificate, key } = authority.identity(&["client"], |_| {});
    for settings in [
        settings().root_certificates("no PEM"),
        settings().root_certificates(""),
        settings().root_certificates("-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n"),
        settings().client_certificate(certificate.clone(), "no key"),
        settings().client_certificate(certificate, key.clone()).root_certificates(key.clone()),
    ] {
        assert!(!format!("{settings:?}").contains("PRIVATE"), "{settings:?}");
        let error = refusal(settings, "rediss://127.0.0.1:1", "use PEM").await;
        assert!(error.is_invalid() && !format!("{error:?}").contains(&key), "{error:?}");
    }
    let unused = settings().root_certificates(authority.pem());
    assert!(refusal(unused, "redis://127.0.0.1:1", "use a rediss:// URL").await.is_invalid());
    assert!(refusal(settings(), "rediss://127.0.0.1:1/#insecure", "#insecure is not supported").await.is_invalid());
}
