{{/*
The kinds that belay may read and hold, as YAML: `read` and `hold`, each from API groups to plural names. It may hold
what policies of the chart and the label hold, and what values add.

RBAC can say "these kinds" and "every kind", never "every kind but Secrets". So it is a list: what the built-in
relations know (files/kinds.yaml, without Secrets), the kinds of the relation families that are on, and what values add.
*/}}
{{- define "belay.kinds" -}}
{{- $known := .Files.Get "files/kinds.yaml" | fromYaml }}
{{- $read := dict }}
{{- $hold := dict }}
{{- range $group, $resources := $known.read }}
  {{- $_ := set $read $group $resources }}
{{- end }}
{{- range $group, $resources := $known.held }}
  {{- $_ := set $hold $group $resources }}
{{- end }}
{{- range $family, $on := .Values.relations }}
  {{- if $on }}
    {{- range $.Files.Get (printf "files/relations/%s.yaml" $family) | fromYamlArray }}
      {{- range list .spec.from .spec.to }}
        {{- /* Of a kind that the object itself says, and of Secrets, nobody knows beforehand that they are wanted. */}}
        {{- if and . (ne .resource "secrets") }}
          {{- $_ := set $read .group (append (default list (get $read .group)) .resource) }}
        {{- end }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- $also := list }}
{{- range .Values.labelledKinds }}
  {{- $parts := splitn "." 2 . }}
  {{- $also = append $also (list (default "" $parts._1) $parts._0) }}
{{- end }}
{{- range .Values.rbac.watchAlso }}
  {{- $parts := splitList "/" . }}
  {{- $also = append $also (list (ternary (first $parts) "" (eq (len $parts) 2)) (last $parts)) }}
{{- end }}
{{- range $also }}
  {{- $group := first . }}
  {{- $resource := last . }}
  {{- /* Secrets have a role of their own. */}}
  {{- if not (and (eq $group "") (eq $resource "secrets")) }}
    {{- $_ := set $read $group (append (default list (get $read $group)) $resource) }}
    {{- $_ := set $hold $group (append (default list (get $hold $group)) $resource) }}
  {{- end }}
{{- end }}
{{- dict "read" $read "hold" $hold | toYaml }}
{{- end }}

{{/* One rule a group: called with kinds and verbs. */}}
{{- define "belay.kindRules" -}}
{{- $verbs := .verbs }}
{{- range $group, $resources := .kinds }}
{{- if $resources }}
- apiGroups: [{{ $group | quote }}]
  resources: {{- $resources | uniq | sortAlpha | toYaml | nindent 4 }}
  verbs: [{{ join ", " $verbs }}]
{{- end }}
{{- end }}
{{- end }}

{{/* Whether belay has to read Secrets: somebody asks for the protection of some. Of theirs it reads the metadata. */}}
{{- define "belay.readsSecrets" -}}
{{- $policy := include "belay.policy" (dict "root" . "key" "secretsInUse") | fromYaml }}
{{- if or $policy.enabled (has "secrets" .Values.rbac.watchAlso) (has "secrets" .Values.labelledKinds) }}true{{ end }}
{{- end }}

{{/*
Whether belay may list every kind: a value says so, or Namespaces are only deleted when nothing at all is in them, which
is known when every kind has been listed.
*/}}
{{- define "belay.listsEverything" -}}
{{- $namespaces := include "belay.policy" (dict "root" . "key" "namespacesWithContent") | fromYaml }}
{{- if or .Values.rbac.watchEverything (and $namespaces.enabled (eq .Values.profile "strict")) }}true{{ end }}
{{- end }}
