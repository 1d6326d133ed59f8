//! The two webhook configurations as they are installed.
//!
//! Everything is in them but what the leader fills in. Whatever prints them
//! prints these: the command line and the chart.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
    ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};

use super::conditions::Condition::{
    self, AnnotationsChange, Changes, HoldGoes, NoRepeat, NotOurs, SpecFinalizersChange,
};
use crate::decide::AdmissionPhase;
use crate::objects::PROTECT_LABEL;
use crate::policy::exempt_namespaces;
use crate::webhook::LABELLED;

/// The API server waits this long for an answer; belay's own deadline is
/// shorter, so that its words arrive and not a time-out.
pub const TIMEOUT_SECONDS: i32 = 5;

/// One entry of a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name, which a person reads in a denial.
    pub name: &'static str,
    /// In which configuration it stands.
    pub phase: AdmissionPhase,
    /// Whether the request is refused when belay does not answer.
    fails: bool,
    /// Whether it is asked about labelled objects alone.
    labelled: bool,
    conditions: &'static [Condition],
}

const fn entry(name: &'static str, phase: AdmissionPhase, fails: bool) -> Entry {
    Entry { name, phase, fails, labelled: false, conditions: &[] }
}

impl Entry {
    const fn labelled(self) -> Self {
        Self { labelled: true, ..self }
    }

    /// Where it asks: those for labelled objects have a path of their own,
    /// because the API server asks twice about an object of a kind that a
    /// policy names.
    pub(super) fn path(&self) -> String {
        let labelled = if self.labelled { LABELLED } else { "" };
        format!("/{}{labelled}", self.phase.as_str())
    }

    const fn when(self, conditions: &'static [Condition]) -> Self {
        Self { conditions, ..self }
    }
}

/// Every entry, in the order in which they stand.
///
/// Where the second line of defence (the hold, or the next question) still
/// stands without an answer, the request passes; where belay is the only one
/// who could say no, it is refused.
pub const ENTRIES: &[Entry] = &[
    entry("hold.belay.dev", AdmissionPhase::Mutate, false).when(&[HoldGoes, NotOurs]),
    entry("label-hold.belay.dev", AdmissionPhase::Mutate, false)
        .labelled()
        .when(&[HoldGoes, NotOurs]),
    entry("delete.belay.dev", AdmissionPhase::Validate, true).when(&[NoRepeat]),
    entry("cascade.belay.dev", AdmissionPhase::Validate, false).when(&[NoRepeat, Changes]),
    entry("update.belay.dev", AdmissionPhase::Validate, true).when(&[Changes, NotOurs]),
    // The condition of the entry above looks at belay's own annotations alone.
    entry("annotate.belay.dev", AdmissionPhase::Validate, true).when(&[AnnotationsChange, NotOurs]),
    entry("finalize.belay.dev", AdmissionPhase::Validate, true).when(&[SpecFinalizersChange]),
    entry("evict.belay.dev", AdmissionPhase::Validate, false),
    entry("label-delete.belay.dev", AdmissionPhase::Validate, true).labelled().when(&[NoRepeat]),
    entry("label-update.belay.dev", AdmissionPhase::Validate, true)
        .labelled()
        .when(&[Changes, NotOurs]),
];

/// The entries of one configuration.
pub fn entries(phase: AdmissionPhase) -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().filter(move |entry| entry.phase == phase)
}

/// Where the API server finds belay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// By URL, without a path.
    Url(String),
    /// By a Service.
    Service {
        /// Its namespace, which is belay's own.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: i32,
    },
}

/// Both configurations.
#[derive(Debug, Clone, PartialEq)]
pub struct Configurations {
    /// Asked when an object is final.
    pub validating: ValidatingWebhookConfiguration,
    /// Asked while it may still be changed.
    pub mutating: MutatingWebhookConfiguration,
}

/// The configurations for a leader to fill in: every entry, with no rules, no
/// authorities and no path. `account` is the user name of belay's own ServiceAccount.
pub fn skeleton(name: &str, address: &Address, account: &str) -> Configurations {
    let fill = |entry: &Entry| Filling {
        bundle: None,
        rules: None,
        path: None,
        conditions: entry.conditions.iter().filter_map(|c| c.render(Some(account))).collect(),
    };
    build(name, address, ENTRIES.iter(), fill)
}

/// The configurations for a belay that nobody leads: what the label alone
/// protects, complete.
pub fn of_labels(name: &str, address: &Address, bundle: &[u8]) -> Configurations {
    let alone = ["label-delete.belay.dev", "label-hold.belay.dev"];
    let entries = ENTRIES.iter().filter(|entry| alone.contains(&entry.name));
    let fill = |entry: &Entry| {
        let operation = match entry.phase {
            AdmissionPhase::Mutate => "CREATE",
            AdmissionPhase::Validate => "DELETE",
        };
        let rules = Some(vec![super::rules::everything(operation, "*")]);
        let bundle = Some(ByteString(bundle.to_vec()));
        Filling { bundle, rules, path: Some(entry.path()), conditions: Vec::new() }
    };
    build(name, address, entries, fill)
}

/// What differs between an entry that is to be filled in and a complete one.
struct Filling {
    bundle: Option<ByteString>,
    rules: Option<Vec<RuleWithOperations>>,
    path: Option<String>,
    conditions: Vec<MatchCondition>,
}

fn build<'e>(
    name: &str,
    address: &Address,
    entries: impl Iterator<Item = &'e Entry>,
    fill: impl Fn(&Entry) -> Filling,
) -> Configurations {
    let metadata = || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let (mut validating, mut mutating) = (Vec::new(), Vec::new());
    for entry in entries {
        let Filling { bundle, rules, path, conditions } = fill(entry);
        let client_config = client_config(address, bundle, path);
        let conditions = (!conditions.is_empty()).then_some(conditions);
        let failure_policy = Some(if entry.fails { "Fail" } else { "Ignore" }.to_owned());
        let object_selector = entry.labelled.then(labelled);
        match entry.phase {
            AdmissionPhase::Validate => validating.push(ValidatingWebhook {
                name: entry.name.to_owned(),
                admission_review_versions: vec!["v1".to_owned()],
                client_config,
                failure_policy,
                match_conditions: conditions,
                match_policy: Some("Equivalent".to_owned()),
                namespace_selector: Some(not_in_system(address)),
                object_selector,
                rules,
                side_effects: "NoneOnDryRun".to_owned(),
                timeout_seconds: Some(TIMEOUT_SECONDS),
            }),
            AdmissionPhase::Mutate => mutating.push(MutatingWebhook {
                name: entry.name.to_owned(),
                admission_review_versions: vec!["v1".to_owned()],
                client_config,
                failure_policy,
                match_conditions: conditions,
                match_policy: Some("Equivalent".to_owned()),
                namespace_selector: Some(not_in_system(address)),
                object_selector,
                // Another webhook after ours may write the list of finalizers.
                reinvocation_policy: Some("IfNeeded".to_owned()),
                rules,
                side_effects: "NoneOnDryRun".to_owned(),
                timeout_seconds: Some(TIMEOUT_SECONDS),
            }),
        }
    }
    Configurations {
        validating: ValidatingWebhookConfiguration {
            metadata: metadata(),
            webhooks: Some(validating),
        },
        mutating: MutatingWebhookConfiguration { metadata: metadata(), webhooks: Some(mutating) },
    }
}

fn client_config(
    address: &Address,
    bundle: Option<ByteString>,
    path: Option<String>,
) -> WebhookClientConfig {
    let (url, service) = match address {
        Address::Url(base) => (Some(format!("{base}{}", path.unwrap_or_default())), None),
        Address::Service { namespace, name, port } => {
            let service = ServiceReference {
                namespace: namespace.clone(),
                name: name.clone(),
                port: Some(*port),
                path,
            };
            (None, Some(service))
        }
    };
    WebhookClientConfig { ca_bundle: bundle, url, service }
}

fn labelled() -> LabelSelector {
    selector(PROTECT_LABEL, "Exists", Vec::new())
}

fn not_in_system(address: &Address) -> LabelSelector {
    let own = match address {
        Address::Service { namespace, .. } => Some(namespace.as_str()),
        Address::Url(_) => None,
    };
    let namespaces = exempt_namespaces(own).map(str::to_owned).collect();
    selector("kubernetes.io/metadata.name", "NotIn", namespaces)
}

fn selector(key: &str, operator: &str, values: Vec<String>) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then_some(values),
        }]),
        match_labels: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Address {
        Address::Service { namespace: "belay".to_owned(), name: "belay".to_owned(), port: 443 }
    }

    #[test]
    fn a_skeleton_matches_nothing_and_never_asks_about_belay_itself() {
        let account = "system:serviceaccount:belay:belay";
        let Configurations { validating, mutating } = skeleton("belay", &service(), account);
        let (validating, mutating) = (validating.webhooks.unwrap(), mutating.webhooks.unwrap());
        assert_eq!((validating.len(), mutating.len()), (8, 2));
        for entry in &validating {
            assert_eq!((&entry.rules, &entry.client_config.ca_bundle), (&None, &None));
            assert_eq!(entry.client_config.service.as_ref().unwrap().path, None);
            assert_eq!(entry.object_selector.is_some(), entry.name.starts_with("label-"));
            let fails = !["cascade.belay.dev", "evict.belay.dev"].contains(&&*entry.name);
            assert_eq!(entry.failure_policy.as_deref() == Some("Fail"), fails, "{}", entry.name);
            let conditions = entry.match_conditions.iter().flatten();
            let skips = conditions.filter(|c| c.expression.contains(account)).count();
            let updates = entry.name.contains("update") || entry.name.contains("annotate");
            assert_eq!(skips, usize::from(updates), "{}", entry.name);
        }
        for entry in &mutating {
            assert_eq!((&entry.rules, &entry.client_config.ca_bundle), (&None, &None));
            assert_eq!(entry.failure_policy.as_deref(), Some("Ignore"));
            assert_eq!(entry.match_conditions.iter().flatten().count(), 2);
            let selector = entry.namespace_selector.clone().unwrap().match_expressions.unwrap();
            let excluded = selector[0].values.clone().unwrap();
            assert_eq!(excluded, ["kube-system", "kube-node-lease", "belay"]);
        }
    }

    #[test]
    fn without_a_leader_the_label_alone_is_registered_and_complete() {
        let url = Address::Url("https://127.0.0.1:8443".to_owned());
        let Configurations { validating, mutating } = of_labels("belay", &url, b"pem");
        let [delete] = &validating.webhooks.unwrap()[..] else { panic!("one entry") };
        let [hold] = &mutating.webhooks.unwrap()[..] else { panic!("one entry") };
        assert_eq!(
            (&*delete.name, &*hold.name),
            ("label-delete.belay.dev", "label-hold.belay.dev")
        );
        assert_eq!(
            delete.client_config.url.as_deref(),
            Some("https://127.0.0.1:8443/validate/labelled")
        );
        assert_eq!(hold.client_config.ca_bundle, Some(ByteString(b"pem".to_vec())));
        assert_eq!(delete.rules.as_ref().unwrap()[0].operations, Some(vec!["DELETE".to_owned()]));
        assert_eq!(hold.rules.as_ref().unwrap()[0].operations, Some(vec!["CREATE".to_owned()]));
    }
}
