//! An object, by what names it in URLs.

use super::kinds::{KindInfo, full_name, is_namespace};
use super::one_line::{one_line_name, shell_word};

/// An object, by what names it in URLs.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The plural resource name.
    pub resource: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name; empty when it is not known yet.
    pub name: String,
}

impl ObjectRef {
    /// The one of a group and a plural.
    pub fn new((group, resource): (&str, &str), namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The one of a kind.
    pub fn of_kind(info: &KindInfo, namespace: &str, name: &str) -> Self {
        Self::new((&info.group, &info.resource), namespace, name)
    }

    /// Whether it is a Namespace.
    pub fn is_namespace(&self) -> bool {
        is_namespace(&self.group, &self.resource)
    }

    /// The namespace that it is in, or is; empty for another cluster-scoped object.
    pub fn own_namespace(&self) -> &str {
        if self.is_namespace() { &self.name } else { &self.namespace }
    }

    /// `persistentvolumeclaims "data"`, as kubectl names it.
    pub fn quoted(&self) -> String {
        let kind = full_name(&self.group, &self.resource);
        format!("{} \"{}\"", one_line_name(&kind), one_line_name(&self.name))
    }

    /// `persistentvolumeclaims/data -n db`, as a person types it.
    pub fn arguments(&self) -> String {
        let place = match self.namespace.as_str() {
            "" => String::new(),
            namespace => format!(" -n {}", shell_word(&one_line_name(namespace))),
        };
        let kind = full_name(&self.group, &self.resource);
        let object = format!("{}/{}", one_line_name(&kind), one_line_name(&self.name));
        format!("{}{place}", shell_word(&object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_copy_is_one_word_to_a_shell() {
        let typed =
            |name| ObjectRef::new(("rbac.authorization.k8s.io", "roles"), "shop", name).arguments();
        assert_eq!(typed("system:node"), "roles.rbac.authorization.k8s.io/system:node -n shop");
        assert_eq!(
            typed("x;touch y $(id) it's"),
            "'roles.rbac.authorization.k8s.io/x;touch y $(id) it'\\''s' -n shop"
        );
    }
}
