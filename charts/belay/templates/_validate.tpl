{{/*
Checks of combinations that values.schema.json can't express. All other checks are in values.schema.json.
*/}}
{{- define "belay.validate" -}}
{{- if and .Values.certManager.enabled .Values.existingSecret }}
{{- fail "certManager.enabled and existingSecret are two sources of one certificate: remove one of them" }}
{{- end }}
{{- $issuer := .Values.certManager.issuerRef }}
{{- if and .Values.certManager.enabled (not $issuer.name) (or (ne $issuer.kind "Issuer") (ne $issuer.group "cert-manager.io")) }}
{{- fail (printf "certManager.issuerRef is a %s without a name: set the name, or remove issuerRef to let the chart create a CA" $issuer.kind) }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false: set serviceAccount.name to an existing account" }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (gt (int .Values.replicas) 1) (ge (int .Values.podDisruptionBudget.minAvailable) (int .Values.replicas)) }}
{{- fail (printf "podDisruptionBudget.minAvailable is %d of %d replicas: nodes with a replica can't be drained; set it to less than replicas" (int .Values.podDisruptionBudget.minAvailable) (int .Values.replicas)) }}
{{- end }}
{{- if ge (float64 .Values.webhook.deadlineSeconds) (float64 .Values.webhook.timeoutSeconds) }}
{{- fail (printf "webhook.deadlineSeconds is %v and webhook.timeoutSeconds is %v: set deadlineSeconds to less than timeoutSeconds; otherwise users see a time-out instead of the reason of a refusal" .Values.webhook.deadlineSeconds .Values.webhook.timeoutSeconds) }}
{{- end }}
{{- if and .Values.rbac.watchEverything .Values.rbac.watchAlso }}
{{- fail "rbac.watchEverything is true and rbac.watchAlso names kinds: remove one of them" }}
{{- end }}
{{- if and .Values.selftest.enabled (has (include "belay.selftestNamespace" .) (list .Release.Namespace "kube-system" "kube-node-lease")) }}
{{- fail (printf "selftest.namespace is %s, which belay does not guard: set it to another existing namespace" (include "belay.selftestNamespace" .)) }}
{{- end }}
{{- if and .Values.selftest.enabled (not (has "configmaps" .Values.labelledKinds)) }}
{{- fail "selftest.enabled needs configmaps in labelledKinds: add configmaps, or set selftest.enabled to false" }}
{{- end }}
{{- if and (not .Values.crds.keep) (not .Values.uninstall.enabled) }}
{{- fail "crds.keep is false and uninstall.enabled is false: the policies would be deleted while objects still have the hold; set uninstall.enabled to true, or keep the CRDs and delete them by hand after `kubectl belay admin uninstall`" }}
{{- end }}
{{- $network := .Values.networkPolicy }}
{{- if and $network.enabled (not $network.webhookFrom) (not $network.apiServer.cidrs) }}
{{- fail "networkPolicy.enabled is true: set networkPolicy.apiServer.cidrs to the addresses of the API server, or networkPolicy.webhookFrom if it connects through other Pods, for example Konnectivity agents; [{ipBlock: {cidr: 0.0.0.0/0}}] allows all" }}
{{- end }}
{{- range $kind := .Values.rbac.watchAlso }}
  {{- $parts := splitList "/" $kind }}
  {{- if and (eq (len $parts) 2) (has (first $parts) (list "core" "v1")) }}
    {{- if eq (last $parts) "*" }}
      {{- fail (printf "rbac.watchAlso: %s: a wildcard for the core group is not supported: name each kind, for example secrets" $kind) }}
    {{- end }}
    {{- fail (printf "rbac.watchAlso: %s: kinds of the core group are written without a group: write %s" $kind (last $parts)) }}
  {{- end }}
{{- end }}
{{- if and (not .Values.uninstall.enabled) .Values.uninstall.abandon }}
{{- fail "uninstall.abandon is true and uninstall.enabled is false: without the uninstall Job, abandon has no effect; change one of them" }}
{{- end }}
{{- range $hold := .Values.formerHolds }}
  {{- if or (eq $hold "belay.dev/hold") (regexMatch "(^|\\.)kubernetes\\.io/|k8s\\.io/" $hold) }}
    {{- fail (printf "formerHolds: %s: use a former name of the hold, not belay.dev/hold and not a finalizer of Kubernetes" $hold) }}
  {{- end }}
{{- end }}
{{- $known := (.Files.Get "files/kinds.yaml" | fromYaml).read }}
{{- range $kind := .Values.labelledKinds }}
  {{- $parts := splitn "." 2 $kind }}
  {{- if and (not $parts._1) (not (has $kind (get $known ""))) }}
    {{- range $group, $resources := $known }}
      {{- if has $kind $resources }}
        {{- fail (printf "labelledKinds: %s: this kind is not in the core group: write %s.%s" $kind $kind $group) }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- if has (default "" $parts._1) (list "core" "v1") }}
    {{- fail (printf "labelledKinds: %s: kinds of the core group are written without a group: write %s" $kind $parts._0) }}
  {{- end }}
{{- end }}
{{- /* Names that YAML reads as another type, and names that a Service may not have. */}}
{{- $name := include "belay.fullname" . }}
{{- if or (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) (has $name (list "true" "false" "null" "yes" "no" "on" "off" "y" "n")) }}
{{- fail (printf "the name of the installation would be %q: it must begin with a letter, as the name of a Service, and must not be a YAML keyword; set fullnameOverride" $name) }}
{{- end }}
{{- /* Some tools refuse a duplicate key, others use the last value. */}}
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
      {{- fail (printf "%s: %s is set by the chart: remove it" $value $key) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $constraint := .Values.topologySpreadConstraints }}
  {{- range $key := list "labelSelector" "matchLabelKeys" }}
    {{- if hasKey $constraint $key }}
      {{- fail (printf "topologySpreadConstraints: %s is set by the chart: remove it" $key) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- $own := list "--name" "--namespace" "--certificates" "--cert-dir" "--certificate-days" "--labelled-kinds" "--former-hold" "--backfill-max-objects" "--webhook-timeout" "--deadline" "--drain" "--log-format" "--listen" "--probes" }}
{{- range .Values.extraArgs }}
  {{- $option := regexFind "^--[a-z-]+" . }}
  {{- if has $option $own }}
    {{- fail (printf "extraArgs: %s is set by the chart: remove it" $option) }}
  {{- end }}
{{- end }}
{{- range .Values.extraEnv }}
  {{- if eq (toString .name) "POD_NAME" }}
    {{- fail "extraEnv: POD_NAME is set by the chart: remove it" }}
  {{- end }}
{{- end }}
{{- if has .Release.Namespace (list "kube-system" "kube-node-lease") }}
{{- fail (printf "belay can't be installed in %s, because it does not guard that namespace; use its own namespace: --namespace belay --create-namespace" .Release.Namespace) }}
{{- end }}
{{- end }}
