//! A change of manifests: the objects in the old manifests that the new ones don't
//! contain.

use std::collections::HashSet;
use std::path::Path;

use crate::command::CommandError;
use crate::command::files::{File, Manifest, read_manifests, read_texts};
use crate::objects::KindNames;

/// Manifests before and after a change.
pub struct Change {
    /// The files of before.
    pub old: Vec<File>,
    /// The files of after.
    pub new: Vec<File>,
    had: Vec<Manifest>,
    has: Vec<Manifest>,
}

/// The identity of objects: group, kind, namespace and name, without the version.
type Identity<'m> = (&'m str, &'m str, &'m str, &'m str);

impl Change {
    /// Reads both.
    pub fn read(old: &Path, new: &Path) -> Result<Self, CommandError> {
        let read = |path: &Path| read_texts(&[path.to_owned()]);
        let (old, new) = (read(old)?, read(new)?);
        let (had, has) = (read_manifests(&old)?, read_manifests(&new)?);
        Ok(Self { old, new, had, has })
    }

    /// The removed objects. A manifest without a namespace is in `own`; the namespace of
    /// a cluster-scoped object is ignored.
    pub fn removed(&self, names: &KindNames, own: &str) -> Vec<&Manifest> {
        let has: HashSet<Identity<'_>> =
            self.has.iter().map(|one| identity(one, Some(names), own)).collect();
        self.had.iter().filter(|one| !has.contains(&identity(one, Some(names), own))).collect()
    }

    /// A message that the change removes nothing, for all kinds and namespaces. No cluster
    /// is asked then.
    pub fn nothing(&self) -> Option<String> {
        let has: HashSet<_> = self.has.iter().map(|one| identity(one, None, "")).collect();
        let stays = self.had.iter().all(|one| has.contains(&identity(one, None, "")));
        stays.then(|| match self.had.len() {
            // The user may have named the wrong folder.
            0 => "no objects are removed: OLD is empty".to_owned(),
            1 => "no objects are removed: NEW contains the only object of OLD".to_owned(),
            all => format!("no objects are removed: NEW contains all {all} objects of OLD"),
        })
    }
}

fn identity<'m>(manifest: &'m Manifest, names: Option<&KindNames>, own: &'m str) -> Identity<'m> {
    let Manifest { group, kind, namespace, name, .. } = manifest;
    let info = names.and_then(|names| names.of_object(group, kind));
    let namespace = match info.is_none_or(|info| info.namespaced) {
        true => namespace.as_deref().unwrap_or(own),
        false => "",
    };
    (group, kind, namespace, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Kinds;

    fn manifest(line: &str) -> Manifest {
        let words: Vec<&str> = line.split(' ').collect();
        Manifest {
            group: words[0].trim_matches('-').to_owned(),
            kind: words[1].to_owned(),
            namespace: words.get(3).map(|place| (*place).to_owned()),
            name: words[2].to_owned(),
            origin: String::new(),
        }
    }

    fn change(had: &[&str], has: &[&str]) -> Change {
        let all = |lines: &[&str]| lines.iter().map(|line| manifest(line)).collect();
        Change { old: Vec::new(), new: Vec::new(), had: all(had), has: all(has) }
    }

    #[test]
    fn an_object_in_the_new_manifests_in_another_spelling_is_not_removed() {
        let names = KindNames::of_kinds(&Kinds::default(), &[]);
        for (had, has, removed) in [
            ("- Secret a", "- Secret a", 0),
            ("- Secret a shop", "- Secret a", 0),
            ("- Secret a", "- Secret a shop", 0),
            ("- Secret a other", "- Secret a", 1),
            ("- Secret a", "- Secret b", 1),
            ("- Secret a", "- ConfigMap a", 1),
            ("- Node a shop", "- Node a", 0),
            ("apps Deployment a", "extensions Deployment a", 1),
            ("example.com Gizmo a", "example.com Gizmo a shop", 0),
        ] {
            let change = change(&[had], &[has]);
            assert_eq!(change.removed(&names, "shop").len(), removed, "{had}, {has}");
            // Without a cluster, only equal identities count as the same object.
            assert!(change.nothing().is_none() || removed == 0, "{had}, {has}");
        }
    }

    #[test]
    fn a_change_that_removes_nothing_is_reported_with_the_number_of_objects() {
        let said = |had: &[&str], has: &[&str]| change(had, has).nothing();
        assert_eq!(said(&["- Secret a"], &[]), None);
        let two = said(&["- Secret a", "- Secret b"], &["- Secret b", "- Secret a", "- Node c"]);
        assert_eq!(
            two.as_deref(),
            Some("no objects are removed: NEW contains all 2 objects of OLD")
        );
        let none = said(&[], &["- Secret a"]);
        assert_eq!(none.as_deref(), Some("no objects are removed: OLD is empty"));
    }
}
