{{/*
One webhook of a webhook configuration, without `rules`, `caBundle` and the path of the Service. The leader adds these from the
policies, its certificates and the secret path. A webhook without rules matches no request, and an upgrade that sends no rules
keeps the existing ones.

Parameters: root, name, fails; optional: labelled, conditions, mutates. A test compares all webhooks with the output of
`belay admin manifests`.
*/}}
{{- define "belay.webhookEntry" -}}
{{- $fullname := include "belay.fullname" .root -}}
name: {{ .name }}
admissionReviewVersions: [v1]
clientConfig:
  service:
    namespace: {{ .root.Release.Namespace | quote }}
    name: {{ $fullname }}
    port: 443
failurePolicy: {{ ternary "Fail" "Ignore" .fails }}
{{- with .conditions }}
matchConditions:
  {{- range . }}
  {{- include (printf "belay.condition.%s" .) $.root | nindent 2 }}
  {{- end }}
{{- end }}
matchPolicy: Equivalent
# Administrators must be able to repair the cluster and belay while belay is down.
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, kube-node-lease, {{ .root.Release.Namespace | quote }}]
{{- if .labelled }}
objectSelector:
  matchExpressions:
    - {key: belay.dev/protect, operator: Exists}
{{- end }}
{{- if .mutates }}
# A later webhook may change the finalizers.
reinvocationPolicy: IfNeeded
{{- end }}
sideEffects: NoneOnDryRun
timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
{{- end }}
