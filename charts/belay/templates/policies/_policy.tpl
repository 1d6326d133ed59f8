{{/*
The state of a policy, as YAML: `enabled` and `action`. Parameters: root, key. The values `policies.KEY.enabled` and `.action`
take precedence over the profile (files/profiles.yaml).
*/}}
{{- define "belay.policy" -}}
{{- $values := default dict (get .root.Values.policies .key) }}
{{- $byProfile := get (.root.Files.Get "files/profiles.yaml" | fromYaml | dig .key dict) .root.Values.profile }}
{{- $enabled := ne $byProfile "off" }}
{{- if kindIs "bool" $values.enabled }}{{ $enabled = $values.enabled }}{{ end }}
{{- /* A policy that only the values enable has the usual action of the profile. */}}
{{- $action := ternary (ternary "Audit" "Deny" (eq .root.Values.profile "observe")) $byProfile (eq $byProfile "off") }}
{{- dict "enabled" $enabled "action" (default $action $values.action) | toYaml }}
{{- end }}

{{/* The head of a policy. Parameters: root, name, description. */}}
{{- define "belay.policyHead" -}}
apiVersion: belay.dev/v1alpha1
kind: DeletionPolicy
metadata:
  name: {{ include "belay.fullname" .root }}-{{ .name }}
  labels: {{- include "belay.labels" .root | nindent 4 }}
  annotations:
    kubernetes.io/description: {{ .description | quote }}
{{- end }}

{{/*
The end of a policy's spec: its action and the fields from the values. Parameters: root, key; optional: exclude, the targets
that the policy itself excludes.
*/}}
{{- define "belay.policyEnd" -}}
{{- $values := default dict (get .root.Values.policies .key) }}
{{- $policy := include "belay.policy" . | fromYaml -}}
action: {{ $policy.action }}
{{- with concat (default list .exclude) (default list $values.exclude) }}
exclude: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $field := list "exemptSubjects" "actionOverrides" }}
{{- with get $values $field }}
{{ $field }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
