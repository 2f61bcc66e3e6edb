//! What is built only when asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a server behind `tower-rate-limiter`. All its versions declare a newer compiler than they
/// need, which a member of this workspace could not pass over.
pub(crate) fn tower_rate_limiter() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tower-rate-limiter");
    let target = folder("tower-rate-limiter")?;
    let target_dir = target.to_str().ok_or("the folder for temporary files has a strange name")?;
    cargo(&source, &["build", "--release", "--quiet", "--ignore-rust-version", "--target-dir", target_dir])?;
    Ok(target.join("release/bench-tower-rate-limiter"))
}

/// A folder for what is built, which stays for the next run.
pub(super) fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join("tollgate-bench").join(name);
    fs::create_dir_all(&folder).map_err(|fault| format!("{}: {fault}", folder.display()))?;
    Ok(folder)
}

pub(super) fn cargo(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("cargo").args(arguments).current_dir(folder).output();
    let output = output.map_err(|fault| format!("cargo cannot be started: {fault}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("cargo {} failed:\n{}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
}
