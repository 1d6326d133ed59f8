//! Loads the world from folders, and loads it again when the files change.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::documents::File;
use super::folder::{FileListing, Folders};
use super::{FileError, World};
use crate::objects::digest;
use crate::policy::Pause as PausedBy;
use crate::telemetry::{Metrics, ReadinessCondition};

/// Reports the state of the files.
#[derive(Clone)]
pub struct FileStatus {
    pub metrics: Metrics,
    /// True while the files are valid, so that their content is in use.
    pub good: ReadinessCondition,
}

/// The state of the files at the last read.
struct LastRead {
    listing: Result<FileListing, FileError>,
    digest: FilesDigest,
    /// Whether an equal listing shows that the files need not be read.
    settled: bool,
}

/// The digest of names and bytes. Errors are compared as values, so that an unchanged error
/// is logged once.
type FilesDigest = Result<[u8; 32], FileError>;

impl LastRead {
    fn new(listing: Result<FileListing, FileError>, digest: FilesDigest) -> Self {
        let settled = listing.as_ref().is_ok_and(FileListing::is_settled);
        Self { listing, digest, settled }
    }
}

/// Reads the files of a listing.
fn read_listed(listing: &Result<FileListing, FileError>) -> Result<Vec<File>, FileError> {
    listing.as_ref().map_err(Clone::clone).and_then(FileListing::read)
}

/// Loads the world. A thread checks the files in this interval and loads the world again when
/// they change. If a changed file is invalid, the previous world stays in use.
pub fn watch(
    folders: Folders,
    with_objects: bool,
    interval: Duration,
    status: FileStatus,
) -> Result<Arc<ArcSwap<World>>, FileError> {
    let listing = folders.list();
    let files = read_listed(&listing);
    let digest = digest_files(&files);
    let seen = LastRead::new(listing, digest);
    let world = World::read(&files?, with_objects)?;
    log_loaded(None, &world, &status);
    let shared = Arc::new(ArcSwap::from_pointee(world));
    let watched = shared.clone();
    std::thread::Builder::new()
        .name("files".to_owned())
        .spawn(move || reload_changes(&folders, with_objects, interval, seen, &status, &watched))
        .map_err(|error| {
            let message = format!("cannot start a thread that looks at files: {error}; try again");
            FileError::about_file("--files-poll", message)
        })?;
    Ok(shared)
}

fn reload_changes(
    folders: &Folders,
    with_objects: bool,
    interval: Duration,
    mut seen: LastRead,
    status: &FileStatus,
    shared: &ArcSwap<World>,
) -> ! {
    loop {
        std::thread::sleep(interval);
        // While another process writes a file, the file lacks its last policies. belay waits so
        // that it does not load a partial change.
        let wait = || std::thread::sleep(interval.min(Duration::from_millis(100)));
        let Some(files) = read_changed(folders, &mut seen, wait) else { continue };
        match files.and_then(|files| World::read(&files, with_objects)) {
            Ok(world) => {
                log_loaded(Some(&shared.load()), &world, status);
                shared.store(Arc::new(world));
            }
            Err(error) => {
                status.metrics.record_files_broken();
                status.good.set(false);
                tracing::error!(%error, "a file is invalid; the last valid content stays in use");
            }
        }
    }
}

/// The files, if they differ from the last read and don't change during `wait`.
fn read_changed(
    folders: &Folders,
    seen: &mut LastRead,
    wait: impl FnOnce(),
) -> Option<Result<Vec<File>, FileError>> {
    let listing = folders.list();
    if seen.settled && listing == seen.listing {
        return None;
    }
    let digest = digest_files(&read_listed(&listing));
    if digest == seen.digest {
        *seen = LastRead::new(listing, digest);
        return None;
    }
    wait();
    let listing = folders.list();
    let files = read_listed(&listing);
    if digest_files(&files) != digest {
        return None;
    }
    *seen = LastRead::new(listing, digest);
    Some(files)
}

fn digest_files(files: &Result<Vec<File>, FileError>) -> FilesDigest {
    let files = files.as_ref().map_err(Clone::clone)?;
    Ok(digest(&files.iter().map(|file| (&file.name, &file.text)).collect::<Vec<_>>()))
}

/// Logs the loaded files, and warns if the files have no policy or a pause.
fn log_loaded(before: Option<&World>, world: &World, status: &FileStatus) {
    status.metrics.record_files_loaded();
    status.good.set(true);
    let World { graph, notes, .. } = world;
    tracing::info!(
        policies = notes.policies,
        approvals = notes.approvals,
        pauses = notes.pauses,
        relations = notes.relations,
        objects = graph.object_count(),
        edges = graph.edge_count(),
        "files loaded"
    );
    if !notes.unknown.is_empty() {
        let kinds = notes.unknown.join(", ");
        tracing::warn!(
            kinds,
            "these kinds are unknown; a policy names them by API group and plural, lower case"
        );
    }
    let policies_before = before.map_or(1, |before| before.notes.policies);
    if notes.policies == 0 && policies_before > 0 {
        tracing::warn!("there is no policy in the files: only the label belay.dev/protect counts");
    }
    for pause in &world.policies.pauses {
        let PausedBy { name, by, .. } = pause;
        tracing::warn!(
            pause = name,
            by,
            until = pause.until(),
            "belay is paused: it denies nothing until then"
        );
    }
    if !notes.guessed.is_empty() {
        let kinds = notes.guessed.join(", ");
        tracing::info!(kinds, "no CRD states the plural of these kinds; belay guesses it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    #[test]
    fn a_change_is_read_once_after_its_last_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        write(&file, "a: 1").unwrap();
        let folders = Folders(vec![folder.path().to_owned()]);
        let listing = folders.list();
        let found = digest_files(&read_listed(&listing));
        let mut seen = LastRead::new(listing, found);
        let never = || panic!("nothing has changed");
        assert!(read_changed(&folders, &mut seen, never).is_none());
        // A write of the same bytes is no change.
        write(&file, "a: 1").unwrap();
        assert!(read_changed(&folders, &mut seen, never).is_none());

        write(&file, "a: 2\nb").unwrap();
        let write_more = || write(&file, "a: 2\nb: 3").unwrap();
        assert!(read_changed(&folders, &mut seen, write_more).is_none());
        let files = read_changed(&folders, &mut seen, || {}).unwrap().unwrap();
        assert_eq!(files[0].text, "a: 2\nb: 3");
        assert!(read_changed(&folders, &mut seen, never).is_none());

        std::fs::remove_dir_all(folder.path()).unwrap();
        let error = read_changed(&folders, &mut seen, || {}).unwrap().map(drop).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
        assert!(read_changed(&folders, &mut seen, never).is_none(), "the error is the same");
    }
}
