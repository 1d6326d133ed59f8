{{/*
Mixes that a JSON schema cannot word. What it can word stands in values.schema.json, so that it is said even before a
template is read.
*/}}
{{- define "belay.validate" -}}
{{- if and .Values.certManager.enabled .Values.existingSecret }}
{{- fail "certManager.enabled and existingSecret are two sources of one certificate: take one of them out" }}
{{- end }}
{{- $issuer := .Values.certManager.issuerRef }}
{{- if and .Values.certManager.enabled (not $issuer.name) (or (ne $issuer.kind "Issuer") (ne $issuer.group "cert-manager.io")) }}
{{- fail (printf "certManager.issuerRef is a %s without a name: name it, or take issuerRef out for an authority that the chart makes" $issuer.kind) }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false, so serviceAccount.name has to name the account that is there" }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (gt (int .Values.replicas) 1) (ge (int .Values.podDisruptionBudget.minAvailable) (int .Values.replicas)) }}
{{- fail (printf "podDisruptionBudget.minAvailable is %d of %d replicas: no node with one of them could ever be drained; it has to be less than replicas" (int .Values.podDisruptionBudget.minAvailable) (int .Values.replicas)) }}
{{- end }}
{{- if ge (float64 .Values.webhook.deadlineSeconds) (float64 .Values.webhook.timeoutSeconds) }}
{{- fail (printf "webhook.deadlineSeconds is %v and webhook.timeoutSeconds is %v: belay has to answer before the API server stops waiting, or people read of a time-out and not why they were refused" .Values.webhook.deadlineSeconds .Values.webhook.timeoutSeconds) }}
{{- end }}
{{- if and .Values.rbac.watchEverything .Values.rbac.watchAlso }}
{{- fail "rbac.watchEverything is every kind: take rbac.watchAlso out, or name only the kinds that are meant" }}
{{- end }}
{{- if and .Values.selftest.enabled (has (include "belay.selftestNamespace" .) (list .Release.Namespace "kube-system" "kube-node-lease")) }}
{{- fail (printf "belay is never asked about the namespace %s: name another one that stays in selftest.namespace" (include "belay.selftestNamespace" .)) }}
{{- end }}
{{- if and .Values.selftest.enabled (not (has "configmaps" .Values.labelledKinds)) }}
{{- fail "selftest.enabled looks whether a labelled ConfigMap is held: put configmaps into labelledKinds, or set selftest.enabled to false" }}
{{- end }}
{{- if has .Release.Namespace (list "kube-system" "kube-node-lease") }}
{{- fail (printf "belay in %s could not be told from what a cluster needs to repair itself; install it in a namespace of its own: --namespace belay --create-namespace" .Release.Namespace) }}
{{- end }}
{{- end }}
