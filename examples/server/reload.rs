//! Reloads the config file while the server runs.

use std::fs::Metadata;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::task::block_in_place;
use tokio::time::{MissedTickBehavior, interval};
use tollgate::{Error, LiveLayer};
use tollgate_config::Config;
use tollgate_shed::FleetConfig;

use crate::limits;

/// How often the file is checked for changes.
const LOOK: Duration = Duration::from_secs(1);

/// A config file, and its state when it was last checked.
pub(crate) struct ConfigFile {
    path: PathBuf,
    /// Its stamp when it was last read; `None` if it is not a regular file: a pipe cannot be read again.
    read: Option<Stamp>,
    /// Its stamp when it was last checked.
    seen: Option<Stamp>,
    /// The config that the server was started with.
    config: Config,
    /// Its table `[fleet]`.
    fleet: Option<FleetConfig>,
}

/// The metadata that changes when a file is written, or another one takes its place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    /// Device, inode, and when the metadata itself changed: which a program that sets the time of a file cannot set.
    #[cfg(unix)]
    file: (u64, u64, i64, i64),
}

impl ConfigFile {
    pub(crate) fn open(path: &str) -> Result<Self, Error> {
        let path = PathBuf::from(path);
        // Taken before it is read, so that no later change is missed.
        let stamp = Stamp::of(&path);
        let (config, fleet) = read(&path)?;
        Ok(Self { path, read: stamp, seen: stamp, config, fleet })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn fleet(&self) -> Option<&FleetConfig> {
        self.fleet.as_ref()
    }

    /// Returns whether it has changed since it was read, but not since the last check, as it may still be written.
    fn has_changed(&mut self) -> bool {
        let now = Stamp::of(&self.path);
        let before = std::mem::replace(&mut self.seen, now);
        now == before && now != self.read
    }

    /// Replaces the policies by those of the file. If the file is not valid, those in force stay.
    fn reload(&mut self, layer: &LiveLayer) {
        self.read = Stamp::of(&self.path);
        // To open a FIFO waits for a program that writes to it.
        if self.path.metadata().is_ok_and(|file| !file.is_file()) {
            return tracing::error!("the config file is refused, the policies stay: it is no regular file");
        }
        let (newer, fleet) = match read(&self.path) {
            Ok(newer) => newer,
            Err(error) => return tracing::error!("the config file is refused, the policies stay: {error:#}"),
        };
        if fleet != self.fleet {
            tracing::warn!(code = "settings_stay", settings = "fleet", "fleet stays as it was: restart the server");
        }
        match newer.update(layer) {
            Ok(()) => {
                tracing::info!(policies = newer.policies().len(), "the config file was read again");
                limits::warn_of_no_policies(&newer);
            }
            Err(error) => tracing::error!("the config file is refused, the policies stay: {error:#}"),
        }
    }
}

/// Reads both from one text, as a pipe is read once.
fn read(path: &Path) -> Result<(Config, Option<FleetConfig>), Error> {
    let name = path.to_string_lossy().escape_debug().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::invalid(format!("cannot read the config file {name}: {error}")))?;
    let of_file = |error| Error::invalid(format!("{name} {error:#}"));
    Ok((
        Config::from_toml_without(&text, &["fleet"]).map_err(of_file)?,
        FleetConfig::from_toml(&text).map_err(of_file)?,
    ))
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
        Some(Self {
            modified: file.modified().ok(),
            length: file.len(),
            #[cfg(unix)]
            file: (file.dev(), file.ino(), file.ctime(), file.ctime_nsec()),
        })
    }
}

/// Reloads the file on SIGHUP and when it changes.
pub(crate) fn watch(mut file: ConfigFile, layer: LiveLayer) -> std::io::Result<()> {
    let mut hang_ups = HangUps::listen()?;
    tokio::spawn(async move {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                () = hang_ups.next() => true,
                _ = looks.tick() => false,
            };
            block_in_place(|| {
                if asked || file.has_changed() {
                    file.reload(&layer);
                }
            });
        }
    });
    Ok(())
}

/// SIGHUP, on systems that have it.
struct HangUps {
    #[cfg(unix)]
    signals: tokio::signal::unix::Signal,
}

impl HangUps {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signals: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        self.signals.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
