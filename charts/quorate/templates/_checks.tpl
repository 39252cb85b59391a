{{- /* What the schema cannot refuse: values that contradict one another, and values without effect. Renders nothing. */}}
{{- define "quorate.checks" -}}
{{- $values := .Values }}
{{- if and $values.allNamespaces $values.watchNamespaces }}
{{- fail "give either watchNamespaces or allNamespaces=true, not both" }}
{{- end }}
{{- if not (or $values.allNamespaces $values.watchNamespaces) }}
{{- fail "say whose clusters the operator serves: watchNamespaces={a,b} gives it rights, also to every Secret, in these namespaces alone; allNamespaces=true in all of them" }}
{{- end }}
{{- include "quorate.checks.metadata" . }}
{{- include "quorate.checks.container" . }}
{{- include "quorate.checks.user" . }}
{{- include "quorate.checks.metrics" . }}
{{- include "quorate.checks.console" . }}
{{- include "quorate.checks.lease" . }}
{{- end }}

{{- define "quorate.checks.lease" -}}
{{- $lease := default dict .Values.lease }}
{{- $duration := int64 (default 15 $lease.durationSeconds) }}
{{- $renew := int64 (default (sub $duration 5) $lease.renewDeadlineSeconds) }}
{{- if gt $renew (sub $duration 5) }}
{{- fail (printf "lease.renewDeadlineSeconds is %d: give at most %d, five less than durationSeconds, as a request takes up to four" $renew (sub $duration 5)) }}
{{- end }}
{{- $retry := int64 (default 2 $lease.retryPeriodSeconds) }}
{{- if gt $retry (div $renew 2) }}
{{- fail (printf "lease.retryPeriodSeconds is %d: give at most %d, half of the renew deadline" $retry (div $renew 2)) }}
{{- end }}
{{- end }}

{{- define "quorate.checks.metadata" -}}
{{- $own := concat (include "quorate.selector" . | fromYaml | keys) (list "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart") }}
{{- $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "metricsService.labels" (.Values.metricsService).labels "podMonitor.labels" (.Values.podMonitor).labels "serviceMonitor.labels" (.Values.serviceMonitor).labels "prometheusRule.labels" (.Values.prometheusRule).labels "grafanaDashboards.labels" (.Values.grafanaDashboards).labels }}
{{- range $value, $given := $labels }}
{{- range $key := keys (default dict $given) | sortAlpha }}
{{- if has $key $own }}
{{- fail (printf "%s: the chart sets the label %s itself" $value $key) }}
{{- end }}
{{- if and (ne $value "commonLabels") (hasKey (default dict $.Values.commonLabels) $key) }}
{{- fail (printf "%s and commonLabels both set the label %s: leave one of them out" $value $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "quorate.checks.container" -}}
{{- $flags := dict "image" "image" "image-pull-secrets" "memberImagePullSecrets" "watch-namespaces" "watchNamespaces" "probe-address" "listen" "concurrency" "concurrency" "lease-duration" "lease.durationSeconds" "lease-renew-deadline" "lease.renewDeadlineSeconds" "lease-retry-period" "lease.retryPeriodSeconds" "member-user" "memberUser" "metrics" "metrics" "forecasts" "forecasts" "console-address" "console" "log-format" "logFormat" }}
{{- range .Values.extraArgs }}
{{- $flag := regexFind "^--[a-z-]+" . | trimPrefix "--" }}
{{- if hasKey $flags $flag }}
{{- fail (printf "extraArgs: --%s is set by the value %s" $flag (get $flags $flag)) }}
{{- end }}
{{- if has $flag (list "lease-name" "lease-namespace") }}
{{- fail (printf "extraArgs: --%s cannot be changed here: the operator has rights to the Lease quorate-operator in its own namespace alone" $flag) }}
{{- end }}
{{- end }}
{{- $variables := dict "RUST_LOG" "logLevel" "QUORATE_IMAGE" "image" "QUORATE_IMAGE_PULL_SECRETS" "memberImagePullSecrets" "QUORATE_WATCH_NAMESPACES" "watchNamespaces" }}
{{- range .Values.extraEnv }}
{{- if hasKey $variables .name }}
{{- fail (printf "extraEnv: %s is what the value %s says" .name (get $variables .name)) }}
{{- end }}
{{- if has .name (list "POD_NAME" "POD_NAMESPACE") }}
{{- fail (printf "extraEnv: the chart sets %s itself" .name) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "quorate.checks.user" -}}
{{- $user := include "quorate.user" . | int64 }}
{{- $pod := include "quorate.podSecurityContext" . | fromYaml }}
{{- $container := include "quorate.securityContext" . | fromYaml }}
{{- range $value, $context := dict "podSecurityContext" $pod "securityContext" $container }}
{{- if hasKey $context "runAsUser" }}
{{- if and $user (ne (int64 $context.runAsUser) $user) }}
{{- fail (printf "%s.runAsUser is %d and runAsUser is %d: set runAsUser alone, or set it to 0" $value (int64 $context.runAsUser) $user) }}
{{- end }}
{{- if and (eq (int64 $context.runAsUser) 0) $pod.runAsNonRoot }}
{{- fail (printf "%s.runAsUser is 0, which podSecurityContext.runAsNonRoot refuses" $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $container.privileged (eq (toString $container.allowPrivilegeEscalation) "false") }}
{{- fail "securityContext: a privileged container cannot have allowPrivilegeEscalation: false; the operator needs neither" }}
{{- end }}
{{- end }}

{{- define "quorate.checks.console" -}}
{{- $console := default dict .Values.console }}
{{- if and $console.enabled (not .Values.clusterRead) }}
{{- fail "console.enabled: without clusterRead the operator cannot check tokens, so that nobody may look" }}
{{- end }}
{{- if and $console.from (not $console.enabled) }}
{{- fail "console.from has no effect without console.enabled" }}
{{- end }}
{{- if and $console.from (not (.Values.networkPolicy).enabled) }}
{{- fail "console.from has no effect without networkPolicy.enabled" }}
{{- end }}
{{- end }}

{{- define "quorate.checks.metrics" -}}
{{- $metrics := default "known" .Values.metrics }}
{{- $known := eq $metrics "known" }}
{{- $pod := default dict .Values.podMonitor }}
{{- $service := default dict .Values.serviceMonitor }}
{{- if and .Values.metricsReaders (not $known) }}
{{- fail (printf "metricsReaders has no effect with metrics=%s" $metrics) }}
{{- end }}
{{- range .Values.metricsReaders }}
{{- if ne (eq .kind "ServiceAccount") (hasKey . "namespace") }}
{{- fail (printf "metricsReaders: a ServiceAccount has a namespace, a User or a Group has none: %s %s" .kind .name) }}
{{- end }}
{{- end }}
{{- if and $pod.enabled $service.enabled }}
{{- fail "give either podMonitor or serviceMonitor: with both, Prometheus has every figure twice" }}
{{- end }}
{{- if and $service.enabled (not (.Values.metricsService).enabled) }}
{{- fail "serviceMonitor.enabled needs the Service: set metricsService.enabled=true, or use podMonitor" }}
{{- end }}
{{- range $value, $monitor := dict "podMonitor" $pod "serviceMonitor" $service }}
{{- if $monitor.enabled }}
{{- if eq $metrics "nobody" }}
{{- fail (printf "%s.enabled: with metrics=nobody there is nothing to read" $value) }}
{{- end }}
{{- if and $known (not $.Values.clusterRead) }}
{{- fail (printf "%s.enabled: without clusterRead the operator cannot check tokens, so that with metrics=known nobody may read them" $value) }}
{{- end }}
{{- if and $known (not (or $monitor.authorization $monitor.bearerTokenFile)) }}
{{- fail (printf "%s.enabled: with metrics=known Prometheus needs a bearer token: set %s.authorization%s, or metrics=everybody" $value $value (ternary " or serviceMonitor.bearerTokenFile" "" (eq $value "serviceMonitor"))) }}
{{- end }}
{{- if and $monitor.authorization $monitor.bearerTokenFile }}
{{- fail "serviceMonitor: give either authorization or bearerTokenFile" }}
{{- end }}
{{- /* A real API server has apiregistration.k8s.io; helm template alone knows nothing of what is installed. */}}
{{- if and ($.Capabilities.APIVersions.Has "apiregistration.k8s.io/v1") (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
{{- fail (printf "%s.enabled: the API server does not serve monitoring.coreos.com/v1: install the Prometheus operator first" $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
