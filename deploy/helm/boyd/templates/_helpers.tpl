{{- /* Names are fixed, as with kustomize: one release in a namespace. */ -}}
{{- define "boyd.labels" -}}
app.kubernetes.io/name: boyd
app.kubernetes.io/component: {{ . }}
app.kubernetes.io/part-of: boyd
{{- end }}

{{- define "boyd.agentConfigMap" -}}
{{ .Values.agentConfigMap | default "boyd-agent" }}
{{- end }}

{{- define "boyd.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Fails if a setting holds a secret: whoever may read ConfigMaps or the release could read it. */ -}}
{{- define "boyd.refuseSecrets" -}}
{{- range $name, $_ := .settings }}
{{- if and (regexMatch "^BOYD_(REDIS_URL|BROKER_URL|ARCHIVE_URL)$|_(KEY|SECRETS?)$" $name) (not (hasSuffix "_PUBLIC_KEY" $name)) (ne "BOYD_INTAKE__SECRETS" $name) }}
{{- fail (printf "settings.%s is a secret: put it into the Secret %s, and name its file with %s_FILE" $name $.root.Values.secret $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The pod of a role: root, role, args, grace, keys of the Secret, and whether it has children, spreads, signs. */ -}}
{{- define "boyd.pod" -}}
{{- $values := .root.Values }}
{{- $own := index $values (.values | default .role) }}
metadata:
  labels:
    {{- include "boyd.labels" .role | nindent 4 }}
  annotations:
    # A change replaces the pods.
    checksum/settings: {{ include "boyd.configuration" .root | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: boyd
  automountServiceAccountToken: false
  # Kubernetes would set variables like BOYD_API_PORT, and Boyd refuses unknown BOYD_ variables.
  enableServiceLinks: false
  {{- if .children }}
  # The pod, not Boyd, reaps processes that actions or observers leave behind.
  shareProcessNamespace: true
  {{- end }}
  terminationGracePeriodSeconds: {{ .grace }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with concat (.tolerations | default list) $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .spreads }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: { app.kubernetes.io/name: boyd, app.kubernetes.io/component: {{ $.role }} }
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: {{ .role }}
      image: {{ include "boyd.image" .root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: {{ toJson .args }}
      envFrom:
        - configMapRef: { name: boyd-settings }
      env:
        {{- toYaml .env | nindent 8 }}
        {{- include "boyd.refuseSecrets" (dict "settings" $own.settings "root" .root) }}
        {{- range $name, $value := $own.settings }}
        - { name: {{ $name }}, value: {{ $value | quote }} }
        {{- end }}
      {{- with .container }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      resources:
        {{- toYaml $own.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      volumeMounts:
        - { name: agent, mountPath: /agent, readOnly: true }
        - { name: secrets, mountPath: /run/secrets/boyd, readOnly: true }
        - { name: tmp, mountPath: /tmp }
  volumes:
    - name: agent
      configMap: { name: {{ include "boyd.agentConfigMap" .root }} }
    - name: secrets
      secret:
        secretName: {{ $values.secret }}
        defaultMode: 0440
        items:
          - { key: {{ .url }}, path: redis-url }
          - { key: audit-key, path: audit-key }
          {{- if .signs }}
          - { key: approval-secret, path: approval-secret }
          {{- end }}
          {{- range $own.secretKeys }}
          - { key: {{ . }}, path: {{ . }} }
          {{- end }}
    - name: tmp
      emptyDir: { medium: Memory, sizeLimit: 64Mi }
{{- end }}
