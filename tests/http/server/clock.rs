//! A server whose machine is set to another time while it runs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use http::Method;

use super::harness::{ConfigFile, Server, command};
use crate::rig::line;

/// Adds the seconds in a file to the time of the system, and to no other clock.
const AHEAD: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

__attribute__((constructor)) static void begin(void) {
  ahead = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, open(getenv("AHEAD"), O_RDONLY), 0);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += *ahead;
  return result;
}
"#;

const DAY: u64 = 24 * 3_600;
/// On 18 January 2024.
const NOON: u64 = 19_740 * DAY + DAY / 2;

#[tokio::test]
async fn windows_of_a_store_in_memory_and_of_the_fallback_follow_the_time_that_is_set_after_the_start() {
    let daily =
        "[[policy]]\nname = \"day\"\nkey = \"global\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"24h\"\n";
    let (config, source, library) = (ConfigFile::new(daily), ConfigFile::new(AHEAD), ConfigFile::new(""));
    // It links this test, too.
    let arguments = ["-shared", "-fPIC", "-x", "c", "-o", library.path(), source.path()];
    assert!(Command::new("cc").args(arguments).status().expect("cc runs").success());
    let ahead = ConfigFile::new("");
    let file = File::options().write(true).open(ahead.path()).expect("it is there");
    let set = |seconds: u64| {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        let ahead = seconds.cast_signed() - real.cast_signed();
        file.write_all_at(&ahead.to_ne_bytes(), 0).expect("the file can be written");
    };
    // Nothing listens on port 1, so a local fallback limits.
    for store in [&[][..], &["--redis", "redis://127.0.0.1:1"]] {
        set(100);
        let mut command = command(&[&["--config", config.path()], store].concat());
        let server = Server::run(command.env("LD_PRELOAD", library.path()).env("AHEAD", ahead.path()));
        for (now, admitted) in [
            (100, true),
            (101, false),
            (NOON, true),
            (NOON - 22 * 60, false),
            (NOON + DAY / 2, true),
            (NOON + 300 * DAY, true),
            (NOON, true),
            (NOON + 1, false),
        ] {
            set(now);
            let response = server.ask(Method::GET, "/", &[], "").await;
            let number = |name: &str| -> u64 { line(response.headers(), name).parse().expect("a number") };
            assert_eq!(response.status() == 200, admitted, "at {now}");
            let (end, reset) = (now - now % DAY + DAY, number("x-ratelimit-reset"));
            assert!((end..=end + 1).contains(&reset), "at {now} it resets at {reset}");
            assert!(admitted || (end - now - 20..=end - now).contains(&number("retry-after")), "at {now}");
        }
    }
}
