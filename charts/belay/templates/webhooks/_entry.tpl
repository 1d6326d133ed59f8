{{/*
One entry of a webhook configuration, without `rules`, `caBundle` and the path of the Service: the leader fills them in,
from the policies, its certificates and the secret of the path. An entry without rules matches nothing, and an upgrade
that sends none leaves alone what is there.

Called with root, name, fails, and where they apply labelled, conditions, mutates. A test holds all entries
against what `belay admin manifests` prints.
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
# A cluster has to be able to repair itself, and belay in its own namespace, while belay is down.
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
# Another webhook after belay's may write the list of finalizers.
reinvocationPolicy: IfNeeded
{{- end }}
sideEffects: NoneOnDryRun
timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
{{- end }}
