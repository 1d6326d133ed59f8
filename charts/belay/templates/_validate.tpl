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
{{- if and (not .Values.crds.keep) (not .Values.uninstall.enabled) }}
{{- fail "crds.keep is false and uninstall.enabled is false: the policies would go while objects still have its hold; set uninstall.enabled to true, or keep the definitions and delete them by hand after `belay release --all`" }}
{{- end }}
{{- $network := .Values.networkPolicy }}
{{- if and $network.enabled (not $network.webhookFrom) (not $network.apiServer.cidrs) }}
{{- fail "networkPolicy.enabled is true, so the API server has to be named: set networkPolicy.apiServer.cidrs to its addresses, or networkPolicy.webhookFrom where it asks through other Pods, as Konnectivity agents; [{ipBlock: {cidr: 0.0.0.0/0}}] is anywhere" }}
{{- end }}
{{- range $kind := .Values.rbac.watchAlso }}
  {{- $parts := splitList "/" $kind }}
  {{- if and (eq (len $parts) 2) (has (first $parts) (list "core" "v1")) }}
    {{- if eq (last $parts) "*" }}
      {{- fail (printf "rbac.watchAlso: %s: the core group has no name to be written: name each of its kinds that is meant, as secrets" $kind) }}
    {{- end }}
    {{- fail (printf "rbac.watchAlso: %s: kinds of the core group are written without a group: write %s" $kind (last $parts)) }}
  {{- end }}
{{- end }}
{{- if and (not .Values.uninstall.enabled) .Values.uninstall.abandon }}
{{- fail "uninstall.abandon is true and uninstall.enabled is false: nothing of belay runs at an uninstall, so nothing is abandoned; take one of them out" }}
{{- end }}
{{- range $hold := .Values.formerHolds }}
  {{- if or (eq $hold "belay.dev/hold") (regexMatch "(^|\\.)kubernetes\\.io/|k8s\\.io/" $hold) }}
    {{- fail (printf "formerHolds: %s: it has to be a finalizer that belay alone may take off, and not the present one" $hold) }}
  {{- end }}
{{- end }}
{{- $known := (.Files.Get "files/kinds.yaml" | fromYaml).read }}
{{- range $kind := .Values.labelledKinds }}
  {{- $parts := splitn "." 2 $kind }}
  {{- if and (not $parts._1) (not (has $kind (get $known ""))) }}
    {{- range $group, $resources := $known }}
      {{- if has $kind $resources }}
        {{- fail (printf "labelledKinds: %s: that kind is not of the core group: write %s.%s" $kind $kind $group) }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- if has (default "" $parts._1) (list "core" "v1") }}
    {{- fail (printf "labelledKinds: %s: kinds of the core group are written without a group: write %s" $kind $parts._0) }}
  {{- end }}
{{- end }}
{{- /* Of what YAML takes for something else, and of what no Service may be called. */}}
{{- $name := include "belay.fullname" . }}
{{- if or (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) (has $name (list "true" "false" "null" "yes" "no" "on" "off" "y" "n")) }}
{{- fail (printf "the installation would be called %q: its name begins with a letter, as a Service's does, and is none that YAML reads as something else; set fullnameOverride" $name) }}
{{- end }}
{{- /* A key that is written twice is an error to one tool, and to another the last one wins. */}}
{{- $labels := keys (include "belay.labels" . | fromYaml) | sortAlpha }}
{{- $labels = append $labels "app.kubernetes.io/component" }}
{{- range $value, $given := dict
  "podLabels" .Values.podLabels
  "serviceMonitor.labels" .Values.serviceMonitor.labels
  "prometheusRule.labels" .Values.prometheusRule.labels
  "dashboard.labels" .Values.dashboard.labels
}}
  {{- range $key, $_ := $given }}
    {{- if has $key $labels }}
      {{- fail (printf "%s: %s is the chart's own: take it out" $value $key) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $constraint := .Values.topologySpreadConstraints }}
  {{- range $key := list "labelSelector" "matchLabelKeys" }}
    {{- if hasKey $constraint $key }}
      {{- fail (printf "topologySpreadConstraints: %s is the chart's own: take it out" $key) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- $own := list "--name" "--namespace" "--certificates" "--cert-dir" "--certificate-days" "--labelled-kinds" "--former-hold" "--backfill-max-objects" "--webhook-timeout" "--deadline" "--drain" "--log-format" "--listen" "--probes" }}
{{- range .Values.extraArgs }}
  {{- $option := regexFind "^--[a-z-]+" . }}
  {{- if has $option $own }}
    {{- fail (printf "extraArgs: %s is the chart's own: take it out" $option) }}
  {{- end }}
{{- end }}
{{- range .Values.extraEnv }}
  {{- if eq (toString .name) "POD_NAME" }}
    {{- fail "extraEnv: POD_NAME is the chart's own: take it out" }}
  {{- end }}
{{- end }}
{{- if has .Release.Namespace (list "kube-system" "kube-node-lease") }}
{{- fail (printf "belay in %s could not be told from what a cluster needs to repair itself; install it in a namespace of its own: --namespace belay --create-namespace" .Release.Namespace) }}
{{- end }}
{{- end }}
