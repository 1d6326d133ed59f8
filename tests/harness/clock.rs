//! A clock that is ahead, for one process.

use std::path::Path;
use std::process::Command;

use super::Result;

/// Replaces the C library's answer to a program that asks for the time. The monotonic
/// clock, which measures waits, is unchanged.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    const char *ahead = getenv("BELAY_TEST_CLOCK_AHEAD");
    if (!failed && clock == CLOCK_REALTIME && ahead) now->tv_sec += atol(ahead);
    return failed;
}
"#;

/// The environment of a process whose clock is ahead by this number of seconds. The C compiler that
/// links Rust programs builds the library.
pub fn ahead(folder: &Path, seconds: u32) -> Result<[(String, String); 2]> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    if !library.exists() {
        std::fs::write(&source, SOURCE)?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .output()?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into());
        }
    }
    Ok([
        ("LD_PRELOAD".to_owned(), library.display().to_string()),
        ("BELAY_TEST_CLOCK_AHEAD".to_owned(), seconds.to_string()),
    ])
}
