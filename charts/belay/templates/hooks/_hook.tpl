{{/*
The annotations of an object that a hook makes. Called with on and weight. Accounts and rights come before the Job that
uses them, and all of it goes when the Job has succeeded. One that failed stays for its log to be read, and goes before
the next try.
*/}}
{{- define "belay.hookAnnotations" -}}
helm.sh/hook: {{ .on }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/*
The account that a hook runs as, and its rights: no more than the hook needs, and no longer than it runs. Called with
root, on and name (of the account, its roles and its Pod); and, as YAML, with clusterRules and rules, the rights in the
whole cluster and in one namespace, which is belay's own unless place names another; and with clusterRole, one that
exists and is meant as well.
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

{{/* The spec of a hook's Pod: belay's own image, one command. Called with root, name and args. */}}
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

{{/* A hook's Job. Called with root, on, name and args. */}}
{{- define "belay.hookJob" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "belay.labels" .root | nindent 4 }}
  annotations: {{- include "belay.hookAnnotations" (dict "on" .on "weight" 0) | nindent 4 }}
spec:
  # What it does can be done again: what is done already is found done.
  backoffLimit: 3
  # 1 is its no, which another try would not change; what could not be asked or done is another number.
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
