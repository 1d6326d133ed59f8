{{/*
What becomes of one of the chart's policies, as YAML: `enabled` and `action`. Called with root and key. The profile says
it (files/profiles.yaml), and `policies.KEY.enabled` and `.action` overrule it.
*/}}
{{- define "belay.policy" -}}
{{- $values := default dict (get .root.Values.policies .key) }}
{{- $byProfile := get (.root.Files.Get "files/profiles.yaml" | fromYaml | dig .key dict) .root.Values.profile }}
{{- $enabled := ne $byProfile "off" }}
{{- if kindIs "bool" $values.enabled }}{{ $enabled = $values.enabled }}{{ end }}
{{- /* What is switched on where the profile has it off does as the profile does otherwise. */}}
{{- $action := ternary (ternary "Audit" "Deny" (eq .root.Values.profile "observe")) $byProfile (eq $byProfile "off") }}
{{- dict "enabled" $enabled "action" (default $action $values.action) | toYaml }}
{{- end }}

{{/* The head of a policy. Called with root, name and description. */}}
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
The end of a policy's spec: its action, and what values say beside it. Called with root and key, and with exclude for
what the policy itself leaves out.
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
