//! A server whose machine is set to another time while it runs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Method};

use super::harness::{ConfigFile, Server, command};

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

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
/// On 18 January 2024.
const NOON: u64 = 19_740 * DAY + 12 * HOUR;

/// The time of a machine: a library that the server is started with, and the file that it reads.
struct WallClock {
    folder: PathBuf,
    file: File,
}

impl WallClock {
    fn at(seconds: u64) -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tollgate-clock-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).expect("the temporary folder can be written");
        std::fs::write(folder.join("ahead.c"), AHEAD).expect("the temporary folder can be written");
        // It links this test, too.
        let built =
            Command::new("cc").current_dir(&folder).args(["-shared", "-fPIC", "-o", "ahead.so", "ahead.c"]).status();
        assert!(built.expect("cc runs").success());
        let clock = Self { file: File::create(folder.join("ahead")).expect("the folder can be written"), folder };
        clock.set(seconds);
        clock
    }

    /// Sets the time since the Unix epoch.
    fn set(&self, seconds: u64) {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        let ahead = i64::try_from(seconds).expect("small") - i64::try_from(real).expect("small");
        self.file.write_all_at(&ahead.to_ne_bytes(), 0).expect("the file can be written");
    }

    fn start(&self, arguments: &[&str]) -> Server {
        let mut command = command(arguments);
        Server::run(command.env("LD_PRELOAD", self.folder.join("ahead.so")).env("AHEAD", self.folder.join("ahead")))
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sends a request to a limit of one a day, at a time.
async fn assert_at(server: &Server, now: u64, admitted: bool) {
    let response = server.ask(Method::GET, "/", &[], "").await;
    let number = |headers: &HeaderMap, name: &str| -> u64 {
        headers[name].to_str().ok().and_then(|text| text.parse().ok()).expect("a number")
    };
    assert_eq!(response.status() == 200, admitted, "at {now}");
    let (end, headers) = (now - now % DAY + DAY, response.headers());
    let reset = number(headers, "x-ratelimit-reset");
    assert!((end..=end + 1).contains(&reset), "at {now} it resets at {reset}");
    if !admitted {
        let wait = number(headers, "retry-after");
        assert!((end - now - 20..=end - now).contains(&wait), "at {now} it waits for {wait} s");
    }
}

#[tokio::test]
async fn windows_of_a_store_in_memory_and_of_the_fallback_follow_the_time_that_is_set_after_the_start() {
    let config =
        "[[policy]]\nname = \"day\"\nkey = \"global\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"24h\"\n";
    let config = ConfigFile::new(config);
    // Nothing listens on port 1, so a local fallback limits.
    for store in [&[][..], &["--redis", "redis://127.0.0.1:1"]] {
        let clock = WallClock::at(100);
        let server = clock.start(&[&["--config", config.path()], store].concat());
        assert_at(&server, 100, true).await;
        assert_at(&server, 100, false).await;
        for (now, admitted) in [
            (NOON, true),
            (NOON, false),
            (NOON + 22 * 60, false),
            (NOON - 22 * 60, false),
            (NOON + 11 * HOUR, false),
            (NOON + 12 * HOUR, true),
            (NOON + 13 * HOUR, false),
            (NOON + 300 * DAY, true),
            (NOON, true),
            (NOON, false),
        ] {
            clock.set(now);
            assert_at(&server, now, admitted).await;
        }
    }
}
