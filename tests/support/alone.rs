//! Tests that need a process of their own, as something in the crate happens once a process.

use std::env;
use std::process::Command;

/// Says to a process that it is the one.
const VARIABLE: &str = "TOLLGATE_TEST_ALONE";

/// Runs a test again, in a process where nothing else runs. Its name is as `--list` shows it.
#[track_caller]
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if env::var_os(VARIABLE).is_some() {
        return test();
    }
    let mut again = Command::new(env::current_exe().expect("it runs"));
    let output = again.args([name, "--exact", "--nocapture"]).env(VARIABLE, "1").output().expect("it starts again");
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && printed.contains(" 1 passed"), "{name}: {printed}");
}
