//! Compiles a Relation.

use super::api::{RelatedKind, RelationSpec, Strength as ApiStrength};
use crate::graph::Strength;
use crate::relations::{CustomRelation, CustomTarget, Path, PathError};

/// Compiles a relation. An error has the wrong field and the reason.
pub fn compile(name: &str, spec: &RelationSpec) -> Result<CustomRelation, (String, String)> {
    let RelationSpec {
        from,
        to,
        to_ref,
        name_field_path,
        namespace_field_path,
        selector_field_path,
        strength,
        cross_namespace_strength,
        until,
    } = spec;
    let namespace = namespace_field_path.as_deref();
    let namespace = namespace.map(|text| path("namespaceFieldPath", text)).transpose()?;
    let name_path = || path("nameFieldPath", name_field_path.as_deref().unwrap_or_default());
    let kind = |kind: &RelatedKind| (kind.group.clone(), kind.resource.clone());
    let to = match (to, to_ref, selector_field_path) {
        (Some(to), _, Some(selector)) => {
            let (group, resource) = kind(to);
            let selector = path("selectorFieldPath", selector)?;
            CustomTarget::Selector { group, resource, selector }
        }
        (Some(to), _, None) => {
            let (group, resource) = kind(to);
            CustomTarget::Name { group, resource, name: name_path()?, namespace }
        }
        (None, Some(to_ref), _) => CustomTarget::Typed {
            group: path("toRef.groupFieldPath", &to_ref.group_field_path)?,
            kind: path("toRef.kindFieldPath", &to_ref.kind_field_path)?,
            name: name_path()?,
            namespace,
        },
        // The validation rules of the CRD exclude this.
        (None, None, _) => return Err(("spec.to".to_owned(), "give to or toRef".to_owned())),
    };
    let until = match until {
        Some(until) => Some((path("until.fieldPath", &until.field_path)?, until.equals.as_str())),
        None => None,
    };
    let from = (from.group.as_str(), from.resource.as_str());
    let compiled = CustomRelation::new(name, from, to, compile_strength(*strength), until);
    let mut compiled =
        compiled.map_err(|error| (format!("spec.{}", error.field), error.to_string()))?;
    compiled.cross_namespace_strength = cross_namespace_strength.map(compile_strength);
    Ok(compiled)
}

fn compile_strength(strength: ApiStrength) -> Strength {
    match strength {
        ApiStrength::Needs => Strength::Needs,
        ApiStrength::Mentions => Strength::Mentions,
        ApiStrength::Produces => Strength::Produces,
    }
}

/// Parses the path in a field of the spec. The error has one line. The `Display` of [`PathError`]
/// has two lines, because the second one has an arrow.
fn path(field: &str, text: &str) -> Result<Path, (String, String)> {
    Path::parse(text).map_err(|PathError { column, expected, .. }| {
        (format!("spec.{field}"), format!("{expected} at character {} of this path", column + 1))
    })
}
