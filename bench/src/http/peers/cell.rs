//! The module `redis-cell`, built only when it is asked for.

use std::fs;
use std::path::{Path, PathBuf};

use crate::http::build;

/// The published sources of the module `redis-cell`, as cargo copies them.
const CELL: &str = "redis-cell-0.2.2";
const WANTS_CELL: &str = r#"[package]
name = "wants-redis-cell"
version = "0.0.0"
edition = "2021"
[workspace]
exclude = ["vendor"]
[dependencies]
redis-cell = "=0.2.2"
"#;

/// Builds the module and answers where it is.
pub(super) fn module() -> Result<PathBuf, String> {
    let folder = build::folder("redis-cell")?;
    let built = folder.join("target/release/libredis_cell.so");
    if built.exists() {
        return Ok(built);
    }
    // As a dependency it would not be built as the library that Redis loads, so its sources are copied.
    write(&folder.join("Cargo.toml"), WANTS_CELL)?;
    fs::create_dir_all(folder.join("src")).map_err(|fault| fault.to_string())?;
    write(&folder.join("src/lib.rs"), "")?;
    build::cargo(&folder, &["vendor", "--quiet", "--versioned-dirs"])?;
    build::cargo(
        &folder.join("vendor").join(CELL),
        &["build", "--release", "--quiet", "--target-dir", "../../target"],
    )?;
    Ok(built)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|fault| format!("{}: {fault}", path.display()))
}
