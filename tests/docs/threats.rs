//! Each attack of docs/THREATS.md names tests that exist.

use crate::pages::{read, text_below, top};

/// Whether the code has a function of this name. A name that ends with `…` is the beginning.
fn has_test(code: &str, name: &str) -> bool {
    let function = match name.strip_suffix('…') {
        Some(beginning) => format!("fn {beginning}"),
        None => format!("fn {name}("),
    };
    code.contains(&function)
}

#[test]
fn every_attack_names_tests_that_exist() {
    let page = read("docs/THREATS.md");
    let rows = page
        .lines()
        .filter(|line| line.strip_prefix("| ").is_some_and(|cell| cell.starts_with(['H', 'F'])));
    let below = |folder: &str| text_below(&top().join(folder));
    let (attacks, scenarios) = (below("tests/scenarios/attacks"), below("tests/scenarios"));
    let (unit, serve, cli) = (below("src"), below("tests/serve"), below("tests/cli"));
    let (e2e, install) = (below("tests/e2e"), below("tests/install"));
    let tables = below("src/decide/tables");
    let (mut missing, mut count) = (Vec::new(), 0);
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit('|').next().unwrap();
        for test in tests.split('`').skip(1).step_by(2) {
            count += 1;
            let exists = match test.split_once(": ") {
                Some(("lib", name)) => has_test(&unit, name),
                Some(("scenarios", name)) => has_test(&scenarios, name),
                Some(("serve", name)) => has_test(&serve, name),
                Some(("e2e", name)) => has_test(&e2e, name),
                Some(("cli", name)) => has_test(&cli, name),
                Some(("install", name)) => has_test(&install, name),
                Some(("table", row)) => tables.contains(row.trim_end_matches('…')),
                _ => has_test(&attacks, test),
            };
            if !exists {
                missing.push(test);
            }
        }
    }
    assert!(count > 150, "{count}");
    assert!(missing.is_empty(), "docs/THREATS.md names tests that do not exist: {missing:#?}");
}
