use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tollgate::{Error, LiveLayer};

use super::Config;

impl Config {
    /// Follows a file: reads it in each interval, and [updates](Self::update) the layer when its bytes have changed.
    ///
    /// `read` makes a config from the path in the same way as the layer's config was made: by
    /// [`from_file`](Self::from_file), [completed](Self::with_policies) if necessary. If the file is missing or
    /// invalid, the policies in force stay, and one warning with the code `file_invalid` says why. The layer is updated
    /// once at the beginning, because the file may have changed since the layer was built.
    ///
    /// The future never ends: spawn it on a tokio runtime. Use it for regular files only.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tollgate::MemoryStore;
    /// use tollgate_config::Config;
    ///
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// const FILE: &str = "policies.toml";
    /// let layer = Config::from_file(FILE)?.layer(MemoryStore::new())?.live();
    /// tokio::spawn(Config::watch(FILE, Duration::from_secs(5), layer.clone(), |file| Config::from_file(file)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn watch(
        path: impl Into<PathBuf>,
        interval: Duration,
        layer: LiveLayer,
        read: impl Fn(&Path) -> Result<Self, Error>,
    ) {
        let path = path.into();
        let mut seen = None;
        loop {
            let bytes = bytes_of(&path).await;
            if seen != bytes {
                match read(&path).and_then(|config| config.update(&layer)) {
                    Ok(()) => {
                        tracing::info!(code = "file_read", path = %path.display(), "policies of the file in force");
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        tracing::warn!(code = "file_invalid", error, "invalid file ignored");
                    }
                }
                // A change during the update is read again.
                if bytes_of(&path).await == bytes {
                    seen = bytes;
                }
            }
            sleep(interval).await;
        }
    }
}

async fn bytes_of(path: &Path) -> Option<Option<Vec<u8>>> {
    let path = path.to_owned();
    spawn_blocking(|| fs::read(path).ok()).await.ok()
}
