{{/*
The annotations of a hook object. Parameters: on, weight. Helm creates accounts and permissions before the Job, and deletes
all of them after the Job has succeeded. A failed Job stays, so that its log can be read, and is deleted before the next try.
*/}}
{{- define "belay.hookAnnotations" -}}
helm.sh/hook: {{ .on }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/*
The account of a hook with its permissions: only what the hook needs, and only while it runs. Parameters: root; on; name (of
the account, its roles and its Pod); clusterRules (YAML, cluster-wide rules); rules (YAML, rules in one namespace); place
(that namespace, by default belay's own); clusterRole (an existing ClusterRole to bind as well).
*/}}
{{- define "belay.hookAccount" -}}
{{- $namespace := .root.Release.Namespace }}
{{- $labels := include "belay.labels" .root }}
{{- $annotations := include "belay.hookAnnotations" (dict "on" .on "weight" -10) }}
{{- $subject := printf "{kind: ServiceAccount, name: %s, namespace: %q}" .name $namespace }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ $namespace | quote }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $annotations | nindent 4 }}
{{- if .root.Values.rbac.create }}
{{- if .clusterRules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $annotations | nindent 4 }}
rules: {{- .clusterRules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $annotations | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
  - {{ $subject }}
{{- end }}
{{- if .clusterRole }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}-kinds
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $annotations | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .clusterRole }}}
subjects:
  - {{ $subject }}
{{- end }}
{{- if .rules }}
{{- $place := default $namespace .place }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ $place | quote }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $annotations | nindent 4 }}
rules: {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ $place | quote }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $annotations | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
subjects:
  - {{ $subject }}
{{- end }}
{{- end }}
{{- end }}

{{/* The spec of a hook's Pod with belay's image. Parameters: root, name, args. */}}
{{- define "belay.hookPod" -}}
serviceAccountName: {{ .name }}
restartPolicy: Never
{{- include "belay.podCommon" .root | nindent 0 }}
containers:
  - name: belay
    {{- include "belay.containerCommon" .root | nindent 4 }}
    args: {{- toYaml .args | nindent 6 }}
    {{- with .root.Values.extraEnv }}
    env: {{- toYaml . | nindent 6 }}
    {{- end }}
    resources: {{- toYaml .root.Values.resources | nindent 6 }}
{{- end }}

{{/* A hook's Job. Parameters: root, on, name, args. */}}
{{- define "belay.hookJob" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "belay.labels" .root | nindent 4 }}
  annotations: {{- include "belay.hookAnnotations" (dict "on" .on "weight" 0) | nindent 4 }}
spec:
  # The command is idempotent.
  backoffLimit: 3
  # Exit code 1 is a final answer. Other codes mean that a request failed, so a retry can help.
  podFailurePolicy:
    rules:
      - action: FailJob
        onExitCodes: {containerName: belay, operator: In, values: [1]}
  template:
    metadata:
      labels: {{- include "belay.labels" .root | nindent 8 }}
        app.kubernetes.io/component: hook
    spec: {{- include "belay.hookPod" . | nindent 6 }}
{{- end }}
