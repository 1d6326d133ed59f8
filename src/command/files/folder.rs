//! Finds the files in folders, and reads them.

use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::FileError;
use super::documents::File;

/// The maximum size of a file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The resolution of file times. A file that changed more recently may change again without a
/// new time.
const TICK_SECONDS: u64 = 2;

/// The files and folders that the user names on the command line.
#[derive(Debug, Clone)]
pub struct Folders(pub Vec<PathBuf>);

/// The files, and their metadata without their content.
#[derive(Debug, PartialEq, Eq)]
pub struct FileListing {
    files: Vec<(PathBuf, FileStamp)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    /// Device and inode: they differ if a link points to another file.
    identity: (u64, u64),
    length: u64,
    modified: (i64, i64),
    /// The time of the last change of the inode. Unlike `modified`, users can't set it.
    changed: (i64, i64),
}

impl Folders {
    /// Whether the user named no file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists the files. The order depends only on their names.
    pub fn list(&self) -> Result<FileListing, FileError> {
        let mut finder = FileFinder::default();
        for path in &self.0 {
            finder.add(path, true)?;
        }
        Ok(FileListing { files: finder.found })
    }
}

impl FileListing {
    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Reads all files.
    pub fn read(&self) -> Result<Vec<File>, FileError> {
        self.files.iter().map(|(path, _)| read(path)).collect()
    }

    /// Whether an equal listing later shows that nothing has changed.
    pub fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let limit = now.as_secs().saturating_sub(TICK_SECONDS);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.files.iter().all(|(_, stamp)| stamp.changed.0 < limit)
    }
}

#[derive(Default)]
struct FileFinder {
    found: Vec<(PathBuf, FileStamp)>,
    /// Files and folders by identity. A file with several links is read once, and a link to
    /// a parent folder is not followed.
    seen: HashSet<(u64, u64)>,
}

impl FileFinder {
    /// Adds a file, or the files in a folder. `named`: whether the user named the path.
    fn add(&mut self, path: &Path, named: bool) -> Result<(), FileError> {
        // `metadata` follows links, because the files of a mounted ConfigMap are links into ..data.
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            // This is a broken link without the extension of a manifest.
            Err(_) if !named && !has_extension(path) => return Ok(()),
            Err(error) => return Err(unreadable(path, &error)),
        };
        let identity = (metadata.dev(), metadata.ino());
        let is_wanted = metadata.is_dir() || named || has_extension(path);
        if !is_wanted || self.seen.contains(&identity) {
            return Ok(());
        }
        if metadata.is_dir() {
            self.seen.insert(identity);
            let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let mut entries = entries.map_err(|error| unreadable(path, &error))?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                // Hidden files are copies of editors, .git, and the ..data of a mounted ConfigMap.
                if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                    self.add(&entry.path(), false)?;
                }
            }
            return Ok(());
        }
        if !metadata.is_file() {
            let message = "this is neither a file nor a folder";
            return if named { Err(file_error(path, message)) } else { Ok(()) };
        }
        self.seen.insert(identity);
        let stamp = FileStamp {
            identity,
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        self.found.push((path.to_owned(), stamp));
        Ok(())
    }
}

/// Whether a path can be read only once and in order: a pipe, such as the shell's `<(…)`,
/// or a device.
pub(super) fn is_stream(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device())
}

fn has_extension(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
}

/// Reads a file or a stream.
pub(super) fn read(path: &Path) -> Result<File, FileError> {
    let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    read_text(&path.display().to_string(), file)
}

/// Reads a text to its end. `name` is for error messages.
pub(super) fn read_text(name: &str, text: impl Read) -> Result<File, FileError> {
    let mut bytes = Vec::new();
    // Reading one byte more than the limit detects a file that is too large, also if it has just
    // grown.
    let read = text.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(Path::new(name), &error))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(FileError::about_file(name, "this file is larger than 64 MiB; split it"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("line {line} is not UTF-8; save the file in that encoding");
        FileError::about_file(name, message)
    })?;
    Ok(File { name: name.into(), text })
}

fn file_error(path: &Path, message: &str) -> FileError {
    FileError::about_file(&path.display().to_string(), message)
}

fn unreadable(path: &Path, error: &std::io::Error) -> FileError {
    let message = format!("this cannot be read ({error}); check the path and its permissions");
    // If the path does not exist, the user probably mistyped it.
    let is_missing = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    FileError { unread: !is_missing, ..file_error(path, &message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(folders: &[&Path]) -> Vec<String> {
        let listing = Folders(folders.iter().map(|p| p.to_path_buf()).collect()).list().unwrap();
        let root = folders[0];
        let name = |p: &Path| p.strip_prefix(root).unwrap_or(p).display().to_string();
        listing.files.iter().map(|(path, _)| name(path)).collect()
    }

    #[test]
    fn files_are_listed_in_a_stable_order_without_hidden_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["b.yaml", "a.yml", "sub/c.json", ".d.yaml", ".git/e.yaml", "f.txt"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(names(&[root]), ["a.yml", "b.yaml", "sub/c.json"]);
        // A file that is named twice is read once. A named file is always read.
        let text = root.join("f.txt");
        assert_eq!(names(&[root, &root.join("sub"), &text]).len(), 4);
        // A link to a parent folder would be followed forever.
        symlink(root, root.join("sub/up")).unwrap();
        assert_eq!(names(&[root]), ["a.yml", "b.yaml", "sub/c.json"]);
        // Broken links and links to devices are skipped. A broken link with the name of a manifest
        // is an error.
        symlink("nowhere", root.join("lock")).unwrap();
        symlink("/dev/null", root.join("masked.yaml")).unwrap();
        assert_eq!(names(&[root]), ["a.yml", "b.yaml", "sub/c.json"]);
        let device = Folders(vec!["/dev/null".into()]).list().unwrap_err().to_string();
        assert!(device.ends_with("this is neither a file nor a folder"));
        symlink("nowhere", root.join("lost.yaml")).unwrap();
        assert!(Folders(vec![root.to_owned()]).list().is_err());
        let missing = Folders(vec![root.join("nowhere")]).list().unwrap_err().to_string();
        assert!(missing.contains("nowhere: this cannot be read"), "{missing}");
    }

    #[test]
    fn a_mounted_config_map_is_read_once_and_its_swap_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (version, text) in [("..one", "a: 1"), ("..two", "a: 2")] {
            fs::create_dir(root.join(version)).unwrap();
            fs::write(root.join(version).join("p.yaml"), text).unwrap();
        }
        symlink("..one", root.join("..data")).unwrap();
        symlink("..data/p.yaml", root.join("p.yaml")).unwrap();
        let folders = Folders(vec![root.to_owned()]);
        let before = folders.list().unwrap();
        assert_eq!(names(&[root]), ["p.yaml"]);
        assert_eq!(before, folders.list().unwrap());
        symlink("..two", root.join("..new")).unwrap();
        fs::rename(root.join("..new"), root.join("..data")).unwrap();
        let after = folders.list().unwrap();
        assert_ne!(before, after);
        assert_eq!(after.read().unwrap()[0].text, "a: 2");
    }

    /// Two writes within a tick of the clock leave one stamp.
    #[test]
    fn a_stamp_is_trusted_once_it_is_old() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), "").unwrap();
        let mut listing = Folders(vec![folder.path().to_owned()]).list().unwrap();
        assert!(!listing.is_settled());
        listing.files[0].1.changed.0 -= 60;
        assert!(listing.is_settled());
    }

    #[test]
    fn files_that_are_too_large_or_not_utf8_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let message = |name: &str| {
            let path = folder.path().join(name);
            read(&path).map(|_| ()).unwrap_err().to_string().replace(path.to_str().unwrap(), "f")
        };
        // A sparse file takes no disk space.
        let large = fs::File::create(folder.path().join("large")).unwrap();
        large.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert_eq!(message("large"), "f: this file is larger than 64 MiB; split it");
        large.set_len(MAX_FILE_BYTES).unwrap();
        assert!(read(&folder.path().join("large")).is_ok());
        fs::write(folder.path().join("latin"), b"a: 1\nb: \xe9\n").unwrap();
        assert_eq!(message("latin"), "f: line 2 is not UTF-8; save the file in that encoding");
    }
}
