//! `kubectl belay completion`: prints completion scripts. The scripts call the program
//! itself, so they match its version.

mod candidates;
mod cluster_names;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use self::candidates::candidates;
use self::cluster_names::Cluster;
use super::{CommandError, print};

#[derive(Debug, Args)]
pub struct CompletionArguments {
    /// Use "kubectl" for the plugin kubectl belay: its script extends kubectl's own completion. Use
    /// "bash", "zsh" or "fish" for the program under the name belay. All scripts complete names of
    /// objects. There is no script for PowerShell
    #[arg(value_name = "bash|zsh|fish|kubectl")]
    shell: Shell,

    /// The words of the command line
    #[arg(last = true, hide = true)]
    typed: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// For belay; to be sourced, in ~/.bashrc for example
    Bash,
    /// For belay; to be sourced, in ~/.zshrc for example
    Zsh,
    /// For belay; to be sourced, or put in ~/.config/fish/completions/belay.fish
    Fish,
    /// For kubectl belay; an executable in the PATH, called kubectl_complete-belay
    Kubectl,
    /// Used by the scripts
    #[value(hide = true)]
    Words,
}

pub fn run(arguments: &CompletionArguments) -> Result<ExitCode, CommandError> {
    let CompletionArguments { shell, typed } = arguments;
    let words;
    print(match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        Shell::Kubectl => KUBECTL,
        Shell::Words => {
            let completions = candidates(super::program(), typed, &Cluster::from_words(typed));
            words = completions.into_iter().map(|word| word + "\n").collect::<String>();
            &words
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The script completes file names if the program has no completions. bash splits
/// `--output=json` into three words, so the script joins the words for the program and returns
/// only the part after the last break. It does not use `compgen -W`, which would expand names
/// from the cluster and could run commands in them.
const BASH: &str = r#"# belay's completion for bash: source <(belay completion bash)
_belay() {
    local word words=() last=-1
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if ((last >= 0)) && [[ $word == [=:]* || ${words[last]} == *[=:] ]]; then
            words[last]+=$word
        else
            words[++last]=$word
        fi
    done
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <(belay completion words -- "${words[@]}" 2>/dev/null)
    local breaks=
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+='='
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=':'
    word=${words[last]}
    if [[ -n $breaks && $word == *["$breaks"]* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%["$breaks"]*}"?}")
    fi
}
complete -o default -F _belay belay
"#;

const ZSH: &str = r#"#compdef belay
# belay's completion for zsh: source <(belay completion zsh)
_belay() {
    local -a found
    found=(${(f)"$(belay completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
(( $+functions[compdef] )) && compdef _belay belay
"#;

const FISH: &str = r#"# belay's completion for fish: belay completion fish | source
function __belay_words
    set -l typed (commandline -opc) (commandline -ct)
    belay completion words -- $typed[2..] 2>/dev/null
end
complete -c belay -a '(__belay_words)'
"#;

/// kubectl calls the script with the words after `kubectl belay`. The last line is a directive
/// for kubectl: 4 disables file completion.
const KUBECTL: &str = r#"#!/bin/sh
# The completion of kubectl belay: an executable in the PATH, called
# kubectl_complete-belay.
kubectl-belay completion words -- "$@" 2>/dev/null
echo :4
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_asks_the_program_with_what_was_typed() {
        for (script, asks) in [
            (BASH, r#"belay completion words -- "${words[@]}""#),
            (ZSH, r#"belay completion words -- "${(@)words[2,CURRENT]}""#),
            (FISH, "belay completion words -- $typed[2..]"),
            (KUBECTL, r#"kubectl-belay completion words -- "$@""#),
        ] {
            assert!(script.contains(asks), "{script}");
        }
    }

    /// Whether a shell accepts its script; `None` if the shell is not installed.
    fn accepts(shell: &str, script: &str) -> Option<bool> {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let child = Command::new(shell).args(["-n"]).stdin(Stdio::piped()).spawn();
        let mut child = child.ok()?;
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        Some(child.wait().unwrap().success())
    }

    #[test]
    fn installed_shells_accept_their_scripts() {
        assert_eq!(accepts("bash", BASH), Some(true));
        assert_eq!(accepts("sh", KUBECTL), Some(true));
        assert_eq!(accepts("bash", "if then"), Some(false));
        for (shell, script) in [("zsh", ZSH), ("fish", FISH)] {
            assert_ne!(accepts(shell, script), Some(false), "{shell}");
        }
    }
}
