//! Webhooks that the API server calls before it changes an object, and which objects they
//! match.

use std::collections::HashMap;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use serde::Deserialize as _;
use serde_json::Value;

use super::TerminatingObject;
use crate::objects::{KindInfo, list_at, text_at};
use crate::policy::LabelRequirements;
use crate::policy::api::LabelSelector;

/// A Service, by its namespace and name.
pub(super) type Service = (String, String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceProblem {
    /// Whether the Service does not exist.
    pub missing: bool,
    /// The problem as text.
    pub why: String,
}

/// The labels of Namespaces, by their names.
pub type LabelsByNamespace = HashMap<String, Value>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WebhookAddress {
    /// A Service, by its namespace and name.
    Service(Service),
    /// A host, about which the cluster has no data.
    Host(String),
    /// The configuration has no address.
    #[default]
    Unknown,
}

impl WebhookAddress {
    /// Parses a `clientConfig`. Keeps only the host of a URL, because the rest may
    /// contain secrets.
    pub(super) fn parse(config: &Value) -> Self {
        let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str);
        if let Some(service) = text("/service/namespace").zip(text("/service/name")) {
            return Self::Service((service.0.to_owned(), service.1.to_owned()));
        }
        let Some((_, rest)) = text("/url").and_then(|url| url.split_once("://")) else {
            return Self::Unknown;
        };
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        Self::Host(host.rsplit('@').next().unwrap_or_default().to_owned())
    }

    pub(super) fn service(&self) -> Option<&Service> {
        match self {
            Self::Service(service) => Some(service),
            Self::Host(_) | Self::Unknown => None,
        }
    }
}

/// A webhook that the API server calls before a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Webhook {
    /// The webhook configuration, as kubectl accepts it.
    pub configuration: String,
    /// The webhook's name.
    pub name: String,
    pub address: WebhookAddress,
    /// The problem of its Service; `None` if none is known.
    pub problem: Option<ServiceProblem>,
    /// Whether the API server rejects the write if the webhook does not answer (failurePolicy
    /// Fail).
    pub required: bool,
    /// The requests that it matches.
    pub rules: Vec<RuleWithOperations>,
    /// The selector of Namespaces.
    pub namespaces: LabelRequirements,
    /// The selector of objects.
    pub objects: LabelRequirements,
    /// Whether it has match conditions, which only the API server can evaluate.
    pub has_conditions: bool,
}

impl Webhook {
    /// Parses a webhook of a webhook configuration.
    pub(super) fn read(kind: &str, configuration: &Value, hook: &Value) -> Self {
        let rules = list_at(hook, "/rules").iter();
        // A selector that can't be parsed counts as matching.
        let selector = |field: &str| {
            let selector = hook.get(field).cloned().unwrap_or_default();
            LabelRequirements::compile(
                serde_json::from_value::<LabelSelector>(selector).ok().as_ref(),
            )
        };
        Self {
            configuration: format!("{kind}/{}", text_at(configuration, "/metadata/name")),
            name: text_at(hook, "/name").to_owned(),
            address: hook.get("clientConfig").map(WebhookAddress::parse).unwrap_or_default(),
            problem: None,
            required: hook["failurePolicy"] != "Ignore",
            rules: rules.filter_map(|rule| RuleWithOperations::deserialize(rule).ok()).collect(),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            has_conditions: !list_at(hook, "/matchConditions").is_empty(),
        }
    }

    /// Whether no client can remove a finalizer from this object, because the webhook
    /// does not answer.
    pub fn keeps(&self, found: &TerminatingObject, namespace_labels: &LabelsByNamespace) -> bool {
        self.required && self.problem.is_some() && self.is_called_for(found, namespace_labels)
    }

    /// Whether the API server calls the webhook when a client removes a finalizer from this object.
    /// A Namespace with unknown labels may match.
    pub fn is_called_for(
        &self,
        found: &TerminatingObject,
        namespace_labels: &LabelsByNamespace,
    ) -> bool {
        let own = found.object.pointer("/metadata/labels");
        let labels_of_namespace =
            match (found.object_ref.namespace.as_str(), found.object_ref.is_namespace()) {
                ("", true) => Some(own),
                ("", false) => None,
                (name, _) => namespace_labels.get(name).map(Some),
            };
        finalizer_subresources(found).any(|subresource| {
            self.rules.iter().any(|rule| updates(rule, &found.info, subresource))
        }) && self.objects.matches(|key| own?.get(key)?.as_str())
            && labels_of_namespace
                .is_none_or(|labels| self.namespaces.matches(|key| labels?.get(key)?.as_str()))
    }
}

/// Whether a rule covers updates of this subresource of a kind.
fn updates(rule: &RuleWithOperations, info: &KindInfo, subresource: &str) -> bool {
    let has = |list: &Option<Vec<String>>, name: &str| {
        list.iter().flatten().any(|item| item == "*" || item == name)
    };
    let covers = |entry: &String| {
        let (resource, sub) = entry.split_once('/').unwrap_or((entry, ""));
        (resource == "*" || resource == info.resource) && (sub == "*" || sub == subresource)
    };
    let is_in_scope = match rule.scope.as_deref() {
        Some("Namespaced") => info.namespaced,
        Some("Cluster") => !info.namespaced,
        _ => true,
    };
    is_in_scope
        && has(&rule.api_groups, &info.group)
        && has(&rule.operations, "UPDATE")
        && rule.resources.iter().flatten().any(covers)
}

/// The subresources through which clients remove the finalizers of this object: none for its
/// metadata, and `finalize` for the spec of a Namespace.
fn finalizer_subresources(found: &TerminatingObject) -> impl Iterator<Item = &'static str> {
    let has = |pointer: &str| !list_at(&found.object, pointer).is_empty();
    let spec = found.object_ref.is_namespace() && has("/spec/finalizers");
    let metadata = has("/metadata/finalizers").then_some("");
    metadata.into_iter().chain(spec.then_some("finalize"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::{Kinds, ObjectRef};

    fn found(resource: &str, object: Value) -> TerminatingObject {
        let [namespace, name] =
            ["/metadata/namespace", "/metadata/name"].map(|pointer| text_at(&object, pointer));
        TerminatingObject {
            object_ref: ObjectRef::new(("", resource), namespace, name),
            uid: String::new(),
            since: jiff::Timestamp::MIN,
            info: Kinds::custom("", "v1", "Any", resource, true),
            object,
            unread: None,
        }
    }

    fn settings() -> TerminatingObject {
        found(
            "configmaps",
            json!({"metadata": {"namespace": "shop", "finalizers": ["x.dev/y"],
                "labels": {"app": "web"}}}),
        )
    }

    fn hook(fields: Value) -> Webhook {
        let mut hook = json!({"name": "guard.test", "namespaceSelector": {}, "objectSelector": {},
            "rules": [{"apiGroups": [""], "resources": ["*"], "operations": ["UPDATE"]}]});
        for (name, value) in fields.as_object().into_iter().flatten() {
            hook[name] = value.clone();
        }
        let configuration = json!({"metadata": {"name": "guard"}});
        Webhook::read("validatingwebhookconfiguration", &configuration, &hook)
    }

    #[test]
    fn parses_a_webhook_with_its_rules() {
        let found = hook(json!({}));
        assert_eq!(found.configuration, "validatingwebhookconfiguration/guard");
        assert_eq!((&found.name[..], found.required), ("guard.test", true));
        assert_eq!(found.rules[0].operations, Some(vec!["UPDATE".to_owned()]));
        assert!(!found.has_conditions);
        let conditions = json!({"matchConditions": [{"name": "a", "expression": "true"}]});
        assert!(hook(conditions).has_conditions);
        assert!(!hook(json!({"failurePolicy": "Ignore"})).required);
    }

    #[test]
    fn the_address_of_a_webhook_is_only_its_host() {
        let address = |config: Value| hook(json!({"clientConfig": config})).address;
        let service = json!({"service": {"namespace": "a", "name": "b", "path": "/x"}});
        assert_eq!(address(service), WebhookAddress::Service(("a".to_owned(), "b".to_owned())));
        for url in ["https://guard.test:8443", "https://me:secret@guard.test:8443/x?token=secret"] {
            assert_eq!(
                address(json!({"url": url})),
                WebhookAddress::Host("guard.test:8443".to_owned())
            );
        }
        assert_eq!(address(json!({})), WebhookAddress::Unknown);
    }

    #[test]
    fn only_a_required_webhook_that_does_not_answer_keeps_an_object() {
        let mut hook = hook(json!({}));
        assert!(!hook.keeps(&settings(), &LabelsByNamespace::new()));
        hook.problem = Some(ServiceProblem { missing: true, why: "gone".to_owned() });
        assert!(hook.keeps(&settings(), &LabelsByNamespace::new()));
        hook.required = false;
        assert!(!hook.keeps(&settings(), &LabelsByNamespace::new()));
    }

    #[test]
    fn rules_are_read_as_the_api_server_reads_them() {
        let rule = |resource: &str, operation: &str| {
            let rule =
                json!([{"apiGroups": [""], "resources": [resource], "operations": [operation]}]);
            hook(json!({"rules": rule}))
        };
        let places = LabelsByNamespace::new();
        for (hook, asked) in [
            (rule("configmaps", "UPDATE"), true),
            (rule("configmaps/*", "UPDATE"), true),
            (rule("*", "*"), true),
            (rule("*/*", "*"), true),
            (rule("configmaps", "CREATE"), false),
            (rule("configmaps/status", "UPDATE"), false),
            (rule("secrets", "UPDATE"), false),
            (rule("secrets/*", "UPDATE"), false),
        ] {
            assert_eq!(hook.is_called_for(&settings(), &places), asked, "{hook:?}");
        }
        // Without a finalizer nothing has to be written.
        let free = found("configmaps", json!({"metadata": {"namespace": "shop"}}));
        assert!(!rule("*", "*").is_called_for(&free, &places));
        // The namespace controller writes a subresource.
        let object = json!({"metadata": {"name": "shop"}, "spec": {"finalizers": ["kubernetes"]}});
        let namespace = found("namespaces", object);
        for (resource, asked) in
            [("namespaces/finalize", true), ("namespaces/*", true), ("namespaces", false)]
        {
            let hook = rule(resource, "UPDATE");
            assert_eq!(hook.is_called_for(&namespace, &places), asked, "{resource}");
        }
    }

    #[test]
    fn selectors_limit_the_objects_of_a_webhook() {
        let places = |labels: Value| LabelsByNamespace::from([("shop".to_owned(), labels)]);
        let selects =
            |field: &str, label: &str| hook(json!({field: {"matchLabels": {label: "web"}}}));
        let of_objects = |label: &str| selects("objectSelector", label);
        assert!(of_objects("app").is_called_for(&settings(), &LabelsByNamespace::new()));
        assert!(!of_objects("team").is_called_for(&settings(), &LabelsByNamespace::new()));
        let of_namespaces = selects("namespaceSelector", "team");
        assert!(of_namespaces.is_called_for(&settings(), &places(json!({"team": "web"}))));
        assert!(!of_namespaces.is_called_for(&settings(), &places(json!({"team": "db"}))));
        // An object in a namespace with unknown labels may match; a cluster-scoped object
        // matches.
        assert!(of_namespaces.is_called_for(&settings(), &LabelsByNamespace::new()));
        let volume = found("persistentvolumes", json!({"metadata": {"finalizers": ["x.dev/y"]}}));
        assert!(of_namespaces.is_called_for(&volume, &LabelsByNamespace::new()));
        // A Namespace is selected by its own labels.
        let object = |team: &str| {
            found(
                "namespaces",
                json!({"metadata": {"name": "shop", "finalizers": ["x.dev/y"],
                "labels": {"team": team}}}),
            )
        };
        assert!(of_namespaces.is_called_for(&object("web"), &LabelsByNamespace::new()));
        assert!(!of_namespaces.is_called_for(&object("db"), &LabelsByNamespace::new()));
    }
}
