//! The required node affinity of a volume: the nodes from which it can be used.

use serde_json::Value;

use crate::objects::{list_at, text_at, texts_at};

/// The terms of `spec.nodeAffinity.required`, one of which must match a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAffinity {
    terms: Vec<Vec<Expression>>,
}

/// An expression of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expression {
    /// The label; `None` for the name of the node.
    label: Option<String>,
    operator: String,
    values: Vec<String>,
}

impl NodeAffinity {
    /// The affinity of a PersistentVolume; `None` if every node can use it.
    pub fn of_volume(volume: &Value) -> Option<Self> {
        let terms = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms")?.as_array()?;
        let term = |term: &Value| {
            let labels = list_at(term, "/matchExpressions").iter();
            let fields = list_at(term, "/matchFields").iter();
            let labels = labels.map(|label| Expression::read(label, true));
            labels.chain(fields.map(|field| Expression::read(field, false))).collect()
        };
        Some(Self { terms: terms.iter().map(term).collect() })
    }

    /// Whether a node with this name and these labels can use the volume.
    pub fn allows<'n>(&self, name: &str, label: impl Fn(&str) -> Option<&'n str>) -> bool {
        let matches = |expression: &Expression| match &expression.label {
            Some(key) => expression.matches(label(key)),
            None => expression.matches(Some(name)),
        };
        // A term without expressions matches no node.
        self.terms.iter().any(|term| !term.is_empty() && term.iter().all(matches))
    }
}

impl Expression {
    fn read(expression: &Value, is_label: bool) -> Self {
        let text = |pointer: &str| text_at(expression, pointer).to_owned();
        let values = texts_at(expression, "/values").into_iter().map(str::to_owned).collect();
        // Kubernetes allows no other field than metadata.name.
        Self { label: is_label.then(|| text("/key")), operator: text("/operator"), values }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = value.is_some_and(|value| self.values.iter().any(|v| v == value));
        let compare = || {
            let number = |text: &str| text.parse::<i64>().ok();
            Some(number(value?)?.cmp(&number(self.values.first()?)?))
        };
        match self.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare().is_some_and(std::cmp::Ordering::is_gt),
            "Lt" => compare().is_some_and(std::cmp::Ordering::is_lt),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_is_usable_from_the_nodes_that_one_term_matches() {
        let label = |key: &str| match key {
            "zone" => Some("a"),
            "rank" => Some("5"),
            _ => None,
        };
        let expression = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        let labels = |all: Value| json!([{"matchExpressions": all}]);
        let zone = |operator, value| labels(json!([expression("zone", operator, json!([value]))]));
        let rank = |operator, value| labels(json!([expression("rank", operator, json!([value]))]));
        let name =
            |value| json!([{"matchFields": [expression("metadata.name", "In", json!([value]))]}]);
        for (terms, allows) in [
            (zone("In", "a"), true),
            (zone("In", "b"), false),
            (zone("NotIn", "b"), true),
            (labels(json!([expression("other", "NotIn", json!(["x"]))])), true),
            (labels(json!([expression("other", "Exists", json!([]))])), false),
            (labels(json!([expression("other", "DoesNotExist", json!([]))])), true),
            (rank("Gt", "4"), true),
            (rank("Lt", "5"), false),
            (name("n1"), true),
            (name("n2"), false),
            (json!([{}]), false),
            (json!([zone("In", "b")[0], name("n1")[0]]), true),
        ] {
            let volume =
                json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
            let affinity = NodeAffinity::of_volume(&volume).unwrap();
            assert_eq!(affinity.allows("n1", label), allows, "{terms}");
        }
        assert_eq!(NodeAffinity::of_volume(&json!({"spec": {}})), None);
    }
}
