{{- define "inflight.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "inflight.fullname" -}}
{{- $name := include "inflight.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "inflight.selector" -}}
app.kubernetes.io/name: {{ include "inflight.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "inflight.labels" -}}
{{ include "inflight.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "inflight.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "inflight.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "inflight.scheme" -}}
{{- ternary "HTTPS" "HTTP" (ne .Values.tls.secret "") -}}
{{- end }}

{{/* Seconds from the hook on to the kill, with a margin for the hook's own start and for unloading models. */}}
{{- define "inflight.grace" -}}
{{- add .Values.drain.preStop .Values.drain.exitDelay .Values.drain.exitTimeout 10 -}}
{{- end }}

{{/* A value of `options`; numbers come as floating point, of which text/template writes 1e+06 and the like. */}}
{{- define "inflight.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* What is served, as arguments. */}}
{{- define "inflight.modelArguments" -}}
{{- $model := .Values.model -}}
{{- $flag := ternary "--model-repository" "--model" (eq $model.layout "repository") -}}
{{- if eq $model.source "hub" }}
- --model={{ required "model.hub.name: ORG/NAME of the hub is needed for model.source hub" $model.hub.name }}
{{- else if eq $model.source "bucket" }}
- {{ $flag }}={{ required "model.bucket.uri: s3://, gs:// or as:// is needed for model.source bucket" $model.bucket.uri }}
- --remote-cache-dir=/cache/objects
{{- else }}
- {{ $flag }}={{ list "/models" $model.claim.path | compact | join "/" }}
{{- end }}
{{- with $model.servedName }}
- --served-model-name={{ . }}
{{- end }}
{{- end }}

{{- define "inflight.tlsArguments" -}}
{{- $mutual := .Values.tls.mutual -}}
{{- range $front := list "http" "grpc" "metrics" }}
- --{{ $front }}-use-ssl=true
- --{{ $front }}-server-cert=/etc/inflight/tls/tls.crt
- --{{ $front }}-server-key=/etc/inflight/tls/tls.key
{{- if and $mutual (ne $front "http") }}
- --{{ $front }}-use-ssl-mutual=true
- --{{ $front }}-root-cert=/etc/inflight/tls/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{- define "inflight.arguments" -}}
{{- include "inflight.modelArguments" . }}
- --device={{ ternary "cuda" "cpu" (eq .Values.device "gpu") }}
{{- if and (eq .Values.device "gpu") (gt (int .Values.gpu.count) 1) }}
- --tensor-parallel-size={{ .Values.gpu.count }}
{{- end }}
- --http-address=0.0.0.0
- --grpc-address=0.0.0.0
- --http-port={{ .Values.ports.http }}
- --grpc-port={{ .Values.ports.grpc }}
- --metrics-port={{ .Values.ports.metrics }}
- --exit-delay-secs={{ .Values.drain.exitDelay }}
- --exit-timeout-secs={{ .Values.drain.exitTimeout }}
- --sandbox={{ .Values.sandbox }}
{{- if .Values.inferencePool.enabled }}
- --http-metrics=true
{{- end }}
{{- if .Values.keys.secret }}
- --{{ ternary "access" "api-key-file" (eq .Values.keys.format "access") }}=/etc/inflight/keys/{{ .Values.keys.item }}
{{- end }}
{{- if .Values.tls.secret }}
{{- include "inflight.tlsArguments" . }}
{{- end }}
{{- range $name, $value := .Values.options }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
- {{ printf "--%s=%s" $name (include "inflight.text" .) | quote }}
{{- end }}
{{- end }}
{{- end }}
