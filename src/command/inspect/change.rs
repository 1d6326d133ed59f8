//! A change of manifests: the objects in the old manifests that the new ones don't
//! contain.

use std::collections::HashSet;
use std::path::Path;

use crate::command::CommandError;
use crate::command::files::{File, Manifest, read_manifests, read_texts};
use crate::objects::KindNames;

/// Manifests before and after a change.
pub struct Change {
    pub old: Vec<File>,
    pub new: Vec<File>,
    old_objects: Vec<Manifest>,
    new_objects: Vec<Manifest>,
}

/// The identity of objects: group, kind, namespace and name, without the version.
type Identity<'m> = (&'m str, &'m str, &'m str, &'m str);

impl Change {
    pub fn read(old: &Path, new: &Path) -> Result<Self, CommandError> {
        let read = |path: &Path| read_texts(&[path.to_owned()]);
        let (old, new) = (read(old)?, read(new)?);
        let (old_objects, new_objects) = (read_manifests(&old)?, read_manifests(&new)?);
        Ok(Self { old, new, old_objects, new_objects })
    }

    /// The removed objects. `default_namespace` is the namespace of manifests without one.
    /// The namespace of a cluster-scoped object is ignored.
    pub fn removed(&self, names: &KindNames, default_namespace: &str) -> Vec<&Manifest> {
        let identity = |manifest| identity(manifest, Some(names), default_namespace);
        let new: HashSet<Identity<'_>> = self.new_objects.iter().map(identity).collect();
        self.old_objects.iter().filter(|manifest| !new.contains(&identity(manifest))).collect()
    }

    /// A message if the change removes no object, whatever the kinds and the default
    /// namespace are. The command then reads no cluster.
    pub fn nothing_removed(&self) -> Option<String> {
        let identity = |manifest| identity(manifest, None, "");
        let new: HashSet<_> = self.new_objects.iter().map(identity).collect();
        let removes_none =
            self.old_objects.iter().all(|manifest| new.contains(&identity(manifest)));
        removes_none.then(|| match self.old_objects.len() {
            // The user may have named the wrong folder.
            0 => "no objects are removed: OLD is empty".to_owned(),
            1 => "no objects are removed: NEW contains the only object of OLD".to_owned(),
            all => format!("no objects are removed: NEW contains all {all} objects of OLD"),
        })
    }
}

fn identity<'m>(
    manifest: &'m Manifest,
    names: Option<&KindNames>,
    default_namespace: &'m str,
) -> Identity<'m> {
    let Manifest { group, kind, namespace, name, .. } = manifest;
    let info = names.and_then(|names| names.of_object(group, kind));
    let namespace = match info.is_none_or(|info| info.namespaced) {
        true => namespace.as_deref().unwrap_or(default_namespace),
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
            namespace: words.get(3).map(|namespace| (*namespace).to_owned()),
            name: words[2].to_owned(),
            origin: String::new(),
        }
    }

    fn change(old: &[&str], new: &[&str]) -> Change {
        let all = |lines: &[&str]| lines.iter().map(|line| manifest(line)).collect();
        Change { old: Vec::new(), new: Vec::new(), old_objects: all(old), new_objects: all(new) }
    }

    #[test]
    fn an_object_in_the_new_manifests_in_another_spelling_is_not_removed() {
        let names = KindNames::of_kinds(&Kinds::default(), &[]);
        for (old, new, removed) in [
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
            let change = change(&[old], &[new]);
            assert_eq!(change.removed(&names, "shop").len(), removed, "{old}, {new}");
            // Without a cluster, only equal identities count as the same object.
            assert!(change.nothing_removed().is_none() || removed == 0, "{old}, {new}");
        }
    }

    #[test]
    fn a_change_that_removes_nothing_is_reported_with_the_number_of_objects() {
        let message = |old: &[&str], new: &[&str]| change(old, new).nothing_removed();
        assert_eq!(message(&["- Secret a"], &[]), None);
        let two = message(&["- Secret a", "- Secret b"], &["- Secret b", "- Secret a", "- Node c"]);
        assert_eq!(
            two.as_deref(),
            Some("no objects are removed: NEW contains all 2 objects of OLD")
        );
        let empty = message(&[], &["- Secret a"]);
        assert_eq!(empty.as_deref(), Some("no objects are removed: OLD is empty"));
    }
}
