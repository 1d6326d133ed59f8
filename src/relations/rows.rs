//! The built-in relations.

use std::collections::BTreeSet;

use crate::graph::Strength::{self, Mentions, Needs};

/// The kind of a user, and the base path for the paths of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowSource {
    /// API group.
    pub group: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// The path at which the row's own paths begin.
    pub base: &'static str,
    /// Whether every edge is only a mention, because the objects are history.
    pub history: bool,
}

/// A condition on a need. While it is met, the edge is only a mention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndCondition {
    /// A path in the object that has the edge.
    pub path: &'static str,
    /// The values of the field that meet the condition. `""` stands for any value except null and
    /// false.
    pub equals: &'static [&'static str],
}

/// The possible kinds of the used object, for a reference that contains a kind and a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameableKinds<List> {
    /// All kinds.
    Any,
    /// All namespaced kinds: the reference is local.
    Namespaced,
    /// These kinds.
    Only(List),
}

/// The target of a row. Its paths are relative to the value at the row's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowTarget {
    /// An object of a known kind by name. If `namespace` is empty or selects nothing, the
    /// object is in the namespace of the user.
    Name {
        /// API group.
        group: &'static str,
        /// Plural name.
        resource: &'static str,
        /// The path of the name.
        name: &'static str,
        /// The path of the namespace.
        namespace: &'static str,
        /// The path of the uid.
        uid: &'static str,
    },
    /// An object of the kind in the reference, which has `apiVersion` or `apiGroup`, `kind`
    /// and `name`.
    Typed {
        /// The group, if the reference has none.
        group: &'static str,
        /// The path of the namespace; empty if the reference can only name objects in the
        /// namespace of the user.
        namespace: &'static str,
        /// The kinds that it can name, as group and plural name.
        kinds: NameableKinds<&'static [(&'static str, &'static str)]>,
    },
    /// Objects of a kind by a plain map of labels.
    PlainLabels {
        /// API group.
        group: &'static str,
        /// Plural name.
        resource: &'static str,
    },
    /// Objects of a kind by a LabelSelector.
    Labels {
        /// API group.
        group: &'static str,
        /// Plural name.
        resource: &'static str,
    },
    /// The claims that a StatefulSet creates from this template, one for each ordinal.
    Claims {
        /// API group.
        group: &'static str,
        /// Plural name.
        resource: &'static str,
    },
    /// The claim that Kubernetes creates for this ephemeral volume of a Pod.
    EphemeralClaim {
        /// API group.
        group: &'static str,
        /// Plural name.
        resource: &'static str,
    },
    /// The object of a kind with the same name as the user.
    SameName {
        /// API group.
        group: &'static str,
        /// Plural name.
        resource: &'static str,
    },
}

/// One relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its stable name.
    pub name: &'static str,
    /// The kinds that have it.
    pub from: &'static [RowSource],
    /// The paths of the reference, from the base of each kind. `c[]` means containers,
    /// initContainers and ephemeralContainers.
    pub paths: &'static [&'static str],
    /// The used object.
    pub to: RowTarget,
    /// What the edge means.
    pub strength: Strength,
    /// The path of the field that makes the reference optional.
    pub optional: &'static str,
    /// While this condition is met, the edge is only a mention.
    pub ends_when: Option<EndCondition>,
}

const fn from(group: &'static str, resource: &'static str, base: &'static str) -> RowSource {
    RowSource { group, resource, base, history: false }
}

const ROLES: &[(&str, &str)] =
    &[("rbac.authorization.k8s.io", "roles"), ("rbac.authorization.k8s.io", "clusterroles")];

/// The built-in kinds that can be the data source of a claim.
const CLAIM_SOURCES: &[(&str, &str)] = &[CLAIM];

/// The kinds with a Pod spec.
const POD_SPECS: &[RowSource] = &[
    from("", "pods", "spec"),
    from("", "podtemplates", "template.spec"),
    from("", "replicationcontrollers", "spec.template.spec"),
    from("apps", "deployments", "spec.template.spec"),
    from("apps", "statefulsets", "spec.template.spec"),
    from("apps", "daemonsets", "spec.template.spec"),
    from("apps", "replicasets", "spec.template.spec"),
    from("batch", "jobs", "spec.template.spec"),
    from("batch", "cronjobs", "spec.jobTemplate.spec.template.spec"),
    from("argoproj.io", "rollouts", "spec.template.spec"),
    // Only a rollback uses the objects that a ControllerRevision names.
    RowSource {
        group: "apps",
        resource: "controllerrevisions",
        base: "data.spec.template.spec",
        history: true,
    },
];

/// The kinds with a Pod template.
const POD_TEMPLATES: &[RowSource] = match POD_SPECS {
    [_pods, templates @ ..] => templates,
    [] => &[],
};

const PODS: &[RowSource] = &[from("", "pods", "")];
const CLAIMS: &[RowSource] = &[from("", "persistentvolumeclaims", "")];
const VOLUMES: &[RowSource] = &[from("", "persistentvolumes", "")];
const CLAIMS_AND_VOLUMES: &[RowSource] =
    &[from("", "persistentvolumeclaims", ""), from("", "persistentvolumes", "")];
const STATEFUL_SETS: &[RowSource] = &[from("apps", "statefulsets", "")];
const STORAGE_CLASSES: &[RowSource] = &[from("storage.k8s.io", "storageclasses", "")];
const ATTACHMENTS: &[RowSource] = &[from("storage.k8s.io", "volumeattachments", "")];
const INGRESSES: &[RowSource] = &[from("networking.k8s.io", "ingresses", "")];
const NETWORK_POLICIES: &[RowSource] = &[from("networking.k8s.io", "networkpolicies", "")];
const ENDPOINT_SLICES: &[RowSource] = &[from("discovery.k8s.io", "endpointslices", "")];
const BINDINGS: &[RowSource] = &[
    from("rbac.authorization.k8s.io", "rolebindings", ""),
    from("rbac.authorization.k8s.io", "clusterrolebindings", ""),
];
const WEBHOOKS: &[RowSource] = &[
    from("admissionregistration.k8s.io", "validatingwebhookconfigurations", ""),
    from("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
];

const ADMISSION_POLICIES: &[RowSource] = &[
    from("admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    from("admissionregistration.k8s.io", "mutatingadmissionpolicies", ""),
    from("admissionregistration.k8s.io", "validatingadmissionpolicybindings", ""),
    from("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ""),
];

const SECRET: (&str, &str) = ("", "secrets");
const CONFIG_MAP: (&str, &str) = ("", "configmaps");
const CLAIM: (&str, &str) = ("", "persistentvolumeclaims");
const SERVICE: (&str, &str) = ("", "services");
const SERVICE_ACCOUNT: (&str, &str) = ("", "serviceaccounts");
const NODE: (&str, &str) = ("", "nodes");
const NAMESPACE: (&str, &str) = ("", "namespaces");
const ATTRIBUTES_CLASS: (&str, &str) = ("storage.k8s.io", "volumeattributesclasses");
const STORAGE_CLASS: (&str, &str) = ("storage.k8s.io", "storageclasses");
const CSI_DRIVER: (&str, &str) = ("storage.k8s.io", "csidrivers");
const DEVICE_CLASS: (&str, &str) = ("resource.k8s.io", "deviceclasses");

const fn named(kind: (&'static str, &'static str), name: &'static str) -> RowTarget {
    RowTarget::Name { group: kind.0, resource: kind.1, name, namespace: "", uid: "" }
}

const fn named_in(
    kind: (&'static str, &'static str),
    name: &'static str,
    namespace: &'static str,
) -> RowTarget {
    RowTarget::Name { group: kind.0, resource: kind.1, name, namespace, uid: "" }
}

const fn row(
    name: &'static str,
    from: &'static [RowSource],
    paths: &'static [&'static str],
    to: RowTarget,
) -> Row {
    Row { name, from, paths, to, strength: Needs, optional: "", ends_when: None }
}

impl Row {
    const fn mentions(self) -> Self {
        Self { strength: Mentions, ..self }
    }

    const fn optional(self) -> Self {
        Self { optional: "optional", ..self }
    }

    const fn until(self, path: &'static str, equals: &'static [&'static str]) -> Self {
        Self { ends_when: Some(EndCondition { path, equals }), ..self }
    }
}

/// A kind, by group and plural name, and the kinds that its objects usually own.
pub type UsualDependents = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The usual dependents of each kind. The owner references of an object name its owners; this table
/// names the kinds to read to find the dependents of an owner. The last row has the kinds that
/// operators create for their custom resources. Secrets are not among them, because belay reads
/// Secrets only on request.
pub const USUAL_DEPENDENTS: &[UsualDependents] = &[
    ("apps", "deployments", &[("apps", "replicasets")]),
    ("apps", "replicasets", &[("", "pods")]),
    ("apps", "statefulsets", &[("", "pods"), ("apps", "controllerrevisions"), CLAIM]),
    ("apps", "daemonsets", &[("", "pods"), ("apps", "controllerrevisions")]),
    ("batch", "cronjobs", &[("batch", "jobs")]),
    ("batch", "jobs", &[("", "pods")]),
    ("", "replicationcontrollers", &[("", "pods")]),
    ("", "services", &[("discovery.k8s.io", "endpointslices")]),
    ("", "pods", &[CLAIM]),
    (
        "*",
        "*",
        &[
            ("", "pods"),
            ("", "services"),
            CONFIG_MAP,
            CLAIM,
            ("apps", "deployments"),
            ("apps", "statefulsets"),
            ("apps", "daemonsets"),
            ("batch", "jobs"),
            ("batch", "cronjobs"),
        ],
    ),
];

/// Every built-in relation. Owner references and content (an object in its Namespace, a custom
/// resource of its CRD) are edges of every object, and the graph itself has them.
pub const ROWS: &[Row] = &[
    // Pods, and the kinds with Pod templates.
    row("pod-claim", POD_SPECS, &["volumes[*].persistentVolumeClaim"], named(CLAIM, "claimName")),
    row("pod-ephemeral-claim", PODS, &["spec.volumes[*]"], RowTarget::EphemeralClaim { group: CLAIM.0, resource: CLAIM.1 }),
    row("pod-secret-volume", POD_SPECS, &["volumes[*].secret"], named(SECRET, "secretName")).optional(),
    row("pod-secret-projected", POD_SPECS, &["volumes[*].projected.sources[*].secret"], named(SECRET, "name")).optional(),
    row("pod-secret-env", POD_SPECS, &["c[].env[*].valueFrom.secretKeyRef", "c[].envFrom[*].secretRef"], named(SECRET, "name")).optional(),
    row("pod-configmap-volume", POD_SPECS, &["volumes[*].configMap", "volumes[*].projected.sources[*].configMap"], named(CONFIG_MAP, "name")).optional(),
    row("pod-configmap-env", POD_SPECS, &["c[].env[*].valueFrom.configMapKeyRef", "c[].envFrom[*].configMapRef"], named(CONFIG_MAP, "name")).optional(),
    row("pod-pull-secret", POD_SPECS, &["imagePullSecrets[*]"], named(SECRET, "name")),
    row("pod-csi-driver", POD_SPECS, &["volumes[*].csi.driver"], named(CSI_DRIVER, "")),
    row("pod-csi-secret", POD_SPECS, &["volumes[*].csi.nodePublishSecretRef"], named(SECRET, "name")),
    row("pod-service-account", POD_SPECS, &["serviceAccountName"], named(SERVICE_ACCOUNT, "")),
    row("pod-priority-class", POD_SPECS, &["priorityClassName"], named(("scheduling.k8s.io", "priorityclasses"), "")),
    row("pod-runtime-class", POD_SPECS, &["runtimeClassName"], named(("node.k8s.io", "runtimeclasses"), "")),
    row("pod-resource-claim", POD_SPECS, &["resourceClaims[*]"], named(("resource.k8s.io", "resourceclaims"), "resourceClaimName")),
    // Only the status has the names of claims that are created from a template.
    row("pod-generated-claim", PODS, &["status.resourceClaimStatuses[*]", "status.extendedResourceClaimStatus", "status.nodeAllocatableResourceClaimStatuses[*]"], named(("resource.k8s.io", "resourceclaims"), "resourceClaimName")),
    row("pod-resource-claim-template", POD_SPECS, &["resourceClaims[*]"], named(("resource.k8s.io", "resourceclaimtemplates"), "resourceClaimTemplateName")),
    row("pod-group", POD_SPECS, &["schedulingGroup"], named(("scheduling.k8s.io", "podgroups"), "podGroupName")),
    row("pod-trust-bundle", POD_SPECS, &["volumes[*].projected.sources[*].clusterTrustBundle"], named(("certificates.k8s.io", "clustertrustbundles"), "name")).optional(),
    row("pod-volume-secret", POD_SPECS, &["volumes[*].cephfs.secretRef", "volumes[*].rbd.secretRef", "volumes[*].iscsi.secretRef", "volumes[*].flexVolume.secretRef", "volumes[*].storageos.secretRef", "volumes[*].scaleIO.secretRef", "volumes[*].cinder.secretRef"], named(SECRET, "name")),
    row("pod-azure-file-secret", POD_SPECS, &["volumes[*].azureFile"], named(SECRET, "secretName")),
    row("pod-ephemeral-storage-class", POD_SPECS, &["volumes[*].ephemeral.volumeClaimTemplate.spec.storageClassName"], named(STORAGE_CLASS, "")),
    // In a template, the namespace of a data source has no effect, because the API server removes
    // it from the claim. So these rows have no path of a namespace (H102).
    row("pod-template-claim-source", POD_TEMPLATES, &["volumes[*].ephemeral.volumeClaimTemplate.spec.dataSource", "volumes[*].ephemeral.volumeClaimTemplate.spec.dataSourceRef"], RowTarget::Typed { group: "", namespace: "", kinds: NameableKinds::Only(CLAIM_SOURCES) }),
    row("pod-template-attributes-class", POD_TEMPLATES, &["volumes[*].ephemeral.volumeClaimTemplate.spec.volumeAttributesClassName"], named(ATTRIBUTES_CLASS, "")),
    row("pod-affinity-namespace", POD_SPECS, &["affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[*].namespaces[*]", "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[*].podAffinityTerm.namespaces[*]", "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[*].namespaces[*]", "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[*].podAffinityTerm.namespaces[*]"], named(NAMESPACE, "")).mentions(),
    row("pod-node", PODS, &["spec.nodeName"], named(NODE, "")).mentions(),
    // Service accounts and their tokens.
    row("service-account-secret", &[from("", "serviceaccounts", "")], &["secrets[*]", "imagePullSecrets[*]"], named(SECRET, "name")),
    // The token controller deletes the Secret together with its ServiceAccount, so the
    // Secret does not break.
    row("token-service-account", &[from("", "secrets", "")], &["metadata.annotations[\"kubernetes.io/service-account.name\"]"], named(SERVICE_ACCOUNT, "")).mentions(),
    // Storage.
    // Any user can create a claim that names the volume of another claim. Such a claim is
    // Pending or Lost.
    row("claim-volume", CLAIMS, &["spec.volumeName"], named(("", "persistentvolumes"), "")).until("status.phase", &["Pending", "Lost"]),
    row("storage-class", CLAIMS_AND_VOLUMES, &["spec.storageClassName", "metadata.annotations[\"volume.beta.kubernetes.io/storage-class\"]"], named(STORAGE_CLASS, "")),
    row("claim-data-source", CLAIMS, &["spec.dataSource", "spec.dataSourceRef"], RowTarget::Typed { group: "", namespace: "namespace", kinds: NameableKinds::Namespaced }).until("status.phase", &["Bound"]),
    row("volume-attributes-class", CLAIMS_AND_VOLUMES, &["spec.volumeAttributesClassName", "status.currentVolumeAttributesClassName"], named(ATTRIBUTES_CLASS, "")),
    row("volume-claim", VOLUMES, &["spec.claimRef"], RowTarget::Name { group: "", resource: "persistentvolumeclaims", name: "name", namespace: "namespace", uid: "uid" }).mentions(),
    row("volume-csi-driver", VOLUMES, &["spec.csi.driver"], named(CSI_DRIVER, "")).mentions(),
    row("volume-csi-secret", VOLUMES, &["spec.csi.controllerPublishSecretRef", "spec.csi.nodeStageSecretRef", "spec.csi.nodePublishSecretRef", "spec.csi.controllerExpandSecretRef", "spec.csi.nodeExpandSecretRef"], named_in(SECRET, "name", "namespace")),
    row("volume-secret", VOLUMES, &["spec.cephfs.secretRef", "spec.rbd.secretRef", "spec.iscsi.secretRef", "spec.flexVolume.secretRef", "spec.storageos.secretRef", "spec.scaleIO.secretRef", "spec.cinder.secretRef"], named_in(SECRET, "name", "namespace")),
    row("volume-azure-file-secret", VOLUMES, &["spec.azureFile"], named_in(SECRET, "secretName", "secretNamespace")),
    row("storage-class-driver", STORAGE_CLASSES, &["provisioner"], named(CSI_DRIVER, "")),
    row("storage-class-provisioner-secret", STORAGE_CLASSES, &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/provisioner-secret-name\"]", "[\"csi.storage.k8s.io/provisioner-secret-namespace\"]")),
    row("storage-class-publish-secret", STORAGE_CLASSES, &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/controller-publish-secret-name\"]", "[\"csi.storage.k8s.io/controller-publish-secret-namespace\"]")),
    row("storage-class-stage-secret", STORAGE_CLASSES, &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/node-stage-secret-name\"]", "[\"csi.storage.k8s.io/node-stage-secret-namespace\"]")),
    row("storage-class-node-publish-secret", STORAGE_CLASSES, &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/node-publish-secret-name\"]", "[\"csi.storage.k8s.io/node-publish-secret-namespace\"]")),
    row("storage-class-expand-secret", STORAGE_CLASSES, &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/controller-expand-secret-name\"]", "[\"csi.storage.k8s.io/controller-expand-secret-namespace\"]")),
    row("storage-class-node-expand-secret", STORAGE_CLASSES, &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/node-expand-secret-name\"]", "[\"csi.storage.k8s.io/node-expand-secret-namespace\"]")),
    row("snapshot-class-secret", &[from("snapshot.storage.k8s.io", "volumesnapshotclasses", "")], &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/snapshotter-secret-name\"]", "[\"csi.storage.k8s.io/snapshotter-secret-namespace\"]")),
    row("attributes-class-secret", &[from("storage.k8s.io", "volumeattributesclasses", "")], &["parameters"], named_in(SECRET, "[\"csi.storage.k8s.io/controller-modify-secret-name\"]", "[\"csi.storage.k8s.io/controller-modify-secret-namespace\"]")),
    row("attachment-volume", ATTACHMENTS, &["spec.source.persistentVolumeName"], named(("", "persistentvolumes"), "")),
    row("attachment-driver", ATTACHMENTS, &["spec.attacher"], named(CSI_DRIVER, "")),
    row("attachment-node", ATTACHMENTS, &["spec.nodeName"], named(NODE, "")).mentions(),
    row("capacity-storage-class", &[from("storage.k8s.io", "csistoragecapacities", "")], &["storageClassName"], named(STORAGE_CLASS, "")).mentions(),
    row("csi-node", &[from("storage.k8s.io", "csinodes", "")], &[""], RowTarget::SameName { group: "", resource: "nodes" }).mentions(),
    // Workloads.
    row("stateful-set-service", STATEFUL_SETS, &["spec.serviceName"], named(SERVICE, "")),
    row("stateful-set-claims", STATEFUL_SETS, &["spec.volumeClaimTemplates[*]"], RowTarget::Claims { group: CLAIM.0, resource: CLAIM.1 }),
    row("stateful-set-storage-class", STATEFUL_SETS, &["spec.volumeClaimTemplates[*].spec.storageClassName"], named(STORAGE_CLASS, "")),
    row("stateful-set-claim-source", STATEFUL_SETS, &["spec.volumeClaimTemplates[*].spec.dataSource", "spec.volumeClaimTemplates[*].spec.dataSourceRef"], RowTarget::Typed { group: "", namespace: "", kinds: NameableKinds::Only(CLAIM_SOURCES) }),
    row("stateful-set-attributes-class", STATEFUL_SETS, &["spec.volumeClaimTemplates[*].spec.volumeAttributesClassName"], named(ATTRIBUTES_CLASS, "")),
    row("autoscaler-target", &[from("autoscaling", "horizontalpodautoscalers", "")], &["spec.scaleTargetRef"], RowTarget::Typed { group: "", namespace: "", kinds: NameableKinds::Namespaced }).mentions(),
    row("disruption-budget-pods", &[from("policy", "poddisruptionbudgets", "")], &["spec.selector"], RowTarget::Labels { group: "", resource: "pods" }).mentions(),
    // Network.
    row("service-pods", &[from("", "services", "")], &["spec.selector"], RowTarget::PlainLabels { group: "", resource: "pods" }).mentions(),
    row("endpoint-slice-service", ENDPOINT_SLICES, &["metadata.labels[\"kubernetes.io/service-name\"]"], named(SERVICE, "")).mentions(),
    row("endpoint-slice-target", ENDPOINT_SLICES, &["endpoints[*].targetRef"], RowTarget::Typed { group: "", namespace: "namespace", kinds: NameableKinds::Any }).mentions(),
    row("network-policy-pods", NETWORK_POLICIES, &["spec.podSelector"], RowTarget::Labels { group: "", resource: "pods" }).mentions(),
    row("network-policy-peer-pods", NETWORK_POLICIES, &["spec.ingress[*].from[*].podSelector", "spec.egress[*].to[*].podSelector"], RowTarget::Labels { group: "", resource: "pods" }).mentions(),
    row("network-policy-namespaces", NETWORK_POLICIES, &["spec.ingress[*].from[*].namespaceSelector", "spec.egress[*].to[*].namespaceSelector"], RowTarget::Labels { group: "", resource: "namespaces" }).mentions(),
    row("network-policy-namespace", NETWORK_POLICIES, &["spec.ingress[*].from[*].namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"]", "spec.egress[*].to[*].namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"]", "spec.ingress[*].from[*].namespaceSelector.matchExpressions[?key=kubernetes.io/metadata.name].values[*]", "spec.egress[*].to[*].namespaceSelector.matchExpressions[?key=kubernetes.io/metadata.name].values[*]"], named(NAMESPACE, "")).mentions(),
    row("ingress-service", INGRESSES, &["spec.defaultBackend.service", "spec.rules[*].http.paths[*].backend.service"], named(SERVICE, "name")),
    row("ingress-resource", INGRESSES, &["spec.defaultBackend.resource", "spec.rules[*].http.paths[*].backend.resource"], RowTarget::Typed { group: "", namespace: "", kinds: NameableKinds::Namespaced }),
    row("ingress-secret", INGRESSES, &["spec.tls[*]"], named(SECRET, "secretName")),
    row("ingress-class", INGRESSES, &["spec.ingressClassName"], named(("networking.k8s.io", "ingressclasses"), "")),
    row("ingress-class-parameters", &[from("networking.k8s.io", "ingressclasses", "")], &["spec.parameters"], RowTarget::Typed { group: "", namespace: "namespace", kinds: NameableKinds::Any }),
    // Access.
    row("binding-role", BINDINGS, &["roleRef"], RowTarget::Typed { group: "rbac.authorization.k8s.io", namespace: "", kinds: NameableKinds::Only(ROLES) }),
    row("binding-service-account", BINDINGS, &["subjects[?kind=ServiceAccount]"], named_in(SERVICE_ACCOUNT, "name", "namespace")).mentions(),
    row("binding-namespace", BINDINGS, &["subjects[?kind=ServiceAccount].namespace"], named(NAMESPACE, "")).mentions(),
    row("role-aggregation", &[from("rbac.authorization.k8s.io", "clusterroles", "")], &["aggregationRule.clusterRoleSelectors[*]"], RowTarget::Labels { group: "rbac.authorization.k8s.io", resource: "clusterroles" }).mentions(),
    // The API server's own extensions.
    row("webhook-service", WEBHOOKS, &["webhooks[*].clientConfig.service"], named_in(SERVICE, "name", "namespace")),
    row("webhook-namespace", WEBHOOKS, &["webhooks[*].namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"]", "webhooks[*].namespaceSelector.matchExpressions[?key=kubernetes.io/metadata.name].values[*]"], named(NAMESPACE, "")).mentions(),
    row("admission-policy-namespace", ADMISSION_POLICIES, &["spec.matchConstraints.namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"]", "spec.matchConstraints.namespaceSelector.matchExpressions[?key=kubernetes.io/metadata.name].values[*]", "spec.matchResources.namespaceSelector.matchLabels[\"kubernetes.io/metadata.name\"]", "spec.matchResources.namespaceSelector.matchExpressions[?key=kubernetes.io/metadata.name].values[*]"], named(NAMESPACE, "")).mentions(),
    row("api-service", &[from("apiregistration.k8s.io", "apiservices", "")], &["spec.service"], named_in(SERVICE, "name", "namespace")),
    row("conversion-service", &[from("apiextensions.k8s.io", "customresourcedefinitions", "")], &["spec.conversion.webhook.clientConfig.service"], named_in(SERVICE, "name", "namespace")),
    row("validating-policy-binding", &[from("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "")], &["spec.policyName"], named(("admissionregistration.k8s.io", "validatingadmissionpolicies"), "")),
    row("mutating-policy-binding", &[from("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "")], &["spec.policyName"], named(("admissionregistration.k8s.io", "mutatingadmissionpolicies"), "")),
    // Devices.
    row("resource-claim-class", &[from("resource.k8s.io", "resourceclaims", "spec"), from("resource.k8s.io", "resourceclaimtemplates", "spec.spec")], &["devices.requests[*].exactly.deviceClassName", "devices.requests[*].firstAvailable[*].deviceClassName"], named(DEVICE_CLASS, "")).until("status.allocation", &[""]),
    row("resource-slice-node", &[from("resource.k8s.io", "resourceslices", "")], &["spec.nodeName"], named(NODE, "")).mentions(),
];

/// The kinds of users and used objects in built-in relations, by group and plural name.
pub fn related_kinds() -> BTreeSet<(&'static str, &'static str)> {
    let mut kinds = BTreeSet::new();
    for row in ROWS {
        kinds.extend(row.from.iter().map(|from| (from.group, from.resource)));
        match row.to {
            RowTarget::Typed { kinds: NameableKinds::Only(only), .. } => kinds.extend(only),
            RowTarget::Typed { .. } => {}
            RowTarget::Name { group, resource, .. }
            | RowTarget::PlainLabels { group, resource }
            | RowTarget::Labels { group, resource }
            | RowTarget::Claims { group, resource }
            | RowTarget::EphemeralClaim { group, resource }
            | RowTarget::SameName { group, resource } => {
                kinds.insert((group, resource));
            }
        }
    }
    kinds
}

/// The kinds whose objects can finish, and then no longer use other objects: group, plural name, a
/// field, and its values in a finished object.
pub const FINISHED: &[(&str, &str, &str, &[&str])] = &[
    ("", "pods", "status.phase", &["Succeeded", "Failed"]),
    ("batch", "jobs", "status.conditions[?type=Complete].status", &["True"]),
    ("batch", "jobs", "status.conditions[?type=Failed].status", &["True"]),
];

/// An API group and a kind in it.
pub type GroupKind = (&'static str, &'static str);

/// The kinds whose objects with zero replicas are only kept for a rollback: group, plural name, the
/// field with the replicas, and the controllers that keep them.
pub const SCALED_DOWN: &[(&str, &str, &str, &[GroupKind])] = &[(
    "apps",
    "replicasets",
    "spec.replicas",
    &[("apps", "Deployment"), ("argoproj.io", "Rollout")],
)];

/// The condition of a served CRD: group, plural name, and the field that is `True`.
pub const ESTABLISHED: (&str, &str, &str) = (
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    "status.conditions[?type=Established].status",
);
