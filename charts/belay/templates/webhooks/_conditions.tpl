{{/*
CEL conditions that exclude requests which belay does not judge. With failurePolicy Fail an error in a condition refuses the
request, so the conditions test each field with has() or `.?`. src/cluster/registration/conditions.rs has the reasons.
*/}}

{{/* UPDATE: finalizers, owner references, labels, belay's annotations or any of many annotations change. */}}
{{- define "belay.condition.changes" -}}
- name: changes
  expression: >-
    request.operation != 'UPDATE' ||
    (has(object.metadata) && has(oldObject.metadata) &&
    (oldObject.metadata.?finalizers.orValue([]) != object.metadata.?finalizers.orValue([]) ||
    oldObject.metadata.?ownerReferences.orValue([]) != object.metadata.?ownerReferences.orValue([]) ||
    oldObject.metadata.?labels.orValue({}) != object.metadata.?labels.orValue({}) ||
    oldObject.metadata.?annotations.orValue({}) != object.metadata.?annotations.orValue({}) &&
    (oldObject.metadata.?annotations.orValue({}).size() > 256 ||
    object.metadata.?annotations.orValue({}).size() > 256 ||
    !oldObject.metadata.?annotations.orValue({}).all(a, !a.startsWith('belay.dev/') ||
    oldObject.metadata.?annotations[?a] == object.metadata.?annotations[?a]) ||
    !object.metadata.?annotations.orValue({}).all(a, !a.startsWith('belay.dev/') ||
    a in oldObject.metadata.?annotations.orValue({})))))
{{- end }}

{{/* UPDATE: any annotation changes. */}}
{{- define "belay.condition.annotations-change" -}}
- name: annotations-change
  expression: >-
    request.operation != 'UPDATE' ||
    (has(object.metadata) && has(oldObject.metadata) &&
    oldObject.metadata.?annotations.orValue({}) != object.metadata.?annotations.orValue({}))
{{- end }}

{{/* UPDATE: the hold is removed from an object that is not Terminating. */}}
{{- define "belay.condition.hold-removed" -}}
{{- $before := list }}
{{- $after := list }}
{{- range prepend (default list .Values.formerHolds) "belay.dev/hold" }}
{{- $before = append $before (printf "'%s' in oldObject.metadata.?finalizers.orValue([])" .) }}
{{- $after = append $after (printf "'%s' in object.metadata.?finalizers.orValue([])" .) }}
{{- end -}}
- name: hold-removed
  expression: >-
    request.operation != 'UPDATE' ||
    (has(object.metadata) && has(oldObject.metadata) &&
    !has(oldObject.metadata.deletionTimestamp) &&
    ({{ join " || " $before }}) &&
    !({{ join " || " $after }}))
{{- end }}

{{/*
DELETE: exclude repeated DELETEs that change nothing. Include Namespaces, because belay checks their content each time, and
repeated DELETEs that remove the finalizers orphan and foregroundDeletion, because they change how dependents are deleted.
*/}}
{{- define "belay.condition.no-repeat" -}}
- name: no-repeat
  expression: >-
    request.operation != 'DELETE' || oldObject == null ||
    !has(oldObject.metadata) || !has(oldObject.metadata.deletionTimestamp) ||
    request.resource.resource == 'namespaces' ||
    'orphan' in oldObject.metadata.?finalizers.orValue([]) ||
    ('foregroundDeletion' in oldObject.metadata.?finalizers.orValue([]) ?
    request.?options.?propagationPolicy.orValue('') != 'Foreground' :
    request.?options.?propagationPolicy.orValue('') != 'Background' &&
    request.?options.?orphanDependents.orValue(true) != false)
{{- end }}

{{/*
DELETE: the garbage collector may remove the owner references of the dependents. Without an option, Jobs and
ReplicationControllers orphan by default.
*/}}
{{- define "belay.condition.orphaning" -}}
- name: orphaning
  expression: >-
    {{- include "belay.orphaning" . | nindent 4 }}
{{- end }}

{{/* DELETE: the opposite. */}}
{{- define "belay.condition.not-orphaning" -}}
- name: not-orphaning
  expression: >-
    !({{- include "belay.orphaning" . | nindent 4 | trim }})
{{- end }}

{{- define "belay.orphaning" -}}
request.operation == 'DELETE' && (
request.?options.?propagationPolicy.orValue('') == 'Orphan' ||
request.?options.?orphanDependents.orValue(false) == true ||
request.resource.group + '/' + request.resource.resource in ['/replicationcontrollers', 'batch/jobs'] &&
request.?options.?propagationPolicy.orValue('') == '' &&
request.?options.?orphanDependents.orValue(true) == true ||
oldObject != null && has(oldObject.metadata) &&
'orphan' in oldObject.metadata.?finalizers.orValue([]))
{{- end }}

{{/* UPDATE: the finalizers in the spec of a Namespace change. */}}
{{- define "belay.condition.spec-finalizers-change" -}}
- name: spec-finalizers-change
  expression: >-
    request.operation != 'UPDATE' ||
    oldObject.?spec.?finalizers.orValue([]) != object.?spec.?finalizers.orValue([])
{{- end }}

{{/* The request is not from belay. */}}
{{- define "belay.condition.not-belay" -}}
- name: not-belay
  expression: request.userInfo.username != '{{ include "belay.account" . }}'
{{- end }}
