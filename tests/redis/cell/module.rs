//! The module redis-cell, built once from cargo's copy of its source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, process};

const VERSION: &str = "0.2.2";
const MANIFEST: &str = r#"[package]
name = "wants-redis-cell"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
redis-cell = "=0.2.2"
"#;
/// What the module was built and tried with: `cargo generate-lockfile` for the manifest above.
const LOCK: &str = include_str!("module.lock");

/// Where the module is.
///
/// It is built in a folder of its own, which stays for the next run. Cargo locks that folder: of
/// processes that come at once, one builds.
pub(crate) fn module() -> &'static Path {
    static MODULE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = || Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-cell-{VERSION}"));
    // Kept also if it fails, so that not every test waits for that.
    match MODULE.get_or_init(|| build(&folder())) {
        Ok(module) => module,
        Err(told) => panic!("{told}"),
    }
}

fn build(folder: &Path) -> Result<PathBuf, String> {
    let name = format!("{}redis_cell{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let module = folder.join("target/release").join(name);
    if module.exists() {
        return Ok(module);
    }
    for (file, text) in [("Cargo.toml", MANIFEST), ("Cargo.lock", LOCK), ("src/lib.rs", "")] {
        write(&folder.join(file), text);
    }
    // As a mere dependency it would be linked to the standard library in a file of its own.
    let arguments = ["rustc", "--release", "--locked", "-p", "redis-cell", "--crate-type", "cdylib", "--target-dir"];
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .arg(folder.join("target"))
        .current_dir(folder)
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("these tests need cargo, to build redis-cell");
    if built.status.success() && module.exists() {
        return Ok(module);
    }
    let told = String::from_utf8_lossy(&built.stderr);
    Err(format!("redis-cell {VERSION} cannot be built, which takes cargo, a C compiler and, once, crates.io:\n{told}"))
}

/// Writes a file as a whole, as another process may read it.
fn write(path: &Path, text: &str) {
    let part = path.with_extension(format!("part-{}", process::id()));
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the folder of the tests can be written");
    fs::write(&part, text).and_then(|()| fs::rename(&part, path)).expect("the folder of the tests can be written");
}
