{{/*
The name of the installation: of its Deployment, Service, Lease and webhook configurations, and the beginning of every
other name. 30 characters leave room for the longest end ("-storage-classes-in-use" and longer) within 63.
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

{{/* What tells this installation's Pods from others. It never changes, as selectors cannot. */}}
{{- define "belay.selectorLabels" -}}
app.kubernetes.io/name: belay
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The labels of every object. */}}
{{- define "belay.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "belay.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "belay.serviceAccountName" -}}
{{- default (include "belay.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* The user name by which the API server knows belay. */}}
{{- define "belay.account" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "belay.serviceAccountName" .) }}
{{- end }}

{{/* Where `helm test` tries: a namespace that every cluster has, and not belay's own, about which nobody asks it. */}}
{{- define "belay.selftestNamespace" -}}
{{- default (ternary "kube-public" "default" (eq .Release.Namespace "default")) .Values.selftest.namespace }}
{{- end }}

{{/* A digest says all; the tag beside it is for people. */}}
{{- define "belay.image" -}}
{{- $image := .Values.image }}
{{- $tag := default .Chart.AppVersion $image.tag }}
{{- printf "%s:%s" $image.repository $tag }}
{{- with $image.digest }}{{ printf "@%s" . }}{{ end }}
{{- end }}

{{/* The Secret that something else than belay fills with certificates; empty where belay makes its own. */}}
{{- define "belay.certificateSecret" -}}
{{- if .Values.certManager.enabled }}
{{- printf "%s-tls" (include "belay.fullname" .) }}
{{- else }}
{{- default "" .Values.existingSecret }}
{{- end }}
{{- end }}
