//! `-o dot`, `-o mermaid` and `-o html`, on a folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{assert_snapshot, belay, fed};
use crate::harness::is_long;
use crate::harness::manifest::{Manifest as _, config_map, documents, object, secret};

/// The command of the picture in the README.
const README: &str =
    "impact secret/db-creds service/web pvc/data-postgres-0 -n shop --from . -o html";

/// A colour, the fate that has it, and a command whose page contains it.
const COLOURS: [([u8; 3], &str, &str); 4] = [
    ([0xff, 0xdf, 0xc4], "broken", README),
    ([0xd5, 0xec, 0xff], "held", README),
    ([0xe6, 0xea, 0xef], "deleted", README),
    ([0xff, 0xd4, 0xd1], "destroyed", "impact ns/shop --from . -o html"),
];

#[test]
fn the_graphs_of_a_namespace_and_of_a_volume() {
    assert_snapshot("namespace.dot", 1, "impact ns/shop --from . -o dot");
    assert_snapshot("namespace.mmd", 1, "impact ns/shop --from . -o mermaid");
    assert_snapshot("claim.mmd", 1, "impact pvc data-postgres-0 -n shop --from . -o mermaid");
    assert_snapshot("used-by.dot", 1, "used-by pv/pvc-1f2a --from . --depth 2 --all -o dot");
    assert_snapshot("uses.mmd", 0, "used-by sts/postgres -n shop --from . --reverse -o mermaid");
}

/// `BELAY_WRITE_DOCS=1 cargo test --test cli readme` writes the picture.
#[test]
fn the_picture_of_the_readme_is_what_the_command_draws() {
    let page = belay(README).stdout;
    let (begin, end) = (page.rfind("<svg xmlns").unwrap(), page.rfind("</svg>").unwrap());
    let svg = format!("{}</svg>\n", &page[begin..end]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/impact.svg");
    if std::env::var_os("BELAY_WRITE_DOCS").is_some() {
        std::fs::write(&path, &svg).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == svg,
        "docs/impact.svg is not what the command draws; next: BELAY_WRITE_DOCS=1 cargo test --test \
         cli readme"
    );
}

#[test]
fn a_comment_has_a_graph_with_at_most_40_boxes() {
    let of = |count: usize| {
        let maps = (0..count).map(|n| config_map(&format!("m{n}")).with_namespace("shop"));
        let secrets = (0..20).map(|n| secret(&format!("s{n}")).with_namespace("shop"));
        let namespace = object("v1", "Namespace", "shop");
        let all: Vec<_> = maps.chain(secrets).chain([namespace]).collect();
        let text = fed("impact ns/shop --from - -o markdown", &documents(&all)).stdout;
        let (_, graph) = text.split_once("```mermaid\n").unwrap();
        let (graph, _) = graph.split_once("```").unwrap();
        (graph.matches("<br/>").count(), graph.contains("configmap #215; 20"))
    };
    assert_eq!(of(19), (40, false));
    assert_eq!(of(20), (22, true));
    let alone = documents(&[config_map("m").with_namespace("shop")]);
    let alone = fed("impact cm/m -n shop --from - -o markdown", &alone).stdout;
    assert!(!alone.contains("mermaid") && alone.contains("configmap/m"), "{alone}");
}

#[test]
fn a_graph_of_a_deletion_needs_a_dry_run() {
    let refused = belay("delete ns/shop --yes -o html");
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
    assert!(refused.stderr.contains("add --dry-run=server"), "{refused:?}");
}

/// The program of Debian's package chromium.
fn chromium() -> PathBuf {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut installed = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    named.or_else(|| installed.find(|program| program.exists())).expect(
        "chromium is not installed, so the page was not opened in a browser; next: apt-get install \
         chromium, or set CHROMIUM to a program",
    )
}

/// Runs Chromium without a window, and returns its output.
fn browse(folder: &Path, page: &str, args: &[&str]) -> (String, String) {
    let file = folder.join("page.html");
    std::fs::write(&file, page).unwrap();
    let output = Command::new(chromium())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--window-size=1800,1400", "--hide-scrollbars"])
        .args(args)
        .arg(format!("file://{}", file.display()))
        .env("HOME", folder)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr))
}

/// The number of pixels of a screenshot with this colour.
fn pixels(folder: &Path, colour: [u8; 3]) -> usize {
    let bytes = std::fs::read(folder.join("page.png")).unwrap();
    let header = minipng::decode_png_header(&bytes).unwrap();
    let mut buffer = vec![0; header.required_bytes_rgba8bpc()];
    let mut image = minipng::decode_png(&bytes, &mut buffer).unwrap();
    image.convert_to_rgba8bpc().unwrap();
    image.pixels().chunks_exact(4).filter(|pixel| pixel[..3] == colour).count()
}

/// Part of `make test-long`.
#[test]
fn chromium_draws_the_page_and_runs_its_script_alone() {
    if !is_long() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (colour, fate, command) in COLOURS {
        let page = belay(command).stdout;
        let (_, log) = browse(folder.path(), &page, &["--screenshot=page.png"]);
        assert!(!log.contains("CONSOLE"), "{log}");
        let count = pixels(folder.path(), colour);
        assert!(count > 2000, "{fate}: {count} pixels");
    }
    let page = belay(README).stdout;
    // The script has shown the controls.
    let (dom, _) = browse(folder.path(), &page, &["--dump-dom"]);
    assert!(dom.contains("<div class=\"controls\">"), "{dom}");
    // The policy stops another script, and an image from a server.
    let evil = "<script>document.title = 'taken'</script><img src=\"http://127.0.0.1:9/x\"/>";
    let evil = page.replace("<ul class=\"legend\">", &format!("{evil}<ul class=\"legend\">"));
    let (dom, log) = browse(folder.path(), &evil, &["--dump-dom"]);
    assert!(!dom.contains("<title>taken"), "{dom}");
    assert_eq!(log.matches("Content Security Policy").count(), 2, "{log}");
}
