//! The API server's own checks of approvals, pauses, labels, Events and Evictions, as
//! ValidatingAdmissionPolicies: they hold while belay is down.
//!
//! What they cannot see is whether the uid of an approval belongs to the
//! object it names. The decision compares that.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec, Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};

use super::GROUP;
use crate::objects::{EVENT_REPORTER, LABEL_VALUES, PROTECT_LABEL};

/// How long any approval or pause may last. Policies may ask for less.
pub const MAX_APPROVAL_SECONDS: i64 = 86_400;

/// How many labels an approval may have, and how many annotations.
const MAX_APPROVAL_LABELS: usize = 16;

/// How many characters each annotation of an approval may have: `kubectl apply`
/// writes the approval itself into one.
const MAX_APPROVAL_ANNOTATION: usize = 16_384;

/// How many labels and annotations an Eviction may have.
const MAX_EVICTION_ENTRIES: usize = 16;

/// How many characters an annotation of an Eviction may have.
const MAX_EVICTION_ANNOTATION: usize = 1_024;

/// How many characters each other text of an Eviction may have, as a name.
const MAX_EVICTION_TEXT: usize = 253;

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
        bound(
            "approvals.belay.dev",
            (GROUP, "deletionapprovals", all.clone()),
            &changes,
            approvals(),
        ),
        bound("pauses.belay.dev", (GROUP, "pauses", all.clone()), &["CREATE"], pauses()),
        bound(
            "events.belay.dev",
            ("", "events", all.clone()),
            &["CREATE", "UPDATE", "DELETE"],
            events(),
        ),
        bound("evictions.belay.dev", ("", "pods/eviction", all), &["CREATE"], evictions()),
        bound("labels.belay.dev", ("*", "*", labelled), &changes, labels()),
    ]
}

/// A policy of this name with its binding. It checks these operations on the objects of this
/// group and resource with these labels.
fn bound(
    name: &str,
    (group, resource, labelled): (&str, &str, LabelSelector),
    operations: &[&str],
    (variables, validations): (Vec<Variable>, Vec<Validation>),
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let some = |text: &str| Some(vec![text.to_owned()]);
    let rule = NamedRuleWithOperations {
        api_groups: some(group),
        api_versions: some("*"),
        operations: Some(operations.iter().map(|name| (*name).to_owned()).collect()),
        resources: some(resource),
        resource_names: None,
        scope: Some("*".to_owned()),
    };
    // This struct is atomic to the API server: a default left to it would make
    // every later apply a change, and a conflict with who applied it before.
    let constraints = MatchResources {
        exclude_resource_rules: None,
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(labelled),
        resource_rules: Some(vec![rule]),
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
        // The check of who may delete a Namespace runs inside that Namespace.
        variable(
            "ns",
            "variables.ref.group == '' && variables.ref.resource == 'namespaces' ? \
             variables.ref.name : variables.ref.namespace",
        ),
        variable("content", "has(object.spec.scope) && object.spec.scope == 'Content'"),
    ];
    let validations = vec![
        forbidden(
            &when_given("object.spec.approver == request.userInfo.username"),
            "'spec.approver is ' + object.spec.approver + ', but you are ' + \
             request.userInfo.username + ': approve as yourself'",
        ),
        forbidden(
            &when_given(
                "authorizer.group(variables.ref.group).resource(variables.ref.resource)\
                 .namespace(variables.ns).name(variables.ref.name).check('approve-deletion')\
                 .allowed()",
            ),
            "request.userInfo.username + ' may not approve-deletion of ' + \
             variables.ref.resource + (variables.ref.group == '' ? '' : '.' + variables.ref.group) \
             + ' ' + variables.ref.name + (variables.ns == '' ? '' : ' in namespace ' + \
             variables.ns) + ': this needs the RBAC verb approve-deletion'",
        ),
        forbidden(
            &when_given(
                "!variables.content || \
                 authorizer.group('*').resource('*').namespace(variables.ns)\
                 .check('approve-deletion').allowed()",
            ),
            "request.userInfo.username + ' may not approve-deletion of everything' + \
             (variables.ns == '' ? '' : ' in namespace ' + variables.ns) + ': scope Content needs \
             the RBAC verb approve-deletion on every resource (*) of every API group (*)'",
        ),
        forbidden(
            &when_given(&or_from_belay(
                "!has(object.spec.exempts) || size(object.spec.exempts) == 0",
            )),
            "'only belay may set spec.exempts: omit it'",
        ),
        forbidden(
            "(!has(object.metadata.finalizers) || size(object.metadata.finalizers) == 0 || \
             has(object.metadata.deletionTimestamp)) && \
             (!has(object.metadata.ownerReferences) || size(object.metadata.ownerReferences) == 0)",
            "'an approval may have no finalizers and no owner references'",
        ),
        forbidden(
            &format!(
                "(!has(object.metadata.labels) || \
                 size(object.metadata.labels) <= {MAX_APPROVAL_LABELS}) && \
                 (!has(object.metadata.annotations) || \
                 size(object.metadata.annotations) <= {MAX_APPROVAL_LABELS} && \
                 object.metadata.annotations.all(key, \
                 size(object.metadata.annotations[key]) <= {MAX_APPROVAL_ANNOTATION}))"
            ),
            &format!(
                "'an approval may have at most {MAX_APPROVAL_LABELS} labels, and as many \
                 annotations of {MAX_APPROVAL_ANNOTATION} characters'"
            ),
        ),
        lifetime(),
    ];
    (variables, validations)
}

/// A condition for the one who gives an approval, not for who changes its labels.
fn when_given(condition: &str) -> String {
    format!("request.operation != 'CREATE' || {condition}")
}

fn pauses() -> (Vec<Variable>, Vec<Validation>) {
    let validations = vec![
        forbidden(
            "object.spec.by == request.userInfo.username",
            "'spec.by is ' + object.spec.by + ', but you are ' + request.userInfo.username + \
             ': pause as yourself'",
        ),
        forbidden(
            "authorizer.group('belay.dev').resource('pauses').check('pause').allowed()",
            "request.userInfo.username + ' may not pause belay: this needs the RBAC verb pause on \
             pauses.belay.dev'",
        ),
        lifetime(),
    ];
    (Vec::new(), validations)
}

/// A condition for all but belay. Its account has this right, and approvers don't.
fn or_from_belay(condition: &str) -> String {
    format!(
        "{condition} || authorizer.group('{GROUP}').resource('deletionpolicies')\
         .subresource('status').check('patch').allowed()"
    )
}

/// `denials` and `why` show what Events of belay report. Others may neither write nor change
/// nor delete them, except for the controllers that delete a Namespace.
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
    let check = forbidden(
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
    let check = forbidden(
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

/// An unknown value of the label would protect nothing. A stored one may stay, so that other
/// changes of its object pass.
fn labels() -> (Vec<Variable>, Vec<Validation>) {
    let value = |object: &str| {
        let labels = format!("{object}.metadata.labels");
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
    let check = forbidden(
        &format!("variables.value in [{known}] || variables.value == variables.before"),
        &format!(
            "'the label {PROTECT_LABEL}=' + variables.value + ' would protect nothing: set it to \
             {} or remove it'",
            LABEL_VALUES.join(" or ")
        ),
    );
    (variables, vec![check])
}

/// The creation time is set by the server before validation, so it is "now".
fn lifetime() -> Validation {
    let lifetime =
        "timestamp(object.spec.expirationTime) - timestamp(object.metadata.creationTimestamp)";
    forbidden(
        &format!(
            "{lifetime} > duration('0s') && {lifetime} <= duration('{MAX_APPROVAL_SECONDS}s')"
        ),
        &format!(
            "'spec.expirationTime is ' + object.spec.expirationTime + ', and it is ' + \
             object.metadata.creationTimestamp + ' now: it must be in the future, and at most {} \
             hours ahead'",
            MAX_APPROVAL_SECONDS / 3600
        ),
    )
}

/// The reason is for the sentence, too: the one that is meant for values would
/// begin with the path of a field, and print it empty.
fn forbidden(expression: &str, message: &str) -> Validation {
    Validation {
        expression: expression.to_owned(),
        message_expression: Some(message.to_owned()),
        reason: Some("Forbidden".to_owned()),
        ..Validation::default()
    }
}

fn variable(name: &str, expression: &str) -> Variable {
    Variable { name: name.to_owned(), expression: expression.to_owned() }
}
