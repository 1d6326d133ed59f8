//! The output on a terminal, and its absence in a pipe. The tests use a pseudo-terminal, as
//! a shell would.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use crate::harness::manifest::{self, Manifest as _, config_map};
use crate::harness::{ControlPlane, eventually};
use crate::offline::{self, folder};
use crate::{LIMIT, belay, belay_as, kubectl, policy, world};

/// A terminal of so many columns.
struct Terminal {
    columns: u16,
    rows: u16,
    environment: Vec<(&'static str, String)>,
}

impl Terminal {
    fn of(columns: u16) -> Self {
        Self { columns, rows: 24, environment: vec![("TERM", "xterm".to_owned())] }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// The output of the program on the terminal, and its exit code.
    fn shows(&self, line: &str) -> (String, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-belay"));
        self.runs(command.args(line.split_whitespace()), "")
    }

    /// Runs a program in a terminal with this typed input.
    fn runs(&self, command: &mut Command, typed: &str) -> (String, i32) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
        let mut options = OpenOptions::new();
        let flags = rustix::fs::OFlags::NOCTTY.bits().try_into().unwrap();
        let slave = options.read(true).write(true).custom_flags(flags).open(path).unwrap();
        let size = Winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut child = command
            .current_dir(folder("world"))
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        drop(slave);
        // A Command keeps its file descriptors for the next child.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (mut shown, mut piece, mut master) = (Vec::new(), [0; 4096], File::from(master));
        master.write_all(typed.as_bytes()).unwrap();
        // The terminal ends with its last writer, which is an error here.
        while let Ok(count @ 1..) = master.read(&mut piece) {
            shown.extend_from_slice(&piece[..count]);
        }
        let code = child.wait().unwrap().code().unwrap();
        (String::from_utf8(shown).unwrap().replace("\r\n", "\n"), code)
    }
}

/// What a command shows on a terminal where a user types this, and its exit code.
pub fn answer(plane: &ControlPlane, line: &str, typed: &str) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-belay"));
    command.args(line.split_whitespace()).arg("--kubeconfig").arg(plane.kubeconfig());
    Terminal::of(200).runs(&mut command, typed)
}

#[test]
fn protection_is_removed_only_after_a_yes() {
    let plane = &world().plane;
    for typed in ["no\n", "\n", "\u{4}"] {
        let (shown, code) = answer(plane, "admin uninstall", typed);
        assert_eq!(code, 1, "{shown}");
        for line in ["would delete: ", "would no longer apply: ", "This removes belay's "] {
            assert!(shown.contains(&format!("\n{line}")), "{line}: {shown}");
        }
        for says in ["Type yes to continue: ", "nothing was changed"] {
            assert!(shown.contains(says), "{says}: {shown}");
        }
        let (shown, code) = answer(plane, "pause --for 10m --reason INC-1", typed);
        assert_eq!(code, 1, "{shown}");
        assert!(shown.contains("belay will deny nothing in the whole cluster for 10m."), "{shown}");
    }
    assert_eq!(belay(plane, &["pause", "--end"]).stdout, "belay is not paused\n");
}

/// A text without the sequences that set colours.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    // On a slow machine, the line with the progress is shown, and cleared.
    let text = text.replace("\x1b[K", "");
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let (parameters, after) = after.split_once('m').unwrap();
        assert!(parameters.chars().all(|c| c.is_ascii_digit() || c == ';'), "{text:?}");
        rest = after;
    }
    plain + rest
}

const IMPACT: &str = "impact ns/shop --from .";

#[test]
fn colour_is_only_for_terminals_and_repeats_the_text() {
    let (coloured, code) = Terminal::of(200).shows(IMPACT);
    assert_eq!(code, 1);
    assert!(coloured.contains("\x1b[31mDENIED\x1b[0m"), "{coloured}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (silent, code) = Terminal::of(200).with(name, value).shows(IMPACT);
        assert_eq!((silent.as_str(), code), (plain(&coloured).as_str(), 1), "{name}={value}");
    }
    // An empty NO_COLOR counts as unset, by its convention.
    assert_eq!(Terminal::of(200).with("NO_COLOR", "").shows(IMPACT).0, coloured);
}

#[test]
fn removes_control_characters_from_texts_of_others() {
    // An error repeats typed text, and an answer repeats the name of a folder.
    let (error, code) = Terminal::of(200).shows("impact gi\x1b[2Jzmo/a --from .");
    assert_eq!(code, 3);
    assert!(error.contains("a kind \"gi [2Jzmo\"; ") && !error.contains('\x1b'), "{error:?}");
    let made = tempfile::tempdir().unwrap();
    let line = format!("admin certs --name a.b --cert-dir {}/a\x1b[2Jb", made.path().display());
    let (answer, code) = Terminal::of(200).shows(&line);
    assert_eq!(code, 0, "{answer:?}");
    assert!(answer.contains("/a [2Jb/tls.crt") && !answer.contains('\x1b'), "{answer:?}");
}

#[test]
fn bash_completes_what_bash_itself_takes_for_several_words() {
    if Command::new("bash").arg("--version").output().is_err() {
        return;
    }
    let bin = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(crate::program(), bin.path().join("belay")).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let bash =
        Terminal::of(200).with("PATH", path).with("TERM", "dumb").with("INPUTRC", "/dev/null");
    let completed = |before: &str, begun: &str| {
        // After the tab key, the line becomes a line that prints itself.
        let typed =
            format!("source <(belay completion bash)\n{before}\n{begun}\t\x01echo : \nexit\n");
        let mut shell = Command::new("bash");
        let (shown, _) = bash.runs(shell.args(["--norc", "--noprofile", "-i"]), &typed);
        let printed = shown.lines().find_map(|line| line.strip_prefix(": "));
        printed.map_or_else(|| panic!("{shown:?}"), str::to_owned)
    };
    for (begun, line) in [
        ("belay sta", "belay status"),
        ("belay why --output=j", "belay why --output=json"),
        ("belay why --outp", "belay why --output"),
        ("belay why -o y", "belay why -o yaml"),
        // With no cluster, the kinds that every cluster has.
        ("belay why --context=none secre", "belay why --context=none secrets"),
        ("belay impact secrets/a statef", "belay impact secrets/a statefulsets"),
        // bash takes a colon for a break as well.
        ("belay impact --filename=a:b -o js", "belay impact --filename=a:b -o json"),
    ] {
        assert_eq!(completed("", begun), line, "{begun}");
    }
    // If the user has removed = from bash's word breaks, the whole word is inserted.
    let line = completed("COMP_WORDBREAKS=' '", "belay why --output=j");
    assert_eq!(line, "belay why --output=json");
}

#[test]
fn completion_lists_kinds_and_namespaces_of_the_cluster() {
    let plane = &world().plane;
    let ns = plane.namespace("typed").unwrap();
    // It answers within a second, or is not waited for.
    let offered = |typed: &[&str], word: &str| {
        eventually(word, LIMIT, || {
            let said = belay(plane, &[&["completion", "words", "--"][..], typed].concat());
            match said.stdout.lines().any(|line| line == word) {
                true => Ok(()),
                false => Err(format!("{said:?}").into()),
            }
        })
        .unwrap();
    };
    offered(&["why", "-n", "typ"], &ns);
    offered(&["why", "deletionpol"], "deletionpolicies");
    kubectl(plane, &["create", "configmap", "settings-of-typed", "-n", &ns]);
    offered(&["why", "-n", &ns, "cm", "settings-"], "settings-of-typed");
    offered(&["impact", "--namespace", &ns, "cm/settings-"], "cm/settings-of-typed");
    offered(&["why", "namespaces", "typ"], &ns);
}

/// kubectl completes a plugin through an executable in the PATH.
#[test]
fn kubectl_completes_the_names_of_objects() {
    let plane = &world().plane;
    let ns = plane.namespace("complete").unwrap();
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let bin = tempfile::tempdir().unwrap();
    let script = bin.path().join("kubectl_complete-belay");
    std::fs::write(&script, belay(plane, &["completion", "kubectl"]).stdout).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_kubectl-belay"));
    std::os::unix::fs::symlink(program, bin.path().join("kubectl-belay")).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let completed = |words: &[&str], expected: &str| {
        eventually(expected, LIMIT, || {
            let output = Command::new(plane.binaries().join("kubectl"))
                .args(["__complete", "belay"])
                .args(words)
                .env("PATH", &path)
                .env("KUBECONFIG", plane.kubeconfig())
                .output()?;
            let shown = String::from_utf8(output.stdout)?;
            // The last line forbids names of files.
            match shown == format!("{expected}\n:4\n") {
                true => Ok(()),
                false => Err(shown.into()),
            }
        })
        .unwrap();
    };
    completed(&["sta"], "status");
    completed(&["why", "-n", &ns, "configmaps", "set"], "settings");
    completed(&["why", "-n", &ns, "cm/set"], "cm/settings");
    completed(&["release", "-n", &ns, "cm", "settin"], "settings");
}

#[test]
fn lines_keep_to_the_width_of_the_terminal() {
    for columns in [60, 100, 160] {
        let shown = plain(&Terminal::of(columns).shows(IMPACT).0);
        let wide = usize::from(columns);
        // A command to copy stays on one line.
        let is_text = |line: &&str| !line.contains("kubectl belay approve");
        for line in shown.lines().filter(|line| line.width() > wide).filter(is_text) {
            // Half a name is of no use, so one word may be longer than its line.
            let last = line.trim_end().rsplit(' ').next().unwrap();
            assert!(line.width() - last.width() < wide, "{columns}: {line:?} in\n{shown}");
        }
        let more = plain(&Terminal::of(columns + 40).shows(IMPACT).0);
        assert!(more.lines().count() <= shown.lines().count(), "{columns}:\n{shown}\n{more}");
    }
    // The header of several targets.
    for columns in [50, 80] {
        let line = "impact sts/postgres secret/db-creds pvc/data-postgres-0 -n shop --from .";
        let shown = plain(&Terminal::of(columns).shows(line).0);
        let header = shown.lines().take_while(|line| !line.starts_with("  deleted"));
        let wide: Vec<_> = header.filter(|line| line.width() > usize::from(columns)).collect();
        assert!(wide.is_empty(), "{columns}: {wide:?} in\n{shown}");
    }
    let rowless = Terminal { rows: 0, ..Terminal::of(160) };
    assert_eq!(rowless.shows(IMPACT), Terminal::of(160).shows(IMPACT));
    // COLUMNS overrides the width of the terminal.
    let narrow = Terminal::of(200).with("COLUMNS", "60").shows(IMPACT).0;
    assert_eq!(narrow, Terminal::of(60).shows(IMPACT).0);
}

#[test]
fn commands_are_whole_and_lists_are_cut_on_a_terminal_only() {
    let piped = offline::belay(IMPACT).stdout;
    assert!(!piped.contains("more:"), "{piped}");
    for columns in [40, 80, 160] {
        let shown = plain(&Terminal::of(columns).shows(IMPACT).0);
        let command = "kubectl belay approve namespaces/shop --reason \"…\"\n";
        assert!(shown.contains(command), "{columns}:\n{shown}");
        let rest = "4 more: ingress 1, secret 1, service 1, other 1  --all\n";
        assert!(shown.contains(rest), "{columns}:\n{shown}");
        let all = plain(&Terminal::of(columns).shows(&format!("{IMPACT} --all")).0);
        assert!(!all.contains("more:"), "{all}");
    }
}

#[test]
fn long_work_shows_progress_on_a_terminal_and_not_in_a_pipe() {
    let plane = &world().plane;
    let ns = plane.namespace("far").unwrap();
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let (link, kubeconfig) = plane.link(plane.kubeconfig(), "far").unwrap();
    link.slow(Duration::from_millis(150));
    let line = format!("impact ns/{ns}");
    let terminal = Terminal::of(100).with("KUBECONFIG", kubeconfig.display().to_string());
    let (shown, _) = terminal.shows(&line);
    let parts: Vec<&str> = shown.split("\r\x1b[K").collect();
    let [_, told @ .., answer] = &parts[..] else { panic!("{shown:?}") };
    assert!(!told.is_empty(), "{shown:?}");
    for said in told {
        assert!(said.starts_with("reading ") && said.ends_with(" objects"), "{said:?}");
    }
    // The progress line is cleared before the answer.
    assert!(plain(answer).starts_with(&format!("DELETE namespace/{ns} ")), "{shown:?}");

    let piped = belay_as(&kubeconfig, &["impact", &format!("ns/{ns}")]);
    assert_eq!(piped.stderr, "", "{piped:?}");
    assert!(!piped.stdout.contains('\x1b') && !piped.stdout.contains('\r'), "{piped:?}");
}

/// The commands of a text in a pipe, where no line is broken.
fn commands(piped: &str) -> Vec<&str> {
    let found = piped.match_indices("kubectl ").map(|(at, _)| &piped[at..]);
    let ends = |text: &str| [". ", " (", "; ", "\n"].iter().filter_map(|end| text.find(end)).min();
    found.map(|text| &text[..ends(text).unwrap_or(text.len())]).collect()
}

#[test]
fn why_denials_and_stuck_are_readable_at_every_width() {
    let plane = &world().plane;
    let ns = plane.namespace("wide").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    kubectl(plane, &["create", "configmap", "settings-of-the-shop", "-n", &ns]);
    let pod = manifest::reader("web", "configMapRef", "settings-of-the-shop").with_namespace(&ns);
    plane.apply(&pod).unwrap();
    let delete = ["delete", "configmap", "settings-of-the-shop", "-n", &ns];
    plane.kubectl(&delete).unwrap().failure().unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        let object = config_map(name).with_namespace(&ns).with_finalizers(&["x.example.test/y"]);
        plane.apply(&object).unwrap();
        kubectl(plane, &["delete", "configmap", name, "-n", &ns, "--wait=false"]);
    }
    let listed = format!("denials -n {ns}");
    eventually("the denial", LIMIT, || {
        let output = belay(plane, &["denials", "-n", &ns]);
        if output.code == 1 { Ok(()) } else { Err(output.stdout.into()) }
    })
    .unwrap();
    let stuck = format!("stuck -n {ns} --longer-than 1s");
    eventually("late objects", LIMIT, || {
        let output = belay(plane, &stuck.split(' ').collect::<Vec<_>>());
        if output.stdout.lines().count() > 10 { Ok(()) } else { Err(output.stdout.into()) }
    })
    .unwrap();
    let why = format!("why configmap/settings-of-the-shop -n {ns}");
    for line in [why, listed, stuck] {
        let piped = belay(plane, &line.split(' ').collect::<Vec<_>>()).stdout;
        let found = commands(&piped);
        assert!(!found.is_empty(), "{line}: {piped}");
        for columns in [50, 80, 160] {
            let kubeconfig = plane.kubeconfig().display().to_string();
            let terminal = Terminal::of(columns).with("KUBECONFIG", kubeconfig);
            let shown = plain(&terminal.shows(&line).0);
            let lines = || shown.lines().map(|line| line.rsplit('\r').next().unwrap());
            for long in lines().filter(|line| line.width() > usize::from(columns)) {
                // A command or a single word.
                let text = long.trim_start().trim_start_matches("\x1b[K");
                let whole = text.starts_with("kubectl ") || !text.contains(' ');
                assert!(whole, "{columns}: {long:?} in\n{shown}");
            }
            if line.starts_with("stuck") {
                let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
                let cause = "5 objects: a finalizer whose controller was not found";
                assert!(words.contains(cause), "{shown}");
                assert!(shown.contains("… and 2 more objects with this cause; --all"), "{shown}");
                continue;
            }
            for command in &found {
                assert!(shown.contains(command), "{columns}: {command} in\n{shown}");
            }
        }
    }
}

#[test]
fn status_keeps_its_columns_at_every_width() {
    let plane = &world().plane;
    let ns = plane.namespace("narrow").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    for columns in [50, 80, 160] {
        let kubeconfig = plane.kubeconfig().display().to_string();
        let terminal = Terminal::of(columns).with("KUBECONFIG", kubeconfig);
        let shown = plain(&terminal.shows("status --all").0);
        let lines: Vec<&str> =
            shown.lines().map(|line| line.rsplit('\r').next().unwrap()).collect();
        for long in lines.iter().filter(|line| line.width() > usize::from(columns)) {
            let text = long.trim_start();
            let whole = text.starts_with("kubectl ") || !text.contains(' ');
            assert!(whole, "{columns}: {long:?} in\n{shown}");
        }
        let start = |word: &str| {
            let is_start = |line: &&str| line.split(' ').next() == Some(word);
            lines.iter().position(is_start).unwrap_or_else(|| panic!("{shown}"))
        };
        let (heading, row) = (start("POLICY"), start(&ns));
        for (name, values) in
            [("READY", &["yes", "NO", "paused", "unknown"][..]), ("RULES", &["whileUsed"])]
        {
            let below = (0..5).find(|below| lines[heading + below].contains(name)).unwrap();
            let column = lines[heading + below].find(name).unwrap();
            let field = lines[row + below].get(column..).unwrap_or_default();
            // Beside a policy with a long name, the rules stand below the row.
            let field = match field {
                "" => lines[row + below + 1].trim_start(),
                field => field,
            };
            let is_value = values.iter().any(|value| field.starts_with(value));
            assert!(is_value, "{columns}: {name} {field:?} in\n{shown}");
        }
    }
}
