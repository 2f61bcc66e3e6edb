//! A proxy: nginx, on loopback ports.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, process, thread};

/// Below the range from which the system gives ports to clients.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const ATTEMPTS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(10);

/// An nginx, stopped when dropped.
pub(crate) struct Nginx {
    process: Child,
    folder: PathBuf,
    /// Of HTTP/1.1 and HTTP/2; the same, normalizing.
    ports: [u16; 4],
}

impl Nginx {
    /// Starts a proxy of what listens on a port, and waits until it listens itself.
    pub(crate) fn start(upstream: u16) -> Self {
        Self::start_with(upstream, "", "", "")
    }

    /// Starts a proxy with more directives: for HTTP, and locations, whose upstream is `app`.
    pub(crate) fn start_limiting(upstream: u16, http: &str, locations: &str) -> Self {
        Self::start_with(upstream, "", http, locations)
    }

    /// Starts a proxy that adds its client's address to `X-Forwarded-For`.
    pub(crate) fn start_forwarding(upstream: u16) -> Self {
        Self::start_with(upstream, "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", "", "")
    }

    /// Starts a cache that is shared by all clients, which keeps what it may, and all else for a minute.
    pub(crate) fn start_caching(upstream: u16) -> Self {
        let settings =
            "proxy_cache shared; proxy_cache_valid any 1m; add_header X-Cache $upstream_cache_status always;";
        Self::start_with(upstream, settings, "", "")
    }

    fn start_with(upstream: u16, header: &str, http: &str, locations: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..ATTEMPTS {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = env::temp_dir().join(format!("tollgate-nginx-{}-{number}", process::id()));
            fs::create_dir_all(&folder).expect("the temporary folder can be written");
            let ports = free_ports();
            let settings = settings(ports, upstream, header, http, locations);
            fs::write(folder.join("nginx.conf"), settings).expect("the folder can be written");
            let mut nginx = Self { process: spawn(&folder), folder, ports };
            if nginx.listens() {
                return nginx;
            }
        }
        panic!("nginx does not start");
    }

    pub(crate) fn port(&self, is_http2: bool, normalizes: bool) -> u16 {
        self.ports[usize::from(is_http2) + 2 * usize::from(normalizes)]
    }

    /// Waits until this very process listens; `false` if it ended, as when a port was taken.
    fn listens(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.process.try_wait().expect("a child can be asked").is_some() {
                return false;
            }
            // It is written after the ports are bound.
            let pid = fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
            let accepts = |port: &u16| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok();
            if pid.trim() == self.process.id().to_string() && self.ports.iter().all(accepts) {
                return true;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("nginx does not listen on {:?} after {PATIENCE:?}", self.ports);
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn spawn(folder: &PathBuf) -> Child {
    let mut nginx = Command::new("nginx");
    nginx.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "error.log"]);
    match nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(process) => process,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("these tests need nginx: apt-get install nginx-light")
        }
        Err(error) => panic!("nginx cannot be started: {error}"),
    }
}

/// Ports that nobody listens on, and that no other test of this process was given.
fn free_ports() -> [u16; 4] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(PORTS.end - PORTS.start);
    let port = || {
        let mut ports = (0..span).map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            PORTS.start + u16::try_from((process::id() * 41 + step) % span).expect("less than the span")
        });
        ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).expect("a port is free")
    };
    [port(), port(), port(), port()]
}

/// One pair of servers hands on what it got, the other one what it made of it.
fn settings(
    [http1, http2, normal1, normal2]: [u16; 4],
    upstream: u16,
    header: &str,
    http: &str,
    locations: &str,
) -> String {
    format!(
        "daemon off;
master_process off;
pid pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  proxy_cache_path cache keys_zone=shared:1m use_temp_path=off;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  proxy_http_version 1.1;
  set_real_ip_from 127.0.0.1;
  real_ip_header X-Forwarded-For;
  upstream app {{
    server 127.0.0.1:{upstream};
    keepalive 4;
  }}
  {http}
  server {{
    listen 127.0.0.1:{http1};
    listen 127.0.0.1:{http2} http2;
    {locations}
    location / {{
      proxy_set_header Host $http_host;
      proxy_set_header Connection '';
      proxy_set_header X-Seen-By-Nginx $remote_addr;
      {header}
      proxy_pass http://app;
    }}
  }}
  server {{
    listen 127.0.0.1:{normal1};
    listen 127.0.0.1:{normal2} http2;
    location / {{
      proxy_set_header Host $host;
      proxy_set_header Connection '';
      proxy_set_header X-Seen-By-Nginx $remote_addr;
      {header}
      proxy_pass http://app/;
    }}
  }}
}}
"
    )
}
