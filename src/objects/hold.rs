//! The hold: the finalizer by which belay keeps an object, and its former names.
//!
//! The name is a constant. Former names are settings of the process: an older version of
//! belay, or another controller that belay replaces, may have used another name. A
//! finalizer with a former name counts as the hold. The leader renames it while the
//! object is not Terminating, because a Terminating object gets no new finalizers.

use std::sync::OnceLock;

/// The finalizer by which belay holds an object: the *hold*.
pub const HOLD: &str = "belay.dev/hold";

static FORMER: OnceLock<Vec<String>> = OnceLock::new();

/// Sets the former names of the hold, once at start.
pub fn set_former_holds(names: Vec<String>) {
    // A second call must not change the names.
    let _ = FORMER.set(names);
}

/// The former names of the hold.
pub fn former_holds() -> &'static [String] {
    FORMER.get().map_or(&[], Vec::as_slice)
}

/// Whether a finalizer is the hold, under any of its names.
pub fn is_hold(finalizer: &str) -> bool {
    hold_name(finalizer).is_some()
}

/// The name of the hold that equals this finalizer.
fn hold_name(finalizer: &str) -> Option<&'static str> {
    if finalizer == HOLD {
        return Some(HOLD);
    }
    former_holds().iter().map(String::as_str).find(|name| *name == finalizer)
}

/// The entry of the hold in the finalizers of an object. A patch that removes it needs
/// both fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldEntry {
    /// Its index in the list of finalizers.
    pub index: usize,
    /// Its name, current or former.
    pub name: &'static str,
}

impl HoldEntry {
    /// Finds the hold among finalizers. If the hold is there under several names, returns a
    /// former name, because belay removes former names.
    pub fn find<'f>(finalizers: impl IntoIterator<Item = &'f str>) -> Option<Self> {
        let named = finalizers.into_iter().enumerate();
        let holds = named.filter_map(|(index, f)| Some(Self { index, name: hold_name(f)? }));
        holds.min_by_key(|hold| hold.name == HOLD)
    }

    /// Whether it has a former name.
    pub fn is_former(self) -> bool {
        self.name != HOLD
    }
}

/// The finalizers without the unwanted ones. `None` if at most one is unwanted: remove that one by
/// its index, after a JSON patch `test` of the index.
pub fn finalizers_after_bulk_removal<'f>(
    finalizers: &[&'f str],
    is_unwanted: fn(&str) -> bool,
) -> Option<Vec<&'f str>> {
    let rest: Vec<&str> = finalizers.iter().copied().filter(|f| !is_unwanted(f)).collect();
    (finalizers.len() - rest.len() > 1).then_some(rest)
}

/// Whether Kubernetes itself adds this finalizer: it has no domain, or a domain that is
/// reserved for Kubernetes.
pub fn is_kubernetes_finalizer(finalizer: &str) -> bool {
    let Some((domain, _)) = finalizer.split_once('/') else { return true };
    let is_in = |suffix: &str| {
        domain.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    is_in("kubernetes.io") || is_in("k8s.io")
}

/// Parses a former name from an option.
pub fn parse_former_hold(text: &str) -> Result<String, String> {
    let is_qualified = text.split_once('/').is_some_and(|(domain, name)| {
        domain.contains('.') && !name.is_empty() && !name.contains('/')
    });
    if !is_qualified || text.chars().any(|c| c.is_whitespace() || "'\"\\,".contains(c)) {
        return Err("expected DOMAIN/NAME, such as example.com/hold".to_owned());
    }
    if is_kubernetes_finalizer(text) || text == HOLD {
        return Err(
            "it must be a finalizer that belay alone may remove, and must differ from the \
             current name"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// The former name of the hold in tests, which share one process.
#[cfg(test)]
pub const FORMER_HOLD_FOR_TESTS: &str = "belay.dev/former-hold";

/// Sets the former name for tests.
#[cfg(test)]
pub fn set_former_hold_for_tests() {
    set_former_holds(vec![FORMER_HOLD_FOR_TESTS.to_owned()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_hold_under_each_name_and_a_former_name_first() {
        set_former_hold_for_tests();
        let found = |finalizers: &[&str]| {
            HoldEntry::find(finalizers.iter().copied()).map(|hold| (hold.index, hold.name))
        };
        assert_eq!(found(&["x/y"]), None);
        assert_eq!(found(&["x/y", HOLD]), Some((1, HOLD)));
        assert_eq!(found(&["x/y", FORMER_HOLD_FOR_TESTS]), Some((1, FORMER_HOLD_FOR_TESTS)));
        assert_eq!(found(&[HOLD, FORMER_HOLD_FOR_TESTS]), Some((1, FORMER_HOLD_FOR_TESTS)));
        assert!(!is_hold("belay.dev/former-hold-2"));
    }

    #[test]
    fn rejects_former_names_that_belong_to_other_controllers() {
        assert_eq!(parse_former_hold("example.com/hold"), Ok("example.com/hold".to_owned()));
        for wrong in [
            "",
            "hold",
            "orphan",
            "foregroundDeletion",
            "example/hold",
            "example.com/",
            "a.b/c/d",
            "a.b/c d",
            "a.b/c'",
            "kubernetes.io/pvc-protection",
            "x.k8s.io/y",
            HOLD,
        ] {
            assert!(parse_former_hold(wrong).is_err(), "{wrong}");
        }
    }
}
