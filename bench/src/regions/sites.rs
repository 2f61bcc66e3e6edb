//! The servers of one load, and the ways to them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::REGIONS;
use super::proxy::Link;
use super::sides::{Place, Side};
use crate::cluster::Cluster;
use crate::server::{SCRIPTS, Server};

/// How long each byte takes to the far Redis, and back.
pub(super) const WAY: Duration = Duration::from_millis(80);

pub(super) struct Site {
    /// It is near as well: then it is reached past the links.
    far: Server,
    /// One for each region.
    links: Vec<Link>,
    /// One in each region.
    regions: Vec<Server>,
    /// None if no side needs it.
    cluster: Option<Cluster>,
}

/// What the servers of a side did.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    /// Calls of scripts to all of them.
    pub(super) calls: f64,
    /// Those to the server that was called most, and the most microseconds that one spent in them.
    pub(super) busiest_calls: f64,
    pub(super) busiest_us: f64,
    /// Bytes on the links, in both directions.
    pub(super) link_bytes: f64,
}

impl Site {
    pub(super) async fn start(sides: &[Side]) -> Self {
        let far = Server::start().await;
        let (mut links, mut regions) = (Vec::new(), Vec::new());
        for _ in 0..REGIONS {
            links.push(Link::to(SocketAddr::from((Ipv4Addr::LOCALHOST, far.port())), WAY).await);
            regions.push(Server::start().await);
        }
        let needs_cluster = sides.iter().any(|side| side.place == Place::Cluster);
        let cluster = if needs_cluster { Some(Cluster::start().await) } else { None };
        Self { far, links, regions, cluster }
    }

    /// What a process of a region connects to.
    pub(super) fn urls(&self, place: Place, region: u32) -> String {
        match place {
            Place::Nowhere => String::new(),
            Place::Near => self.far.url().to_owned(),
            Place::Far => self.links[region as usize].url(),
            Place::Region => self.regions[region as usize].url().to_owned(),
            Place::Cluster => self.servers(place).iter().map(|server| server.url()).collect::<Vec<_>>().join(","),
        }
    }

    fn servers(&self, place: Place) -> Vec<&Server> {
        match place {
            Place::Nowhere => Vec::new(),
            Place::Near | Place::Far => vec![&self.far],
            Place::Region => self.regions.iter().collect(),
            Place::Cluster => self.cluster.iter().flat_map(|cluster| &cluster.primaries).collect(),
        }
    }

    pub(super) async fn flush(&self, place: Place) {
        for server in self.servers(place) {
            server.flush(&mut server.connection().await).await;
        }
    }

    /// Returns what was done since the last call.
    pub(super) async fn take_work(&self, place: Place) -> Work {
        let mut work = Work::default();
        for server in self.servers(place) {
            let mut connection = server.connection().await;
            let (calls, micros) = server.command_stats(&mut connection, &SCRIPTS).await;
            server.reset_stats(&mut connection).await;
            work.calls += calls;
            work.busiest_calls = work.busiest_calls.max(calls);
            work.busiest_us = work.busiest_us.max(micros);
        }
        work.link_bytes = self.links.iter().map(|link| link.take_bytes() as f64).sum();
        work
    }

    pub(super) fn cut(&self, time: Duration) {
        for link in &self.links {
            link.cut(time);
        }
    }
}
