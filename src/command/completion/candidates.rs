//! Computes the completions of a command line.

use crate::objects::shell_word;
use clap::{Arg, Command};

/// Reads names in a cluster for completions, on demand.
pub trait ClusterNames {
    fn kinds(&self) -> Vec<String>;
    fn namespaces(&self) -> Vec<String>;
    /// The names of the objects of a kind, in the namespace of the command line.
    fn objects(&self, kind: &str) -> Vec<String>;
}

/// The completions of the last word.
pub fn candidates(
    mut program: Command,
    typed: &[String],
    cluster: &dyn ClusterNames,
) -> Vec<String> {
    // `build` adds the global options to every command.
    program.build();
    let (current, before) = match typed.split_last() {
        Some((current, before)) => (current.as_str(), before),
        None => ("", &[][..]),
    };
    let (mut command, mut arguments) = (&program, before);
    for (index, word) in before.iter().enumerate() {
        if let Some(subcommand) = command.find_subcommand(word) {
            (command, arguments) = (subcommand, before.get(index + 1..).unwrap_or_default());
        }
    }
    let values = |option: &Arg| match option.get_id().as_str() {
        "namespace" => cluster.namespaces(),
        _ => values(option),
    };
    if let Some((option, _)) = current.split_once('=') {
        let values = find_option(command, option).map_or_else(Vec::new, values);
        let words = values.into_iter().map(|value| format!("{option}={value}"));
        return with_prefix(words, current);
    }
    let option = before.last().and_then(|word| find_option(command, word));
    if let Some(option) = option.filter(|option| takes_value(option)) {
        return with_prefix(values(option).into_iter(), current);
    }
    if current.starts_with('-') {
        return with_prefix(options(command), current);
    }
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let subcommands: Vec<String> =
        subcommands.map(|subcommand| subcommand.get_name().to_owned()).collect();
    let positional =
        command.get_positionals().filter(|argument| !argument.is_hide_set()).flat_map(values);
    let objects = match (expected_word(command, arguments), current.split_once('/')) {
        (ExpectedWord::Nothing, _) => Vec::new(),
        (ExpectedWord::Kind, None) => cluster.kinds(),
        (ExpectedWord::Kind, Some((kind, _))) => {
            let names = cluster.objects(kind).into_iter();
            names.map(|name| format!("{kind}/{name}")).collect()
        }
        (ExpectedWord::NameOf(kind), _) => cluster.objects(kind),
    };
    let plain: Vec<String> = subcommands.into_iter().chain(positional).chain(objects).collect();
    if plain.is_empty() {
        return with_prefix(options(command), current);
    }
    with_prefix(plain.into_iter(), current)
}

fn options(command: &Command) -> impl Iterator<Item = String> {
    let shown = command.get_arguments().filter(|option| !option.is_hide_set());
    shown.filter_map(|option| option.get_long()).map(|long| format!("--{long}"))
}

/// The meaning of the next word.
enum ExpectedWord<'w> {
    /// A kind, or a kind and a name with a slash between them.
    Kind,
    /// An object of this kind.
    NameOf(&'w str),
    /// No object.
    Nothing,
}

/// The meaning of the word after these arguments: objects are `TYPE/NAME` or `TYPE NAME`, and only
/// some commands accept several.
fn expected_word<'w>(command: &Command, arguments: &'w [String]) -> ExpectedWord<'w> {
    let target = command.get_positionals().map(|argument| argument.get_id().as_str());
    let Some(target) = target.into_iter().find(|id| ["target", "targets"].contains(id)) else {
        return ExpectedWord::Nothing;
    };
    let mut positional = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match find_option(command, word) {
            Some(option) if takes_value(option) => drop(words.next()),
            _ if word.starts_with('-') => {}
            _ => positional.push(word.as_str()),
        }
    }
    match positional[..] {
        [] => ExpectedWord::Kind,
        [kind] if !kind.contains('/') => ExpectedWord::NameOf(kind),
        [kind, ..] if target == "targets" && !kind.contains('/') => ExpectedWord::NameOf(kind),
        _ if target == "targets" => ExpectedWord::Kind,
        _ => ExpectedWord::Nothing,
    }
}

/// The option with this name.
fn find_option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let has_name = |option: &&Arg| match word.strip_prefix("--") {
        Some(long) => option.get_long() == Some(long),
        None => option.get_short().is_some_and(|short| word == format!("-{short}")),
    };
    command.get_arguments().find(has_name)
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// The possible values; empty if any value is possible.
fn values(option: &Arg) -> Vec<String> {
    let values = option.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set() && takes_value(option));
    shown.map(|value| value.get_name().to_owned()).collect()
}

/// The words with this prefix. Words with special characters are omitted, because shells expand
/// completions. No name in a cluster contains such characters.
fn with_prefix(words: impl Iterator<Item = String>, current: &str) -> Vec<String> {
    words.filter(|word| word.starts_with(current) && shell_word(word) == *word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shop;

    impl ClusterNames for Shop {
        fn kinds(&self) -> Vec<String> {
            ["secrets", "services", "pvc", "se$(id)", "se;id"].map(str::to_owned).to_vec()
        }

        fn namespaces(&self) -> Vec<String> {
            ["shop", "default"].map(str::to_owned).to_vec()
        }

        fn objects(&self, kind: &str) -> Vec<String> {
            let names: &[&str] = if kind == "secrets" { &["key", "keep", "k$(id)"] } else { &[] };
            names.iter().map(|name| (*name).to_owned()).collect()
        }
    }

    fn found(line: &str) -> Vec<String> {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(super::super::super::program(), &typed, &Shop)
    }

    #[test]
    fn offers_kinds_and_namespaces_where_the_program_accepts_them() {
        assert_eq!(found("why se"), ["secrets", "services"]);
        assert_eq!(found("why -n shop -o json p"), ["pvc"]);
        assert_eq!(found("why --namespace=s"), ["--namespace=shop"]);
        assert_eq!(found("release -n "), ["shop", "default"]);
        assert_eq!(found("impact secrets/a se"), ["secrets", "services"]);
        // After a kind comes a name. After the only object come options.
        assert_eq!(found("why secrets se"), [""; 0]);
        assert_eq!(found("impact secrets se"), [""; 0]);
        for line in ["why secrets ke", "release -n shop secrets ke", "impact secrets key ke"] {
            assert_eq!(found(line), ["key", "keep"], "{line}");
        }
        assert_eq!(found("why secrets/ke"), ["secrets/key", "secrets/keep"]);
        assert_eq!(found("why pvc/a secrets/key"), ["secrets/key"]);
        assert_eq!(found("why pvc/a ke"), [""; 0]);
        assert!(found("release secrets/a ").iter().all(|word| word.starts_with("--")));
        assert_eq!(found("why secrets/a se"), ["secrets", "services"]);
    }

    #[test]
    fn offers_what_the_program_accepts() {
        assert_eq!(found("st"), ["stuck", "status"]);
        assert_eq!(found("adm"), ["admin"]);
        assert_eq!(found("admin cr"), ["crds"]);
        assert_eq!(found("stuck --long"), ["--longer-than"]);
        assert_eq!(found("stuck -o "), ["table", "json", "yaml", "wide", "name"]);
        assert_eq!(found("stuck --output y"), ["yaml"]);
        assert_eq!(found("why --output=j"), ["--output=json"]);
        assert_eq!(found("completion "), ["bash", "zsh", "fish", "kubectl"]);
        // A global option.
        assert_eq!(found("admin manifests --former"), ["--former-hold"]);
        // There are no completions for free text.
        assert_eq!(found("stuck --longer-than "), [""; 0]);
        assert_eq!(found("nonsense x --zzz"), [""; 0]);
        let all = found("");
        assert!(all.contains(&"approve".to_owned()) && all.len() > 8, "{all:?}");
    }

    #[test]
    fn offers_options_if_no_other_word_is_possible() {
        let options = found("stuck ");
        assert!(options.contains(&"--all-namespaces".to_owned()), "{options:?}");
    }
}
