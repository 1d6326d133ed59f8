//! The kinds in files, from CRDs. For a custom object without a CRD, the kind is guessed.

use super::FileError;
use super::documents::Document;
use super::tree::{Content, Node};
use crate::objects::{KindInfo, Kinds};
use crate::policy::api;

/// The group of CRDs.
const EXTENSIONS: &str = "apiextensions.k8s.io";

impl Document {
    /// Whether the document is a CustomResourceDefinition.
    pub fn is_crd(&self) -> bool {
        self.group == EXTENSIONS && self.kind == "CustomResourceDefinition"
    }
}

/// Adds all kinds of these documents. Returns the guessed kinds, for which the files contain no
/// CRD.
pub fn learn(kinds: &mut Kinds, documents: &[Document]) -> Result<Vec<String>, FileError> {
    for document in documents.iter().filter(|document| document.is_crd()) {
        add_crd(kinds, document)?;
    }
    let mut guessed: Vec<KindInfo> = Vec::new();
    for Document { group, version, kind, node, .. } in documents {
        // `own` reads belay's own objects, whether the files contain their CRDs or not.
        if group == api::GROUP || kinds.find(group, kind).is_some() {
            continue;
        }
        let namespaced = node.at(&["metadata", "namespace"]).and_then(Node::text).is_some();
        match guessed.iter_mut().find(|info| info.group == *group && info.kind == *kind) {
            None => {
                guessed.push(Kinds::custom(group, version, kind, &plural(kind), namespaced));
            }
            Some(info) => {
                info.namespaced |= namespaced;
                if !info.versions.contains(version) {
                    info.versions.push(version.clone());
                }
            }
        }
    }
    let names = guessed.iter().map(KindInfo::full_name).collect();
    guessed.into_iter().for_each(|info| {
        kinds.learn(info);
    });
    Ok(names)
}

fn add_crd(kinds: &mut Kinds, document: &Document) -> Result<(), FileError> {
    let text = |field: &'static str| {
        let keys: Vec<&str> = field.split('.').collect();
        let text = document.node.at(&keys).and_then(Node::text).filter(|text| !text.is_empty());
        text.ok_or_else(|| document.field_error(field, "expected text"))
    };
    let (group, kind) = (text("spec.group")?, text("spec.names.kind")?);
    let resource = text("spec.names.plural")?;
    let namespaced = match text("spec.scope")? {
        "Namespaced" => true,
        "Cluster" => false,
        _ => return Err(document.field_error("spec.scope", "expected Namespaced or Cluster")),
    };
    let mut versions = Vec::new();
    for version in document.node.at(&["spec", "versions"]).map_or(&[][..], Node::items) {
        let served =
            version.get("served").is_some_and(|n| matches!(n.content, Content::Bool(true)));
        versions.extend(version.get("name").and_then(Node::text).filter(|_| served));
    }
    // Files don't change the built-in kinds of Kubernetes.
    if Kinds::is_built_in(group, resource) {
        return Ok(());
    }
    let Some((first, rest)) = versions.split_first() else {
        return Err(document.field_error("spec.versions", "no version is served; serve one"));
    };
    let mut info = Kinds::custom(group, first, kind, resource, namespaced);
    info.versions.extend(rest.iter().map(|version| (*version).to_owned()));
    kinds.learn(info);
    Ok(())
}

/// The most likely plural. This is kubectl's guess, except for a vowel before a final y, for
/// which kubectl's guess is wrong.
fn plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.strip_suffix('y') {
        _ if singular == "endpoints" => singular,
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if singular.ends_with(['s', 'x']) => format!("{singular}es"),
        _ if singular.ends_with("ch") || singular.ends_with("sh") => format!("{singular}es"),
        _ => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn plurals_are_those_of_english() {
        for (kind, expected) in [
            ("Widget", "widgets"),
            ("Policy", "policies"),
            ("Ingress", "ingresses"),
            ("Box", "boxes"),
            ("Patch", "patches"),
            ("Mesh", "meshes"),
            ("Gateway", "gateways"),
        ] {
            assert_eq!(super::plural(kind), expected);
        }
    }
}
