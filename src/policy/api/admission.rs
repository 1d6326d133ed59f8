//! ValidatingAdmissionPolicies that check approvals, pauses, labels, Events, Evictions and
//! templates. The API server enforces them even while belay is down.
//!
//! They can't check that the uid of an approval belongs to the object that it names. The
//! decision compares the uids.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec, Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};

use super::{GROUP, RECORD_PREFIX};
use crate::objects::{EVENT_REPORTER, LABEL_VALUES, PROTECT_LABEL};

/// The longest duration of an approval or a pause. Policies may set a shorter one.
pub const MAX_APPROVAL_SECONDS: i64 = 86_400;

/// The limit of labels of an approval, and of annotations.
const MAX_APPROVAL_LABELS: usize = 16;

/// The limit of characters of one annotation of an approval. `kubectl apply` writes the whole
/// approval into an annotation.
const MAX_APPROVAL_ANNOTATION: usize = 16_384;

/// The limit of labels of an Eviction, and of annotations.
const MAX_EVICTION_ENTRIES: usize = 16;

/// The limit of characters of one annotation of an Eviction.
const MAX_EVICTION_ANNOTATION: usize = 1_024;

/// The limit of characters of any other text of an Eviction. Names have the same limit.
const MAX_EVICTION_TEXT: usize = 253;

/// The kinds, by group, with fields that the API server does not validate: templates of other
/// objects, or values that are a number or a name.
const KINDS_WITH_UNCHECKED_FIELDS: [(&str, &[&str]); 4] = [
    ("", &["podtemplates", "replicationcontrollers"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("batch", &["cronjobs", "jobs"]),
    ("networking.k8s.io", &["networkpolicies"]),
];

/// The policies with their bindings.
pub fn admission_policies() -> Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)> {
    let labelled = LabelSelectorRequirement {
        key: PROTECT_LABEL.to_owned(),
        operator: "Exists".to_owned(),
        values: None,
    };
    let labelled =
        LabelSelector { match_expressions: Some(vec![labelled]), ..LabelSelector::default() };
    let all = LabelSelector::default();
    let changes = ["CREATE", "UPDATE"];
    vec![
        policy_with_binding(
            "approvals.belay.dev",
            (&[(GROUP, &["deletionapprovals"])], all.clone()),
            &changes,
            approvals(),
        ),
        policy_with_binding(
            "pauses.belay.dev",
            (&[(GROUP, &["pauses"])], all.clone()),
            &["CREATE"],
            pauses(),
        ),
        policy_with_binding(
            "events.belay.dev",
            (&[("", &["events"])], all.clone()),
            &["CREATE", "UPDATE", "DELETE"],
            events(),
        ),
        policy_with_binding(
            "evictions.belay.dev",
            (&[("", &["pods/eviction"])], all.clone()),
            &["CREATE"],
            evictions(),
        ),
        policy_with_binding("labels.belay.dev", (&[("*", &["*"])], labelled), &changes, labels()),
        policy_with_binding(
            "templates.belay.dev",
            (&KINDS_WITH_UNCHECKED_FIELDS, all),
            &changes,
            templates(),
        ),
    ]
}

/// A policy of this name with its binding. It checks these operations on the objects of these
/// groups and resources with these labels.
fn policy_with_binding(
    name: &str,
    (groups, labelled): (&[(&str, &[&str])], LabelSelector),
    operations: &[&str],
    (variables, validations): (Vec<Variable>, Vec<Validation>),
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let some = |text: &str| Some(vec![text.to_owned()]);
    let all = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    let rule = |(group, resources): &(&str, &[&str])| NamedRuleWithOperations {
        api_groups: some(group),
        api_versions: some("*"),
        operations: all(operations),
        resources: all(resources),
        resource_names: None,
        scope: Some("*".to_owned()),
    };
    // The API server treats this struct as atomic. Every field is set here, because a default
    // that the API server adds would conflict with the next apply.
    let constraints = MatchResources {
        exclude_resource_rules: None,
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(labelled),
        resource_rules: Some(groups.iter().map(rule).collect()),
    };
    let policy = ValidatingAdmissionPolicy {
        metadata: metadata.clone(),
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(constraints),
            variables: (!variables.is_empty()).then_some(variables),
            validations: Some(validations),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        ..ValidatingAdmissionPolicy::default()
    };
    let binding = ValidatingAdmissionPolicyBinding {
        metadata,
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: Some(name.to_owned()),
            validation_actions: some("Deny"),
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }),
    };
    (policy, binding)
}

fn approvals() -> (Vec<Variable>, Vec<Validation>) {
    let variables = vec![
        variable("ref", "object.spec.targetRef"),
        // For a Namespace, the API server checks the right to delete inside this Namespace.
        variable(
            "ns",
            "variables.ref.group == '' && variables.ref.resource == 'namespaces' ? \
             variables.ref.name : variables.ref.namespace",
        ),
        variable("content", "has(object.spec.scope) && object.spec.scope == 'Content'"),
    ];
    let has_no_prefix = ["name", "generateName"]
        .map(|field| {
            let field = format!("object.metadata.{field}");
            format!("(!has({field}) || !{field}.startsWith('{RECORD_PREFIX}'))")
        })
        .join(" && ");
    let validations = vec![
        require(
            &on_create("object.spec.approver == request.userInfo.username"),
            "'spec.approver is ' + object.spec.approver + ', but you are ' + \
             request.userInfo.username + ': approve as yourself'",
        ),
        require(
            &on_create(
                "authorizer.group(variables.ref.group).resource(variables.ref.resource)\
                 .namespace(variables.ns).name(variables.ref.name).check('approve-deletion')\
                 .allowed()",
            ),
            "request.userInfo.username + ' may not approve-deletion of ' + \
             variables.ref.resource + (variables.ref.group == '' ? '' : '.' + variables.ref.group) \
             + ' ' + variables.ref.name + (variables.ns == '' ? '' : ' in namespace ' + \
             variables.ns) + ': this needs the RBAC verb approve-deletion'",
        ),
        require(
            &on_create(
                "!variables.content || \
                 authorizer.group('*').resource('*').namespace(variables.ns)\
                 .check('approve-deletion').allowed()",
            ),
            "request.userInfo.username + ' may not approve-deletion of everything' + \
             (variables.ns == '' ? '' : ' in namespace ' + variables.ns) + ': scope Content needs \
             the RBAC verb approve-deletion on every resource (*) of every API group (*)'",
        ),
        require(
            &on_create(&or_from_belay(
                "!has(object.spec.exempts) || size(object.spec.exempts) == 0",
            )),
            "'only belay may set spec.exempts: omit it'",
        ),
        require(
            &on_create(&or_from_belay(&has_no_prefix)),
            &format!(
                "'only belay may create an approval whose name begins with {RECORD_PREFIX}: use \
                 another name'"
            ),
        ),
        require(
            &format!(
                "request.operation != 'UPDATE' || object.spec == oldObject.spec || \
                 object.metadata.name.startsWith('{RECORD_PREFIX}') && \
                 object.spec.targetRef == oldObject.spec.targetRef && \
                 object.spec.approver == oldObject.spec.approver && {IS_FROM_BELAY}"
            ),
            "'an approval cannot be changed: delete it and approve again'",
        ),
        require(
            "(!has(object.metadata.finalizers) || size(object.metadata.finalizers) == 0 || \
             has(object.metadata.deletionTimestamp)) && \
             (!has(object.metadata.ownerReferences) || size(object.metadata.ownerReferences) == 0)",
            "'an approval may have no finalizers and no owner references'",
        ),
        require(
            &format!(
                "(!has(object.metadata.labels) || \
                 size(object.metadata.labels) <= {MAX_APPROVAL_LABELS}) && \
                 (!has(object.metadata.annotations) || \
                 size(object.metadata.annotations) <= {MAX_APPROVAL_LABELS} && \
                 object.metadata.annotations.all(key, \
                 size(object.metadata.annotations[key]) <= {MAX_APPROVAL_ANNOTATION}))"
            ),
            &format!(
                "'an approval may have at most {MAX_APPROVAL_LABELS} labels and \
                 {MAX_APPROVAL_LABELS} annotations, and at most {MAX_APPROVAL_ANNOTATION} \
                 characters in each annotation'"
            ),
        ),
        // managedFields of real approvals have three levels. With 9,994, the API server could
        // send no list (H141).
        require(
            "!has(object.metadata.managedFields) || object.metadata.managedFields.all(entry, \
             !has(entry.fieldsV1) || entry.fieldsV1.all(a, \
             entry.fieldsV1[a].all(b, entry.fieldsV1[a][b].all(c, \
             entry.fieldsV1[a][b][c].all(d, size(entry.fieldsV1[a][b][c][d]) == 0)))))",
            "'managedFields of an approval may be nested at most four levels'",
        ),
        lifetime(),
    ];
    (variables, validations)
}

/// A condition on the user who creates an approval or a Pause, but not on users who change its
/// labels.
fn on_create(condition: &str) -> String {
    format!("request.operation != 'CREATE' || {condition}")
}

fn pauses() -> (Vec<Variable>, Vec<Validation>) {
    let validations = vec![
        require(
            "object.spec.by == request.userInfo.username",
            "'spec.by is ' + object.spec.by + ', but you are ' + request.userInfo.username + \
             ': pause as yourself'",
        ),
        require(
            "authorizer.group('belay.dev').resource('pauses').check('pause').allowed()",
            "request.userInfo.username + ' may not pause belay: this needs the RBAC verb pause on \
             pauses.belay.dev'",
        ),
        lifetime(),
    ];
    (Vec::new(), validations)
}

/// Whether belay sends the request. Only its account and cluster administrators have this right.
const IS_FROM_BELAY: &str = "authorizer.group('belay.dev').resource('deletionpolicies')\
                             .subresource('status').check('patch').allowed()";

/// A condition that does not apply to belay.
fn or_from_belay(condition: &str) -> String {
    format!("{condition} || {IS_FROM_BELAY}")
}

/// Protects the Events of belay, because `denials` and `why` show them. Other users may not
/// create, change or delete them, except for the controllers that delete a Namespace.
fn events() -> (Vec<Variable>, Vec<Validation>) {
    let is_of_others = |object: &str| {
        format!(
            "({object} == null || (!has({object}.reportingComponent) || \
             {object}.reportingComponent != '{EVENT_REPORTER}') && (!has({object}.source) || \
             !has({object}.source.component) || {object}.source.component != '{EVENT_REPORTER}'))"
        )
    };
    let is_allowed = format!(
        "{} && {} || request.operation == 'DELETE' && \
         (request.userInfo.username == 'system:kube-controller-manager' || \
         request.userInfo.username.startsWith('system:serviceaccount:kube-system:'))",
        is_of_others("object"),
        is_of_others("oldObject"),
    );
    let check = require(
        &or_from_belay(&is_allowed),
        &format!("'only belay may write, change or delete Events of {EVENT_REPORTER}'"),
    );
    (Vec::new(), vec![check])
}

/// An Eviction is never stored, so etcd does not limit its size, and its review could have
/// 18 MB (H132). The API server drops the sender's uid, selfLink and managedFields, and adds
/// one entry of managedFields with the names of the other fields.
fn evictions() -> (Vec<Variable>, Vec<Validation>) {
    let has_at_most = |object: &str, fields: &[&str], most: usize| {
        let check = |field| format!("(!has({object}.{field}) || size({object}.{field}) <= {most})");
        fields.iter().map(check).collect::<Vec<_>>().join(" && ")
    };
    let or_empty = |field: &str, empty: &str| format!("has({field}) ? {field} : {empty}");
    let map = |name: &str, value: usize| {
        format!(
            "size(variables.{name}) <= {MAX_EVICTION_ENTRIES} && variables.{name}.all(key, \
             size(key) <= {MAX_EVICTION_TEXT} && size(variables.{name}[key]) <= {value})"
        )
    };
    let variables = vec![
        variable("labels", &or_empty("object.metadata.labels", "{}")),
        variable("annotations", &or_empty("object.metadata.annotations", "{}")),
        variable("options", &or_empty("object.deleteOptions", "{}")),
        variable("preconditions", &or_empty("variables.options.preconditions", "{}")),
        variable("dryRun", &or_empty("variables.options.dryRun", "[]")),
    ];
    let options = ["kind", "apiVersion", "propagationPolicy"];
    let conditions = [
        has_at_most("object.metadata", &["finalizers", "ownerReferences"], 0),
        has_at_most("object.metadata", &["managedFields"], 1),
        has_at_most("object.metadata", &["generateName", "resourceVersion"], MAX_EVICTION_TEXT),
        map("labels", MAX_EVICTION_TEXT),
        map("annotations", MAX_EVICTION_ANNOTATION),
        has_at_most("variables.options", &options, MAX_EVICTION_TEXT),
        has_at_most("variables.preconditions", &["uid", "resourceVersion"], MAX_EVICTION_TEXT),
        format!(
            "size(variables.dryRun) <= 1 && variables.dryRun.all(text, \
             size(text) <= {MAX_EVICTION_TEXT})"
        ),
    ];
    let check = require(
        &conditions.join(" && "),
        &format!(
            "'an Eviction may have at most {MAX_EVICTION_ENTRIES} labels, \
             {MAX_EVICTION_ENTRIES} annotations of {MAX_EVICTION_ANNOTATION} characters and \
             {MAX_EVICTION_TEXT} characters in each other field, and no finalizers or owner \
             references'"
        ),
    );
    (variables, vec![check])
}

/// Rejects an unknown value of the label, because it would protect nothing. Accepts the value if
/// the stored object has it already, so that other changes of the object succeed.
fn labels() -> (Vec<Variable>, Vec<Validation>) {
    let value = |object: &str| {
        let labels = format!("{object}.metadata.labels");
        // An absent label counts as a valid value, because the policy also applies if only one of
        // the two versions has the label.
        format!(
            "has({labels}) && '{PROTECT_LABEL}' in {labels} ? {labels}['{PROTECT_LABEL}'] : '{}'",
            LABEL_VALUES[0]
        )
    };
    let variables = vec![
        variable("value", &value("object")),
        variable(
            "before",
            &format!("oldObject == null ? '{}' : {}", LABEL_VALUES[0], value("oldObject")),
        ),
    ];
    let known = LABEL_VALUES.map(|value| format!("'{value}'")).join(", ");
    let check = require(
        &format!("variables.value in [{known}] || variables.value == variables.before"),
        &format!(
            "'the label {PROTECT_LABEL}=' + variables.value + ' would protect nothing: set it to \
             {} or remove it'",
            LABEL_VALUES.join(" or ")
        ),
    );
    (variables, vec![check])
}

/// Rejects fields that clients can store by protobuf, but the API server can't encode as JSON.
/// With such an object, the API server can send neither the object nor a list of its kind.
///
/// - managedFields in a template, which no client needs (H163).
/// - The `rollingUpdate` of a DaemonSet with the type OnDelete (H176), and the ports of a
///   NetworkPolicy (H177), with a value that is neither a number nor a text. To read such a value
///   is an error in CEL, and the `failurePolicy` is Fail.
fn templates() -> (Vec<Variable>, Vec<Validation>) {
    let variables = vec![
        // A PodTemplate has no spec.
        variable("spec", "has(object.spec) ? object.spec : object"),
        variable(
            "templates",
            "(has(variables.spec.template) ? [variables.spec.template] : []) + \
             (has(variables.spec.jobTemplate) ? \
             [variables.spec.jobTemplate, variables.spec.jobTemplate.spec.template] : []) + \
             (has(variables.spec.volumeClaimTemplates) ? variables.spec.volumeClaimTemplates : [])",
        ),
        variable(
            "rollingUpdate",
            "has(variables.spec.updateStrategy) && \
             has(variables.spec.updateStrategy.rollingUpdate) ? \
             variables.spec.updateStrategy.rollingUpdate : {}",
        ),
        variable(
            "rules",
            "(has(variables.spec.ingress) ? variables.spec.ingress : []) + \
             (has(variables.spec.egress) ? variables.spec.egress : [])",
        ),
    ];
    let is_encodable =
        |field: &str| format!("(!has({field}) || type({field}) == int || type({field}) == string)");
    let validations = vec![
        require(
            "variables.templates.all(template, !has(template.metadata) || \
             !has(template.metadata.managedFields))",
            "'a template may have no metadata.managedFields: remove them'",
        ),
        require(
            &["maxUnavailable", "maxSurge"]
                .map(|field| is_encodable(&format!("variables.rollingUpdate.{field}")))
                .join(" && "),
            "'spec.updateStrategy.rollingUpdate may have only numbers and texts'",
        ),
        require(
            &format!(
                "variables.rules.all(rule, !has(rule.ports) || rule.ports.all(port, {}))",
                is_encodable("port.port")
            ),
            "'a port must be a number or a name'",
        ),
    ];
    (variables, validations)
}

/// Checks the expiry against the creation time, which the API server sets before validation.
fn lifetime() -> Validation {
    let lifetime =
        "timestamp(object.spec.expirationTime) - timestamp(object.metadata.creationTimestamp)";
    require(
        &on_create(&format!(
            "{lifetime} > duration('0s') && {lifetime} <= duration('{MAX_APPROVAL_SECONDS}s')"
        )),
        &format!(
            "'spec.expirationTime is ' + object.spec.expirationTime + ', and it is ' + \
             object.metadata.creationTimestamp + ' now: it must be in the future, and at most {} \
             hours ahead'",
            MAX_APPROVAL_SECONDS / 3600
        ),
    )
}

/// A validation that rejects a request that does not meet the condition. Its reason is Forbidden.
/// With the reason Invalid, the API server would start the message with an empty field path.
fn require(condition: &str, message: &str) -> Validation {
    Validation {
        expression: condition.to_owned(),
        message_expression: Some(message.to_owned()),
        reason: Some("Forbidden".to_owned()),
        ..Validation::default()
    }
}

fn variable(name: &str, expression: &str) -> Variable {
    Variable { name: name.to_owned(), expression: expression.to_owned() }
}
