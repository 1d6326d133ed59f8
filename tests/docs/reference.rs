//! docs/cli.md contains the help of all commands.
//!
//! `BELAY_WRITE_DOCS=1 cargo test --test docs reference` writes the page.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const INTRODUCTION: &str = "\
# The command line

This page is generated from the definitions of the arguments; `tests/docs/reference.rs` compares them. `belay` and
`kubectl belay` are the same program.

These rules apply to the commands for people:

- They connect like kubectl: with the kubeconfig of `KUBECONFIG`, or with `--kubeconfig`, `--context`, `--as`.
- `-o json` and `-o yaml` print one complete document with `apiVersion: belay.dev/v1alpha1` and a `kind`. [json.md](json.md)
  describes each field, which changes are compatible, and which commands have no `-o`.
- `-o name` prints one object a line, as arguments for kubectl, and failed reads on standard error. `-o wide` prints a
  table with more details. `--watch` prints the answer again when it changes, and ends with Ctrl-C.
- In a sentence, an object is `PersistentVolumeClaim db/data`. In commands, lists, trees, steps and progress it is
  `pvc/data -n db`, which kubectl accepts. Denials and errors begin with kubectl's form: `persistentvolumeclaim \"data\"`.
- `-n` names a namespace, and `-A` means all namespaces. Without them a command uses the namespace of the context, like
  kubectl. `approvals` and `denials` then report all objects, because approvals and policies are cluster-scoped.
- Tables are for people. On a terminal belay wraps text between words and commands, never inside a command to copy. It
  cuts long lists, with their count, and `stuck` groups objects by cause; `--all` shows everything. In a pipe belay wraps
  and cuts nothing. A reason names at most three objects and the number of the others, as in a denial; `used-by` lists all
  of them. Colour never carries information alone; `NO_COLOR` and `TERM=dumb` disable it.
- The commands don't read the arguments of `belay serve`. They assume the defaults of `--labelled-kinds` (`labelledKinds` in
  the chart) and `--control-plane`. A verdict in a cluster comes from belay itself, by a dry run, so it is right with other
  values as well.
- belay reports failed reads. An answer with missing permissions never looks complete.
- Exit codes: 0 for success, 1 for a negative answer or a finding, 2 for wrong arguments, 3 for an unknown result, also
  if an object that you name does not exist. `kubectl belay delete` then exits with 1, like `kubectl delete`.
";

/// The help of a command, independent of the environment of the test.
pub fn help(of: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
    let output = command.env_clear().env("COLUMNS", "100").args(of).arg("--help").output().unwrap();
    assert!(output.status.success(), "belay {of:?} --help: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names below `Commands:`.
pub fn subcommands(help: &str) -> Vec<String> {
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
fn the_reference_matches_the_help() {
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
