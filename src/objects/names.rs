//! The names of kinds that users type: `pvc`, `deployment`, `widgets.example.com`.

use std::collections::HashSet;

use super::builtin::{BUILT_IN, IN_ALL, SHORT};
use super::kinds::{KindInfo, Kinds, full_name};

/// One version of a served kind, with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedKind {
    /// The kind, with this version alone.
    pub info: KindInfo,
    /// The singular name; empty if it is the kind in lower case.
    pub singular: String,
    /// Short names.
    pub short: Vec<String>,
    /// The categories, such as `all`.
    pub categories: Vec<String>,
}

/// The names of all kinds, in the order of preferred groups and versions. As in kubectl,
/// the first of several equal matches wins.
#[derive(Debug, Clone, Default)]
pub struct KindNames {
    served: Vec<ServedKind>,
    /// The groups whose API server does not answer, so that the names of their kinds are
    /// unknown.
    pub unavailable_groups: Vec<String>,
}

/// The quality of a match, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameMatch {
    Plural,
    Singular,
    Short,
}

/// The limit of suggestions for a mistyped name.
const MAX_SUGGESTIONS: usize = 3;

impl KindNames {
    /// The names of these kinds.
    pub fn new(served: Vec<ServedKind>) -> Self {
        Self { served, unavailable_groups: Vec::new() }
    }

    /// The names without an API server: the kinds of this table, with the short names of
    /// built-in kinds and of these CRDs (by group and plural).
    pub fn of_kinds(kinds: &Kinds, crd_short_names: &[(String, String, Vec<String>)]) -> Self {
        // Built-in kinds come first, starting with the core group.
        let served = kinds.iter().filter(|(kind, _)| kinds.is_served(*kind));
        let mut infos: Vec<&KindInfo> = served.map(|(_, info)| info).collect();
        infos.sort_by_key(|info| {
            let is_row =
                |row: &(&str, &str, &str, &str, bool)| (row.0, row.3) == info.group_resource();
            BUILT_IN.iter().position(is_row).unwrap_or(usize::MAX)
        });
        let served = infos.into_iter().flat_map(|info| {
            let built_in = SHORT
                .iter()
                .filter(|(group, resource, _)| (*group, *resource) == info.group_resource());
            let built_in = built_in.flat_map(|(.., short)| short.split(' ').map(str::to_owned));
            let custom = crd_short_names
                .iter()
                .filter(|(group, resource, _)| (group, resource) == (&info.group, &info.resource));
            let short: Vec<String> =
                built_in.chain(custom.flat_map(|(.., short)| short.clone())).collect();
            let is_in_all = IN_ALL.contains(&info.group_resource());
            let categories: Vec<String> = is_in_all.then(|| "all".to_owned()).into_iter().collect();
            info.versions.iter().map(move |version| ServedKind {
                info: KindInfo { versions: vec![version.clone()], ..info.clone() },
                singular: String::new(),
                short: short.clone(),
                categories: categories.clone(),
            })
        });
        Self::new(served.collect())
    }

    /// The kind that kubectl finds for a word: a plural, a singular or a short name, optionally
    /// with its group, or with its version and group. `None` if no such kind is served.
    pub fn find(&self, word: &str) -> Option<&KindInfo> {
        let word = word.to_lowercase();
        let (word, qualifier) = word.split_once('.').unwrap_or((&word, ""));
        let mut best: Option<(NameMatch, &KindInfo)> = None;
        for served in self.served.iter().filter(|served| served.is_in(qualifier)) {
            let Some(name_match) = served.match_name(word) else { continue };
            if best.is_none_or(|(other, _)| name_match < other) {
                best = Some((name_match, &served.info));
            }
        }
        best.map(|(_, info)| info)
    }

    /// The kinds of a category, as kubectl finds them; empty if it is not a category.
    pub fn of_category(&self, word: &str) -> Vec<&KindInfo> {
        let mut seen = HashSet::new();
        let members = self.served.iter().filter(|served| {
            let is_member = served.categories.iter().any(|category| category == word);
            // The first version of a kind is the preferred one.
            is_member && seen.insert(served.info.group_resource())
        });
        members.map(|served| &served.info).collect()
    }

    /// A kind by group and kind, as in an object.
    pub fn of_object(&self, group: &str, kind: &str) -> Option<&KindInfo> {
        let named = |served: &&ServedKind| served.info.group == group && served.info.kind == kind;
        self.served.iter().find(named).map(|served| &served.info)
    }

    /// Names that each find one of these kinds: plurals, with the group if another kind
    /// has the same plural, and short names.
    pub fn unambiguous_names(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        for served in &self.served {
            let info = &served.info;
            let finds_kind = |word: &&str| {
                self.find(word).is_some_and(|found| {
                    (&found.group, &found.resource) == (&info.group, &info.resource)
                })
            };
            let full = full_name(&info.group, &info.resource);
            let plural = [info.resource.as_str(), &full].into_iter().find(finds_kind);
            let short = served.short.iter().map(String::as_str).filter(finds_kind);
            for word in plural.into_iter().chain(short) {
                if seen.insert(word.to_owned()) {
                    words.push(word.to_owned());
                }
            }
        }
        words
    }

    /// The built-in kinds and the served ones.
    pub fn kinds(&self) -> Kinds {
        let mut kinds = Kinds::default();
        for ServedKind { info, .. } in &self.served {
            if kinds.find(&info.group, &info.kind).is_none() {
                kinds.learn(info.clone());
            }
        }
        kinds
    }

    /// Suggestions for a mistyped name, the nearest first; may be empty.
    pub fn nearest(&self, word: &str) -> Vec<String> {
        let word = word.to_lowercase();
        let word = word.split('.').next().unwrap_or_default();
        let max_distance = (word.chars().count() / 3).clamp(1, 3);
        let mut near: Vec<(usize, String)> = Vec::new();
        for served in &self.served {
            let info = &served.info;
            let kind = info.kind.to_lowercase();
            let short = served.short.iter().map(String::as_str);
            let words = [info.resource.as_str(), &kind].into_iter().chain(short);
            let distance = words.map(|other| distance(word, other)).min().unwrap_or(usize::MAX);
            let is_prefix = word.len() >= 3 && info.resource.starts_with(word);
            let distance = if is_prefix { distance.min(max_distance) } else { distance };
            let name = full_name(&info.group, &info.resource);
            if distance <= max_distance && !near.iter().any(|(_, other)| *other == name) {
                near.push((distance, name));
            }
        }
        near.sort();
        near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
    }
}

impl ServedKind {
    /// Whether this kind has the group, or the version and group, in `qualifier`. An empty
    /// qualifier allows every kind.
    fn is_in(&self, qualifier: &str) -> bool {
        let group = self.info.group.as_str();
        let version = self.info.versions.first().map_or("", String::as_str);
        qualifier.is_empty()
            || qualifier == group
            || qualifier.strip_prefix(version).is_some_and(|rest| {
                rest.strip_prefix('.').unwrap_or(rest) == group
                    && (rest.is_empty() || rest.starts_with('.'))
            })
    }

    fn match_name(&self, word: &str) -> Option<NameMatch> {
        if self.info.resource == word {
            Some(NameMatch::Plural)
        } else if self.singular == word && !word.is_empty() || self.info.kind.to_lowercase() == word
        {
            Some(NameMatch::Singular)
        } else {
            self.short.iter().any(|short| short == word).then_some(NameMatch::Short)
        }
    }
}

/// The edit distance of two words: letters that are inserted, removed, changed or swapped
/// with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (row[j] + usize::from(x != y)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_the_same_kinds_without_an_api_server() {
        let mut kinds = Kinds::default();
        kinds.learn(Kinds::custom("example.com", "v1", "Widget", "widgets", true));
        let short = [("example.com".to_owned(), "widgets".to_owned(), vec!["wdg".to_owned()])];
        let names = KindNames::of_kinds(&kinds, &short);
        let found = |word: &str| names.find(word).map(KindInfo::full_name).unwrap_or_default();
        for (word, meant) in [
            ("pvc", "persistentvolumeclaims"),
            ("ns", "namespaces"),
            ("deploy.apps", "deployments.apps"),
            ("Deployment", "deployments.apps"),
            ("statefulsets.v1.apps", "statefulsets.apps"),
            ("hpa.v1.autoscaling", "horizontalpodautoscalers.autoscaling"),
            // Two groups have this kind. The core group is preferred.
            ("events", "events"),
            ("wdg", "widgets.example.com"),
            ("widget.example.com", "widgets.example.com"),
            ("pvcs", ""),
            ("", ""),
            ("deployments.example.com", ""),
        ] {
            assert_eq!(found(word), meant, "{word}");
        }
        let pod = names.of_object("", "Pod").map(KindInfo::full_name);
        assert_eq!(pod.as_deref(), Some("pods"));
    }

    #[test]
    fn a_category_has_its_kinds_without_an_api_server_as_well() {
        let names = KindNames::of_kinds(&Kinds::default(), &[]);
        let members = |word: &str| names.of_category(word).len();
        assert_eq!((members("all"), members("pods"), members("All")), (IN_ALL.len(), 0, 0));
    }

    #[test]
    fn every_kind_has_a_name_that_finds_no_other_kind() {
        let mut kinds = Kinds::default();
        kinds.learn(Kinds::custom("example.com", "v1", "Widget", "widgets", true));
        kinds.learn(Kinds::custom("example.com", "v1", "Deployment", "deployments", true));
        let short = [("example.com".to_owned(), "widgets".to_owned(), vec!["cm".to_owned()])];
        let words = KindNames::of_kinds(&kinds, &short).unambiguous_names();
        let times = |word: &str| words.iter().filter(|other| *other == word).count();
        for word in ["secrets", "cm", "pvc", "deployments", "deploy", "events", "widgets"] {
            assert_eq!(times(word), 1, "{word}: {words:?}");
        }
        assert_eq!((times("deployments.example.com"), times("events.events.k8s.io")), (1, 1));
    }

    #[test]
    fn a_mistyped_kind_gets_the_nearest_names() {
        let names = KindNames::of_kinds(&Kinds::default(), &[]);
        for (word, near) in [
            ("deploymnet", &["deployments.apps"][..]),
            // One letter is swapped in "pvc", and added to "pv" and "pc".
            (
                "pcv",
                &[
                    "persistentvolumeclaims",
                    "persistentvolumes",
                    "priorityclasses.scheduling.k8s.io",
                ],
            ),
            ("secert", &["secrets"]),
            ("statefulset.batch", &["statefulsets.apps"]),
            ("persist", &["persistentvolumeclaims", "persistentvolumes"]),
            ("gizmo", &[]),
        ] {
            let found = names.nearest(word);
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), near, "{word}");
        }
    }

    #[test]
    fn the_distance_counts_letters() {
        for (a, b, far) in [("", "abc", 3), ("pvc", "pvc", 0), ("pcv", "pvc", 1), ("po", "pod", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (far, far), "{a} {b}");
        }
    }
}
