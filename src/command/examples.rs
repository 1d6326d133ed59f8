//! The examples in the help of each command.

use clap::Command;

/// Adds the examples to the help of each command, before its exit codes.
pub fn add_examples(program: Command) -> Command {
    examples().fold(program, |program, (path, lines)| add_to_help(program, &path, lines))
}

fn examples() -> impl Iterator<Item = (Vec<&'static str>, &'static str)> {
    let blocks = EXAMPLES.trim().split("\n\n").filter_map(|block| block.split_once('\n'));
    blocks.map(|(path, lines)| (path.split(' ').collect(), lines))
}

fn add_to_help(command: Command, path: &[&'static str], lines: &str) -> Command {
    if let [first, rest @ ..] = path {
        return command.mut_subcommand(*first, |command| add_to_help(command, rest, lines));
    }
    let exit_codes = command.get_after_help().map(|text| format!("\n\n{text}"));
    command.after_help(format!("Examples:\n{lines}{}", exit_codes.unwrap_or_default()))
}

/// The path of each command, and its examples.
const EXAMPLES: &str = r#"
serve
  belay serve --standalone
  belay serve --standalone --policies policies/ --objects objects.yaml
  belay serve --kubeconfig ~/.kube/config --namespace belay

approve
  kubectl belay approve pvc/data -n db --reason "move to new storage"
  kubectl belay approve deploy/web secret/token -n shop --reason "cleanup"
  kubectl belay approve namespace/shop --scope content --for 1h --reason "shutdown"

why
  kubectl belay why pvc/data -n db
  kubectl belay why namespace shop
  kubectl belay why deployment/web secret/token -n shop -o json

stuck
  kubectl belay stuck -A
  kubectl belay stuck -n shop --longer-than 10m --watch
  kubectl belay stuck --from dump/

impact
  kubectl belay impact namespace/shop
  kubectl belay impact pvc --all -n shop
  kubectl belay impact namespace/shop --out plan.json
  kubectl belay impact --removed old/ new/ -o markdown

delete
  kubectl belay delete namespace/shop
  kubectl belay delete deploy/web secret/token -n shop --dry-run=server
  kubectl belay delete --plan plan.json --yes

undo
  kubectl belay undo pvc/data -n db
  kubectl belay undo namespace/shop --dry-run
  kubectl belay undo --resume undo-2f1c.json

used-by
  kubectl belay used-by secret/token -n shop
  kubectl belay used-by pvc/data -n db --depth 2
  kubectl belay used-by deployment/web --reverse

test
  kubectl belay test tests/
  kubectl belay test tests/ --policies policies/ -o junit

release
  kubectl belay release pvc/data -n db
  kubectl belay release pvc/data -n db --dry-run

approvals
  kubectl belay approvals
  kubectl belay approvals -n shop
  kubectl belay approvals --all -o json

denials
  kubectl belay denials
  kubectl belay denials -n shop --since 2h
  kubectl belay denials --would -o wide

status
  kubectl belay status
  kubectl belay status -o json
  kubectl belay status --plan -f policies/

pause
  kubectl belay pause --for 30m --reason "restore from backup"
  kubectl belay pause --end

version
  kubectl belay version
  kubectl belay version --client

completion
  kubectl belay completion kubectl > ~/.local/bin/kubectl_complete-belay
  source <(kubectl belay completion bash)

admin certs
  kubectl belay admin certs --name belay.example.com
  kubectl belay admin certs --name localhost --name 127.0.0.1 --cert-dir certs --days 90

admin crds
  kubectl belay admin crds | kubectl apply -f -
  kubectl belay admin crds --apply

admin manifests
  kubectl belay admin manifests --service belay/belay | kubectl apply -f -
  kubectl belay admin manifests --url https://belay.example.com:8443 | kubectl apply -f -

admin selftest
  kubectl belay admin selftest -n default
  kubectl belay admin selftest -n default -o json

admin uninstall
  kubectl belay admin uninstall --dry-run
  kubectl belay admin uninstall

admin schemas
  kubectl belay admin schemas
  kubectl belay admin schemas > schemas.json
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands without subcommands, with their paths.
    fn leaves(command: &Command, path: &[String], found: &mut Vec<(Vec<String>, Command)>) {
        for command in command.get_subcommands() {
            let path = [path, &[command.get_name().to_owned()]].concat();
            match command.has_subcommands() {
                true => leaves(command, &path, found),
                false => found.push((path, command.clone())),
            }
        }
    }

    #[test]
    fn every_command_has_an_imperative_summary_and_examples_that_parse() {
        let program = crate::command::program();
        let mut found = Vec::new();
        leaves(&program, &[], &mut found);
        assert!(found.len() > 15, "{found:?}");
        for (path, command) in found {
            let about = command.get_about().unwrap().to_string();
            let summary = about.lines().next().unwrap();
            assert!(summary.chars().count() <= 60, "{path:?}: {summary}");
            assert!(summary.starts_with(|c: char| c.is_uppercase()), "{path:?}: {summary}");
            let (_, lines) = examples().find(|(documented, _)| *documented == path).unwrap();
            assert!((2..=4).contains(&lines.lines().count()), "{path:?}");
            for line in lines.lines() {
                let (_, line) = line.split_once("belay ").unwrap();
                let end = line.find([')', '|', '>']).unwrap_or(line.len());
                let words = shell_words(&line[..end]);
                let words = ["belay".to_owned()].into_iter().chain(words);
                let parsed = program.clone().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    fn shell_words(line: &str) -> Vec<String> {
        let parts = line.split('"').enumerate().flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        parts.collect()
    }
}
