//! The folders of control planes.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;

use parking_lot::Mutex;

use super::Result;

/// The number of folders of ended programs that are kept, without a failed test.
const KEPT: usize = 4;

/// The number of folders with a failed test that are kept.
const KEPT_FAILED: usize = 8;

/// The file that marks a failed test.
const FAILED: &str = "failed";

/// The folders of this program, and the threads that have created them.
static CREATED: Mutex<Vec<(ThreadId, PathBuf)>> = Mutex::new(Vec::new());

/// Creates a folder for one control plane. Removes the folders of ended programs, except
/// the latest.
pub fn create() -> Result<PathBuf> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let root = &root();
    std::fs::create_dir_all(root)?;
    remove_ended(root)?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = root.join(format!("plane-{}-{count}", std::process::id()));
    // Pids are reused, especially in containers.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    CREATED.lock().push((std::thread::current().id(), folder.clone()));
    keep_on_panic();
    Ok(folder)
}

fn remove_ended(root: &Path) -> Result<()> {
    let mut ended: Vec<_> = std::fs::read_dir(root)?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let pid = name.strip_prefix("plane-")?.split('-').next()?.to_owned();
            let alive = Path::new("/proc").join(pid).exists();
            (!alive).then(|| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))?
        })
        .collect();
    ended.sort();
    let newest = ended.into_iter().rev().map(|(_, path)| path);
    let (failed, others): (Vec<_>, Vec<_>) = newest.partition(|path| path.join(FAILED).exists());
    for path in failed.iter().skip(KEPT_FAILED).chain(others.iter().skip(KEPT)) {
        // Another test program may remove it at the same time.
        let _ = std::fs::remove_dir_all(path);
    }
    Ok(())
}

/// The parent of all folders. It is not below the target folder, because the path of a unix socket
/// has at most 107 bytes, and the path of a checkout may be longer.
pub fn root() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("belay-test-{user}"))
}

/// Removes the folders of this program's control planes.
pub fn remove_own() {
    let own = format!("plane-{}-", std::process::id());
    for entry in std::fs::read_dir(root()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&own) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A failed test prints where the logs of its control planes are, and the logs stay. A test that
/// has created no control plane uses a shared one, so it prints the logs of all control planes.
fn keep_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            let created = CREATED.lock();
            let is_own = |thread: &ThreadId| *thread == std::thread::current().id();
            let shares = !created.iter().any(|(thread, _)| is_own(thread));
            for (_, folder) in created.iter().filter(|(thread, _)| shares || is_own(thread)) {
                let _ = std::fs::write(folder.join(FAILED), "");
                eprintln!("the control plane's logs: {}", folder.join("logs").display());
            }
        }));
    });
}
