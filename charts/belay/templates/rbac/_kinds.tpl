{{/*
The kinds that belay may read and hold, as YAML: `read` and `hold` map API groups to plural names. `hold` has the kinds
that the policies of the chart and the label hold, and the kinds from the values.

RBAC can grant named kinds or all kinds, but not "all kinds except Secrets". So this is a list: the kinds of the built-in
relations (files/kinds.yaml, without Secrets), the kinds of the enabled relation families, and the kinds from the values.
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
        {{- /* Skip references whose kind is in the object itself. Secrets need an explicit value. */}}
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
  {{- /* Secrets have their own rule. */}}
  {{- if not (and (eq $group "") (eq $resource "secrets")) }}
    {{- $_ := set $read $group (append (default list (get $read $group)) $resource) }}
    {{- $_ := set $hold $group (append (default list (get $hold $group)) $resource) }}
  {{- end }}
{{- end }}
{{- dict "read" $read "hold" $hold | toYaml }}
{{- end }}

{{/* One rule for each API group. Parameters: kinds, verbs. */}}
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

{{/* Whether a policy or a value lets belay read the metadata of Secrets. */}}
{{- define "belay.readsSecrets" -}}
{{- $policy := include "belay.policy" (dict "root" . "key" "secretsInUse") | fromYaml }}
{{- if or $policy.enabled (has "secrets" .Values.rbac.watchAlso) (has "secrets" .Values.labelledKinds) }}true{{ end }}
{{- end }}

{{/*
Whether belay may list all kinds: because of a value, or because a policy refuses to delete Namespaces with any content. To
know that a Namespace is empty, belay must list all kinds.
*/}}
{{- define "belay.listsEverything" -}}
{{- $namespaces := include "belay.policy" (dict "root" . "key" "namespacesWithContent") | fromYaml }}
{{- if or .Values.rbac.watchEverything (and $namespaces.enabled (eq .Values.profile "strict")) }}true{{ end }}
{{- end }}
