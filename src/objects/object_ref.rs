//! References to objects.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::kinds::{KindInfo, full_name, is_namespace, split_full_name};
use super::one_line::{
    NEXT_STEP_SEPARATOR, namespace_option, one_line_name, quote_if_ambiguous, shell_word,
};

/// A reference to an object, by the parts of its URL.
///
/// Two references are equal if these parts are equal. The kind is only for messages, and
/// callers that only know the resource leave it empty.
#[derive(Debug, Clone, Default)]
pub struct ObjectRef {
    /// The plural resource name.
    pub resource: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name; empty when it is unknown.
    pub name: String,
    /// The kind, such as `PersistentVolumeClaim`; empty when it is unknown.
    pub kind: String,
}

impl ObjectRef {
    /// A reference by group and plural resource name. The kind is unknown.
    pub fn new((group, resource): (&str, &str), namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind: String::new(),
        }
    }

    /// A reference to an object of a known kind.
    pub fn of_kind(info: &KindInfo, namespace: &str, name: &str) -> Self {
        Self::new((&info.group, &info.resource), namespace, name).with_kind(&info.kind)
    }

    /// The same reference with this kind.
    pub fn with_kind(self, kind: &str) -> Self {
        Self { kind: kind.to_owned(), ..self }
    }

    /// Parses the output of `Display`.
    pub fn parse_display(text: &str) -> Self {
        let (resource, object) = text.split_once(' ').unwrap_or(("", text));
        let (resource, group) = split_full_name(resource);
        let (namespace, name) = object.split_once('/').unwrap_or(("", object));
        Self::new((group, resource), namespace, name)
    }

    /// Whether it is a Namespace.
    pub fn is_namespace(&self) -> bool {
        is_namespace(&self.group, &self.resource)
    }

    /// Whether it is a PersistentVolume or a PersistentVolumeClaim.
    pub fn is_volume(&self) -> bool {
        self.group.is_empty()
            && matches!(&*self.resource, "persistentvolumes" | "persistentvolumeclaims")
    }

    /// The namespace of the object, or the name of a Namespace; empty for another
    /// cluster-scoped object.
    pub fn own_namespace(&self) -> &str {
        if self.is_namespace() { &self.name } else { &self.namespace }
    }

    /// Whether it is of this group and resource.
    pub fn is_of(&self, (group, resource): (&str, &str)) -> bool {
        self.group == group && self.resource == resource
    }

    /// `PersistentVolumeClaim db/data`, for a sentence about the object. Uses the plural name if
    /// the kind is unknown.
    pub fn sentence_name(&self) -> String {
        let plural = full_name(&self.group, &self.resource);
        let kind = if self.kind.is_empty() { &plural } else { &self.kind };
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = write_sentence_name(&mut text, kind, self);
        text
    }

    /// `persistentvolumeclaim "data"` or `deployment.apps "web"`, as kubectl prints the subject of
    /// an error, for denials and errors. Uses the plural name if the kind is unknown.
    pub fn quoted(&self) -> String {
        let kind = match self.kind.as_str() {
            "" => full_name(&self.group, &self.resource),
            kind => full_name(&self.group, &kind.to_lowercase()),
        };
        let name = one_line_name(&self.name).replace(NEXT_STEP_SEPARATOR, ";next: ");
        format!("{} {name:?}", one_line_name(&kind))
    }

    /// `persistentvolumeclaims/data -n db`: arguments that kubectl and belay accept, for commands
    /// and lists.
    pub fn arguments(&self) -> String {
        Self::arguments_of(std::slice::from_ref(self))
    }

    /// The arguments for several objects in one namespace.
    pub fn arguments_of(objects: &[Self]) -> String {
        let namespace = objects.first().map_or("", |object| object.namespace.as_str());
        let words = objects.iter().map(|Self { group, resource, name, .. }| {
            let kind = full_name(group, resource);
            let object = format!("{}/{}", one_line_name(&kind), one_line_name(name));
            shell_word(&object)
        });
        words.collect::<Vec<_>>().join(" ") + &namespace_option(namespace)
    }

    fn url_parts(&self) -> [&str; 4] {
        [&self.resource, &self.group, &self.namespace, &self.name]
    }
}

impl PartialEq for ObjectRef {
    fn eq(&self, other: &Self) -> bool {
        self.url_parts() == other.url_parts()
    }
}

impl Eq for ObjectRef {}

impl PartialOrd for ObjectRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectRef {
    fn cmp(&self, other: &Self) -> Ordering {
        self.url_parts().cmp(&other.url_parts())
    }
}

impl Hash for ObjectRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.url_parts().hash(state);
    }
}

/// Writes `PersistentVolumeClaim db/data`: a kind, and the namespace and name of an object, in a
/// sentence.
pub fn write_sentence_name(
    out: &mut impl fmt::Write,
    kind: &str,
    object: &ObjectRef,
) -> fmt::Result {
    let ObjectRef { namespace, name, .. } = object;
    let slash = if namespace.is_empty() { "" } else { "/" };
    let [kind, namespace, name] = [kind, namespace, name].map(quote_if_ambiguous);
    write!(out, "{kind} {namespace}{slash}{name}")
}

/// The form in statuses: `deployments.apps shop/web`. [`ObjectRef::parse_display`] reads it.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, group, namespace, name, .. } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {namespace}{slash}{name}", full_name(group, resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_display_form() {
        for (object, text) in [
            (ObjectRef::new(("apps", "deployments"), "shop", "web"), "deployments.apps shop/web"),
            (ObjectRef::new(("", "nodes"), "", "n-1"), "nodes n-1"),
        ] {
            assert_eq!(object.to_string(), text);
            assert_eq!(ObjectRef::parse_display(text), object);
        }
    }

    #[test]
    fn arguments_are_quoted_for_a_shell() {
        let arguments =
            |name| ObjectRef::new(("rbac.authorization.k8s.io", "roles"), "shop", name).arguments();
        assert_eq!(arguments("system:node"), "roles.rbac.authorization.k8s.io/system:node -n shop");
        assert_eq!(
            arguments("x;touch y $(id) it's"),
            "'roles.rbac.authorization.k8s.io/x;touch y $(id) it'\\''s' -n shop"
        );
    }
}
