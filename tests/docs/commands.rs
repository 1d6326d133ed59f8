//! The commands and options of belay in the pages exist.

use std::collections::HashMap;
use std::process::Command;

use crate::pages::{Page, pages};

/// The help of each subcommand.
#[derive(Default)]
struct Program(HashMap<Vec<String>, String>);

impl Program {
    fn help(&mut self, of: &[String]) -> &str {
        self.0.entry(of.to_vec()).or_insert_with(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_belay")).args(of).arg("--help").output();
            let output = output.unwrap();
            assert!(output.status.success(), "belay {of:?} --help: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        })
    }

    /// Checks a command line without its first word.
    fn check(&mut self, words: &[String]) -> Result<(), String> {
        let mut of = Vec::new();
        let mut words = words.iter();
        loop {
            let subcommands = subcommands(self.help(&of));
            if subcommands.is_empty() {
                break;
            }
            // "belay" and "belay admin" alone are names.
            let Some(word) = words.next() else { return Ok(()) };
            if word.starts_with('-') {
                return options_known(self.help(&of), std::iter::once(word).chain(words));
            }
            if !subcommands.contains(word) {
                return Err(format!("{word} is no subcommand"));
            }
            of.push(word.clone());
        }
        options_known(self.help(&of), words)
    }
}

fn subcommands(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The short and long options in a help text.
fn options(help: &str) -> Vec<String> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.flat_map(|line| line.split([' ', ',', '=', '[']));
    words.filter(|word| word.starts_with('-')).map(str::to_owned).collect()
}

fn options_known<'w>(help: &str, words: impl Iterator<Item = &'w String>) -> Result<(), String> {
    let known = options(help);
    for word in words.filter(|word| word.starts_with('-')) {
        let option = word.split('=').next().unwrap_or_default();
        if !known.iter().any(|known| known == option) {
            return Err(format!("there is no option {option}"));
        }
    }
    Ok(())
}

/// The words of a command line without the first one, up to a pipe or redirection. A
/// quoted text is one word. `None` if it is not a command of belay.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.strip_prefix("kubectl ").unwrap_or(line);
    let rest = line.strip_prefix("belay")?;
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in rest.chars().chain([' ']) {
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '|' | ';' | '>' | '&' | '#') => break,
            (None, ' ') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(c),
        }
    }
    Some(words)
}

/// The commands in the prose and the blocks of a page, without output of programs.
fn commands(page: &Page) -> Vec<(String, Vec<String>)> {
    let blocks = page.blocks().into_iter().filter(|block| block.language != "text");
    let lines = blocks.flat_map(|block| block.lines).chain(page.spans());
    lines.filter_map(|line| command(&line).map(|words| (line, words))).collect()
}

#[test]
fn every_documented_command_exists() {
    let mut program = Program::default();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for (line, words) in commands(&page) {
            count += 1;
            if let Err(why) = program.check(&words) {
                wrong.push(format!("{}: {line}: {why}", page.path.display()));
            }
        }
    }
    assert!(count > 50, "{count}");
    assert!(wrong.is_empty(), "belay does not know these commands:\n{}", wrong.join("\n"));
}

/// Whether a line contains two commands, for example because they were wrapped like
/// prose.
fn run_together(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "#").collect();
    let begins = |word: &str| ["kubectl", "helm"].contains(&word);
    let goes_on = |before: &str| {
        ["|", "||", "&&", "exec", "sudo", "$", "do", "-", "completion"].contains(&before)
            || before.ends_with([';', '(', '='])
    };
    words.windows(2).any(|pair| begins(pair[1]) && !goes_on(pair[0]))
}

#[test]
fn no_two_commands_stand_in_one_line() {
    for wrong in ["kubectl get x helm history belay", "--all kubectl -n belay get events"] {
        assert!(run_together(wrong), "{wrong}");
    }
    for right in ["helm get manifest x | kubectl apply -f -", "export A=$(kubectl get x)"] {
        assert!(!run_together(right), "{right}");
    }
    for page in pages() {
        for block in page.blocks() {
            // The output of programs contains commands in sentences.
            if ["text", "yaml", "json"].contains(&block.language.as_str()) {
                continue;
            }
            for line in &block.lines {
                assert!(!run_together(line), "{}: {line}", page.path.display());
            }
        }
    }
}

#[test]
fn finds_unknown_commands_and_options() {
    let mut program = Program::default();
    let mut check = |line: &str| program.check(&command(line).unwrap());
    for right in [
        "kubectl belay why pvc/data -n db",
        "belay admin crds | kubectl apply --bogus -f -",
        "kubectl belay approve pvc/data --reason \"a | b\" --scope content --for 10m",
        "belay release pvc/data --force=data",
        "belay --version",
        "belay",
    ] {
        assert_eq!(check(right), Ok(()), "{right}");
    }
    for wrong in [
        "belay wy pvc/data",
        "belay admin crts",
        "belay why pvc/data --nampespace x",
        "belay why x -q",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
    assert_eq!(command("kubectl get pods"), None);
    assert_eq!(command("belay.dev/hold"), None);
}
