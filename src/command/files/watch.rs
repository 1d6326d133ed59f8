//! The world of some folders, again when they change.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::documents::File;
use super::folder::{Folders, Look};
use super::{FileError, World};
use crate::objects::digest;
use crate::policy::Pause as PausedBy;
use crate::telemetry::{Condition, Metrics};

/// Where it is told how the files are.
#[derive(Clone)]
pub struct Signs {
    /// Where it is counted.
    pub metrics: Metrics,
    /// Holds while what is in the files is what is in use.
    pub good: Condition,
}

/// What was found at the last look that counted.
struct Seen {
    look: Result<Look, FileError>,
    /// Of names and bytes, or of the error's words.
    digest: [u8; 32],
    /// Whether a look that finds the same stamps needs no look into the files.
    settled: bool,
}

impl Seen {
    fn new(look: Result<Look, FileError>, digest: [u8; 32]) -> Self {
        let settled = look.as_ref().is_ok_and(Look::is_settled);
        Self { look, digest, settled }
    }
}

/// Loads the world, and keeps it as the files are from then on: a look every
/// `every`, on a thread of its own. What is broken later changes nothing.
pub fn watch(
    folders: Folders,
    with_objects: bool,
    every: Duration,
    signs: Signs,
) -> Result<Arc<ArcSwap<World>>, FileError> {
    let look = folders.look();
    let files = look.as_ref().map_err(Clone::clone).and_then(Look::read);
    let digest = digest_files(&files);
    let seen = Seen::new(look, digest);
    let world = World::read(files?, with_objects)?;
    tell(None, &world, &signs);
    let shared = Arc::new(ArcSwap::from_pointee(world));
    let watched = shared.clone();
    std::thread::Builder::new()
        .name("files".to_owned())
        .spawn(move || keep(&folders, with_objects, every, seen, &signs, &watched))
        .map_err(|error| {
            let message = format!("cannot start a thread that looks at files: {error}; try again");
            FileError::whole("--files-poll", message)
        })?;
    Ok(shared)
}

fn keep(
    folders: &Folders,
    with_objects: bool,
    every: Duration,
    mut seen: Seen,
    signs: &Signs,
    shared: &ArcSwap<World>,
) -> ! {
    loop {
        std::thread::sleep(every);
        // Half of a change must not be taken for all of it: a file that is
        // being written has lost its last policies for a moment.
        let moment = || std::thread::sleep(every.min(Duration::from_millis(100)));
        let Some(files) = changed(folders, &mut seen, moment) else { continue };
        match files.and_then(|files| World::read(files, with_objects)) {
            Ok(world) => {
                tell(Some(&shared.load()), &world, signs);
                shared.store(Arc::new(world));
            }
            Err(error) => {
                signs.metrics.files_broken();
                signs.good.set(false);
                tracing::error!(%error, "a file is broken; what was read last stays in use");
            }
        }
    }
}

/// The files, if they are not what was seen, and are still so a moment later.
/// An error is compared by its words: one that stays is told of once.
fn changed(
    folders: &Folders,
    seen: &mut Seen,
    moment: impl FnOnce(),
) -> Option<Result<Vec<File>, FileError>> {
    let look = folders.look();
    if seen.settled && look == seen.look {
        return None;
    }
    let read =
        |look: &Result<Look, FileError>| look.as_ref().map_err(Clone::clone).and_then(Look::read);
    let found = digest_files(&read(&look));
    if found == seen.digest {
        *seen = Seen::new(look, found);
        return None;
    }
    moment();
    let look = folders.look();
    let files = read(&look);
    if digest_files(&files) != found {
        return None;
    }
    *seen = Seen::new(look, found);
    Some(files)
}

fn digest_files(files: &Result<Vec<File>, FileError>) -> [u8; 32] {
    let texts = files.as_ref().map_err(ToString::to_string);
    digest(
        &texts.map(|files| files.iter().map(|file| (&file.name, &file.text)).collect::<Vec<_>>()),
    )
}

/// Says what was loaded, and loudly where belay refuses less than before.
fn tell(before: Option<&World>, world: &World, signs: &Signs) {
    signs.metrics.files_loaded();
    signs.good.set(true);
    let World { graph, notes, .. } = world;
    tracing::info!(
        policies = notes.policies,
        approvals = notes.approvals,
        pauses = notes.pauses,
        relations = notes.relations,
        objects = graph.objects(),
        edges = graph.edges(),
        "files loaded"
    );
    if !notes.unknown.is_empty() {
        let kinds = notes.unknown.join(", ");
        tracing::warn!(
            kinds,
            "these kinds are not known; a policy names them by API group and plural, lower case"
        );
    }
    let had = before.map_or(1, |before| before.notes.policies);
    if notes.policies == 0 && had > 0 {
        tracing::warn!("there is no policy in the files: only the label belay.dev/protect counts");
    }
    for pause in &world.policies.pauses {
        let PausedBy { name, by, .. } = pause;
        tracing::warn!(
            pause = name,
            by,
            until = pause.until(),
            "belay is paused: nothing is refused until then"
        );
    }
    if !notes.guessed.is_empty() {
        let kinds = notes.guessed.join(", ");
        tracing::info!(kinds, "no CRD says the plural of these kinds; it is a guess");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    #[test]
    fn a_change_counts_once_it_is_over_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        write(&file, "a: 1").unwrap();
        let folders = Folders(vec![folder.path().to_owned()]);
        let look = folders.look();
        let found = digest_files(&look.as_ref().unwrap().read());
        let mut seen = Seen::new(look, found);
        let never = || panic!("nothing has changed");
        assert!(changed(&folders, &mut seen, never).is_none());
        // Written again with the same bytes it is the same.
        write(&file, "a: 1").unwrap();
        assert!(changed(&folders, &mut seen, never).is_none());

        write(&file, "a: 2\nb").unwrap();
        let goes_on = || write(&file, "a: 2\nb: 3").unwrap();
        assert!(changed(&folders, &mut seen, goes_on).is_none());
        let files = changed(&folders, &mut seen, || {}).unwrap().unwrap();
        assert_eq!(files[0].text, "a: 2\nb: 3");
        assert!(changed(&folders, &mut seen, never).is_none());

        std::fs::remove_dir_all(folder.path()).unwrap();
        let error = changed(&folders, &mut seen, || {}).unwrap().map(drop).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
        assert!(changed(&folders, &mut seen, never).is_none(), "an error that stays");
    }
}
