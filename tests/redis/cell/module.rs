//! The module redis-cell, built once from cargo's copy of its source.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, process, thread};

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

/// A build takes seconds; the first one downloads the sources.
const PATIENCE: Duration = Duration::from_secs(300);

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
    let log = folder.join(format!("log-{}", process::id()));
    // As a mere dependency it would be linked to the standard library in a file of its own.
    let arguments = ["rustc", "--release", "--locked", "-p", "redis-cell", "--crate-type", "cdylib", "--target-dir"];
    let cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .arg(folder.join("target"))
        .current_dir(folder)
        .env_remove("CARGO_BUILD_TARGET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("the folder of the tests can be written"))
        .spawn()
        .expect("these tests need cargo, to build redis-cell");
    let built = succeeds(cargo);
    let told = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(&log);
    if built && module.exists() {
        return Ok(module);
    }
    Err(format!("redis-cell {VERSION} cannot be built, which takes cargo, a C compiler and, once, crates.io:\n{told}"))
}

/// Writes a file as a whole, as another process may read it.
fn write(path: &Path, text: &str) {
    let part = path.with_extension(format!("part-{}", process::id()));
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the folder of the tests can be written");
    fs::write(&part, text).and_then(|()| fs::rename(&part, path)).expect("the folder of the tests can be written");
}

/// Whether it ends well, and in time.
fn succeeds(mut cargo: Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = cargo.try_wait().expect("a child can be asked") {
            return status.success();
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = cargo.kill();
    let _ = cargo.wait();
    false
}
