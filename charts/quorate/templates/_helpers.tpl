{{- /* Names, labels and annotations. No value but image needs to be there: with --reuse-values an upgrade has the values of
     the release before, and none that came later. */}}
{{- define "quorate.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}{{ else if contains $name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "quorate.serviceAccount" -}}
{{- default (include "quorate.fullname" .) (.Values.serviceAccount).name }}
{{- end }}

{{- define "quorate.image" -}}
{{- $image := .Values.image }}
{{- $tag := default (ternary "" .Chart.AppVersion (not (empty $image.digest))) $image.tag }}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* The Secrets of members: those of the operator, unless others are given, or none. */}}
{{- define "quorate.memberSecrets" -}}
{{- $own := default list .Values.imagePullSecrets }}
{{- ternary .Values.memberImagePullSecrets $own (kindIs "slice" .Values.memberImagePullSecrets) | toYaml }}
{{- end }}

{{- /* The names in a list of references to Secrets, for a flag. */}}
{{- define "quorate.secretNames" -}}
{{- $names := list }}
{{- range . }}{{ $names = append $names .name }}{{ end }}
{{- join "," $names }}
{{- end }}

{{- /* The name is not nameOverride's: the members' NetworkPolicies admit the operator by it. */}}
{{- define "quorate.selector" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "quorate.labels" -}}
{{ include "quorate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- if ne .Release.Service "kubectl" }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The metadata of an object: (dict "of" $ "name" NAME), with "namespace" where it has one, and "labels" and
     "annotations" of its own, which win over the common ones. */}}
{{- define "quorate.metadata" -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels: {{- include "quorate.labels" .of | nindent 2 }}
{{- with .labels }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) (default dict .annotations) (default dict .of.Values.commonAnnotations) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A number as YAML: those of a values file come as floating-point numbers, and big ones would be written with an exponent. */}}
{{- define "quorate.number" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ int64 . }}{{ end }}
{{- end }}

{{- /* The user that the values name, 0 for none. */}}
{{- define "quorate.user" -}}
{{- if hasKey .Values "runAsUser" }}{{ int64 (default 0 .Values.runAsUser) }}{{ else }}65532{{ end }}
{{- end }}

{{- /* The two securityContexts. Their defaults are here too, or an upgrade with the values of before would lose them. */}}
{{- define "quorate.podSecurityContext" -}}
{{- $given := deepCopy (default (dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault")) .Values.podSecurityContext) }}
{{- $user := include "quorate.user" . | int64 }}
{{- if and $user (not (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}
{{- $given = merge $given (dict "runAsUser" $user "runAsGroup" $user) }}
{{- end }}
{{- toYaml $given }}
{{- end }}

{{- define "quorate.securityContext" -}}
{{- default (dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL"))) .Values.securityContext | toYaml }}
{{- end }}

{{- /* More than one replica are spread, unless the values say how. */}}
{{- define "quorate.spread" -}}
{{- $selector := dict "matchLabels" (include "quorate.selector" . | fromYaml) }}
{{- $given := .Values.topologySpreadConstraints }}
{{- if kindIs "slice" $given }}
{{- range $given }}
{{- $entry := ternary . (merge (dict "labelSelector" $selector) .) (hasKey . "labelSelector") }}
- {{ $entry | toYaml | nindent 2 | trim }}
{{- end }}
{{- else if gt (int64 (default 1 .Values.replicas)) 1 }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- {{ dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $selector "matchLabelKeys" (list "pod-template-hash") | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What a PodMonitor and a ServiceMonitor say of the operator's port. */}}
{{- define "quorate.scrape" -}}
port: http
path: /metrics
{{- /* The namespace of a figure is its cluster's. */}}
honorLabels: true
{{- range $key := list "interval" "scrapeTimeout" "authorization" "bearerTokenFile" "relabelings" "metricRelabelings" }}
{{- with get $ $key }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{- end }}
