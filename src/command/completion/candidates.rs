//! What may stand where somebody is typing.

use clap::{Arg, Command};

/// What may stand in the place of the last word, which may be begun.
pub fn candidates(mut program: Command, typed: &[String]) -> Vec<String> {
    // Only then every command knows the options that are for all.
    program.build();
    let (current, before) = match typed.split_last() {
        Some((current, before)) => (current.as_str(), before),
        None => ("", &[][..]),
    };
    let mut command = &program;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    if let Some((option, _)) = current.split_once('=') {
        let values = named(command, option).map_or_else(Vec::new, values);
        let whole = values.into_iter().map(|value| format!("{option}={value}"));
        return fitting(whole, current);
    }
    let option = before.last().and_then(|word| named(command, word));
    if let Some(option) = option.filter(|option| takes_value(option)) {
        return fitting(values(option).into_iter(), current);
    }
    let subcommands = command.get_subcommands().filter(|one| !one.is_hide_set());
    let subcommands: Vec<String> = subcommands.map(|one| one.get_name().to_owned()).collect();
    let positional = command.get_positionals().filter(|one| !one.is_hide_set()).flat_map(values);
    let plain: Vec<String> = subcommands.into_iter().chain(positional).collect();
    if current.starts_with('-') || plain.is_empty() {
        return fitting(options(command), current);
    }
    fitting(plain.into_iter(), current)
}

fn options(command: &Command) -> impl Iterator<Item = String> {
    let shown = command.get_arguments().filter(|option| !option.is_hide_set());
    shown.filter_map(|option| option.get_long()).map(|long| format!("--{long}"))
}

/// The option of this name.
fn named<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let is_it = |option: &&Arg| match word.strip_prefix("--") {
        Some(long) => option.get_long() == Some(long),
        None => option.get_short().is_some_and(|short| word == format!("-{short}")),
    };
    command.get_arguments().find(is_it)
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// What may be given; nothing, where it may be anything.
fn values(option: &Arg) -> Vec<String> {
    let values = option.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set() && takes_value(option));
    shown.map(|value| value.get_name().to_owned()).collect()
}

fn fitting(words: impl Iterator<Item = String>, current: &str) -> Vec<String> {
    words.filter(|word| word.starts_with(current)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(super::super::super::program(), &typed)
    }

    #[test]
    fn what_fits_is_what_the_program_would_take() {
        assert_eq!(found("st"), ["stuck", "status"]);
        assert_eq!(found("adm"), ["admin"]);
        assert_eq!(found("admin cr"), ["crds"]);
        assert_eq!(found("stuck --long"), ["--longer-than"]);
        assert_eq!(found("stuck -o "), ["table", "json", "yaml"]);
        assert_eq!(found("stuck --output y"), ["yaml"]);
        assert_eq!(found("why --output=j"), ["--output=json"]);
        assert_eq!(found("completion "), ["bash", "zsh", "fish", "kubectl"]);
        // Options that are for every command.
        assert_eq!(found("admin crds --former"), ["--former-hold"]);
        // What may be anything is left to the person.
        assert_eq!(found("stuck -n "), [""; 0]);
        assert_eq!(found("nonsense x --zzz"), [""; 0]);
        let all = found("");
        assert!(all.contains(&"approve".to_owned()) && all.len() > 8, "{all:?}");
    }

    #[test]
    fn where_only_options_may_stand_they_are_offered() {
        let options = found("stuck ");
        assert!(options.contains(&"--all-namespaces".to_owned()), "{options:?}");
    }
}
