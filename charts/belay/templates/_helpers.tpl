{{/*
The name of the installation: the name of its Deployment, Service, Lease and webhook configurations, and the prefix of all
other names. With 30 characters, the longest name with its suffix has at most 63.
*/}}
{{- define "belay.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- regexReplaceAll "[^a-z0-9-]" $full "-" | trunc 30 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels that select the Pods of this installation. They never change, because selectors are immutable. */}}
{{- define "belay.selectorLabels" -}}
app.kubernetes.io/name: belay
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The labels of all objects. */}}
{{- define "belay.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "belay.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "belay.serviceAccountName" -}}
{{- default (include "belay.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* The user name of belay's account. */}}
{{- define "belay.account" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "belay.serviceAccountName" .) }}
{{- end }}

{{/* The namespace of `helm test`: one that every cluster has. The API server does not ask belay about belay's own. */}}
{{- define "belay.selftestNamespace" -}}
{{- default (ternary "kube-public" "default" (eq .Release.Namespace "default")) .Values.selftest.namespace }}
{{- end }}

{{/* With a digest, the tag is only informative. */}}
{{- define "belay.image" -}}
{{- $image := .Values.image }}
{{- $tag := default .Chart.AppVersion $image.tag }}
{{- printf "%s:%s" $image.repository $tag }}
{{- with $image.digest }}{{ printf "@%s" . }}{{ end }}
{{- end }}

{{/* The Secret with certificates from cert-manager or the user; empty if belay creates its own. */}}
{{- define "belay.certificateSecret" -}}
{{- if .Values.certManager.enabled }}
{{- printf "%s-tls" (include "belay.fullname" .) }}
{{- else }}
{{- default "" .Values.existingSecret }}
{{- end }}
{{- end }}
