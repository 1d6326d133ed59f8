//! The image, built as `make image` builds it, and its program, run in the image's own
//! root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A test that needs a missing tool prints the tool and ends. `make test` installs the
/// tools where it may.
fn something_is_missing() -> bool {
    let missing = if Command::new("buildah").arg("--version").output().is_err() {
        Some("buildah is not installed")
    } else {
        // It mounts the image and runs the program in another root.
        (!rustix::process::geteuid().is_root()).then_some("only root may mount and chroot")
    };
    if let Some(what) = missing {
        eprintln!("{what}: the image is not tested");
    }
    missing.is_some()
}

/// A store of images for this test.
struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display();
        let configuration = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{place}/graph\"\nrunroot = \"{place}/run\"\n"
        );
        std::fs::write(folder.path().join("storage.conf"), configuration).unwrap();
        Self { folder }
    }

    fn run(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> String {
        let output = Command::new(&program)
            .args(args)
            .env("CONTAINERS_STORAGE_CONF", self.folder.path().join("storage.conf"))
            .env("STORAGE_DRIVER", "vfs")
            .env("BUILDAH_ISOLATION", "chroot")
            .env("BUILDER", "buildah")
            // A release build takes minutes, and the optimisation does not change the
            // result of this test.
            .env("PROFILE", "dev")
            // `make test` sets it; with it cargo would build everything again.
            .env_remove("RUSTC_BOOTSTRAP")
            .env("IMAGE", "localhost/belay")
            .env("TAG", "test")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?} {args:?}: {said}", program.as_ref());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// The output of `image/build` with stubs that only print their arguments, and with a
/// release of this size.
fn pretended(folder: &Path, status: &str, profile: &str, bytes: u64) -> Output {
    use std::os::unix::fs::PermissionsExt as _;
    let status = format!("case $1 in rev-parse) echo abc ;; status) printf '{status}' ;; esac");
    let built = format!(
        "case $1 in rustc) for folder in debug release; do\n\
         mkdir -p $CARGO_TARGET_DIR/$folder\n\
         truncate --size={bytes} $CARGO_TARGET_DIR/$folder/belay; done ;;\nesac"
    );
    for (name, script) in [("git", &*status), ("cargo", &built), ("buildah", "echo \"$@\"")] {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let paths = std::env::var("PATH").unwrap();
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("image/build"))
        .env("PATH", format!("{}:{paths}", folder.display()))
        .env("CARGO", folder.join("cargo"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("BUILDER", "buildah")
        .env("PROFILE", profile)
        .output()
        .unwrap()
}

#[test]
fn an_image_of_uncommitted_changes_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let said = |status: &str| {
        let output = pretended(folder.path(), status, "dev", 0);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let clean = said("");
    assert!(clean.contains("REVISION=abc --tag"), "{clean}");
    let dirty = said(" M src/lib.rs");
    assert!(dirty.contains("REVISION=abc-dirty --tag"), "{dirty}");
}

/// The maximum size applies to a release. A release takes minutes to build, so `make image`
/// checks its size, and this test checks that it does.
#[test]
fn no_image_is_made_of_a_release_that_has_grown_too_large() {
    for (profile, bytes, made) in
        [("release", 39_999_999, true), ("release", 40_000_000, false), ("dev", 40_000_000, true)]
    {
        let folder = tempfile::tempdir().unwrap();
        let output = pretended(folder.path(), "", profile, bytes);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), made, "{profile} with {bytes} bytes: {said}");
        assert_eq!(said.contains("under 40 MB"), !made, "{said}");
        assert_eq!(said.contains("--tag"), made, "{said}");
    }
}

#[test]
fn the_image_is_one_static_program_that_runs_from_an_empty_root() {
    if something_is_missing() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let store = Store::new();
    let said = store.run(root.join("image/build"), &[]);
    assert!(said.contains("localhost/belay:test, made by buildah"), "{said}");

    let inspected = store.run("buildah", &["inspect", "--type=image", "localhost/belay:test"]);
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    let config = &inspected["OCIv1"]["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], serde_json::json!(["/belay"]));
    let labels = &config["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");
    assert_eq!(inspected["OCIv1"]["rootfs"]["diff_ids"].as_array().unwrap().len(), 1);

    let container = store.run("buildah", &["from", "--pull-never", "localhost/belay:test"]);
    let mounted = PathBuf::from(store.run("buildah", &["mount", &container]));
    let mut files: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&mounted).unwrap() {
        files.push(entry.unwrap().file_name().into_string().unwrap());
    }
    assert_eq!(files, ["belay"], "the image has more in it than the program");

    // An account without a name, and a root with no other files.
    let here = mounted.display().to_string();
    let chroot = |args: &[&str]| {
        let all = [&["--userspec=65532:65532", &here, "/belay"], args].concat();
        store.run("chroot", &all)
    };
    assert_eq!(chroot(&["--version"]), concat!("belay ", env!("CARGO_PKG_VERSION")));
    assert!(chroot(&["admin", "crds"]).contains("deletionpolicies.belay.dev"));
    store.run("buildah", &["umount", &container]);

    let folder = std::env::var("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let bill = std::fs::read_to_string(folder.join("image/belay.cdx.json")).unwrap();
    let bill: Value = serde_json::from_str(&bill).unwrap();
    assert_eq!(
        bill["metadata"]["component"]["purl"],
        concat!("pkg:cargo/kube-belay@", env!("CARGO_PKG_VERSION"))
    );
    let named =
        |name: &str| bill["components"].as_array().unwrap().iter().any(|c| c["name"] == name);
    assert!(named("rustls") && named("kube"), "what the program is made of is missing");
    // Dependencies only of tests.
    assert!(!named("stateright") && !named("criterion"), "what only tests need is in the bill");
    let rustls = bill["components"].as_array().unwrap().iter().find(|c| c["name"] == "rustls");
    assert_eq!(rustls.unwrap()["hashes"][0]["alg"], "SHA-256");
}
