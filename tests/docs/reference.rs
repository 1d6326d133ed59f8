//! docs/cli.md is what the program says of itself.
//!
//! `BELAY_WRITE_DOCS=1 cargo test --test docs reference` writes it anew.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const INTRODUCTION: &str = "\
# The command line

This page is made from the definitions of the arguments, and a test holds it to them (`tests/docs/reference.rs`).
`belay` and `kubectl belay` are the same program.

What the commands of people share:

- They go where kubectl would go: the kubeconfig of `KUBECONFIG`, or `--kubeconfig`, `--context`, `--as`.
- `-o json` and `-o yaml` print one document with `apiVersion: belay.dev/v1alpha1` and a `kind`; nothing is left out of
  it. [json.md](json.md) has every field of every kind, what may change within a version, and which commands have no
  `-o`.
- `-n` names a namespace and `-A` all of them, wherever a command may be about several. Where neither is said they go by
  the namespace of the context, as kubectl does; `approvals` and `denials` tell of all objects, because approvals and
  policies stand outside of namespaces themselves.
- Tables are for people: on a terminal the last column is wrapped, colour is never the only sign (and none with
  `NO_COLOR` or `TERM=dumb`), long lists are cut with their count. In a pipe nothing is wrapped.
- What could not be read is said. A missing right never makes an answer look complete.
- They exit with 0 if all is well, 1 for no or for something found, 2 for arguments that do not fit, 3 for what could
  not be determined.
";

/// What the program says of a command. What the writer's environment says is
/// nobody else's.
fn help(of: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
    let output = command.env_clear().env("COLUMNS", "100").args(of).arg("--help").output().unwrap();
    assert!(output.status.success(), "belay {of:?} --help: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names below `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn tell(of: &[String], page: &mut String) {
    let help = help(of);
    let name = [&["belay".to_owned()], of].concat().join(" ");
    let _ = write!(page, "\n## {name}\n\n```text\n");
    for line in help.lines() {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    page.push_str("```\n");
    for subcommand in subcommands(&help) {
        tell(&[of, &[subcommand]].concat(), page);
    }
}

#[test]
fn the_reference_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let mut page = INTRODUCTION.to_owned();
    tell(&[], &mut page);
    for command in ["belay stuck", "belay why", "belay admin crds", "belay completion"] {
        assert!(page.contains(&format!("\n## {command}\n")), "{command}: {page}");
    }
    if std::env::var_os("BELAY_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(page.lines()).find(|(written, page)| written != page);
    assert!(
        written == page,
        "docs/cli.md is not what the program says ({differs:?}); next: BELAY_WRITE_DOCS=1 cargo \
         test --test docs reference"
    );
}
