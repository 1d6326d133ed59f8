//! Verdicts about a synthetic cluster.

use belay::decide::{AdmissionPhase, ObjectSource, Situation, decide};
use belay::graph::Graph;
use belay::policy::api::DeletionPolicySpec;
use belay::policy::{Policy, PolicySet};
use belay::relations::Catalogue;
use belay::webhook::{Parsed, parse_review, review_response_json};
use serde_json::{Value, json};

/// A time after the generated objects were created.
const NOW: i64 = 1_767_268_800;

/// The answer to a review, from its bytes to the bytes of the answer.
pub fn answer(
    graph: &Graph,
    policies: &PolicySet,
    review: &[u8],
    phase: AdmissionPhase,
) -> Vec<u8> {
    let Parsed::Review(review) = parse_review(review, phase).unwrap() else { panic!("unreadable") };
    let situation = Situation::new(graph, policies, ObjectSource::Files, NOW);
    review_response_json(&review.uid, &decide(&situation, &review), Vec::new())
}

/// One policy for Secrets in use, one for Namespaces with content, and others that do
/// not match: for other kinds, names and namespaces, in equal parts.
pub fn policies(graph: &Graph, number: usize) -> PolicySet {
    let spec = |target: Value, protect: Value| -> DeletionPolicySpec {
        serde_json::from_value(json!({"targets": [target], "protect": protect})).unwrap()
    };
    let used = json!({"whileUsed": {}});
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"]});
    let namespaces = json!({"apiGroups": [""], "resources": ["namespaces"]});
    let mut specs =
        vec![spec(secrets.clone(), used.clone()), spec(namespaces, json!({"whileNotEmpty": {}}))];
    for number in specs.len()..number {
        let mut target = secrets.clone();
        match number % 3 {
            0 => target["resources"] = json!([format!("widgets-{number}")]),
            1 => target["names"] = json!([format!("secret-{number}")]),
            _ => {
                let team = format!("team-of-{number}");
                target["namespaceSelector"] =
                    json!({"matchLabels": {"kubernetes.io/metadata.name": team}});
            }
        }
        specs.push(spec(target, used.clone()));
    }
    let compiled = specs
        .iter()
        .enumerate()
        .map(|(n, spec)| Policy::compile(&format!("policy-{n}"), spec).unwrap());
    PolicySet::new(compiled.collect(), &Catalogue::new(&graph.kinds, &[]).unwrap())
}
