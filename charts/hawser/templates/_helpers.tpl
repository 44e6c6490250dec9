{{/* The reference of an image: (list . "operator"). */}}
{{- define "hawser.image" -}}
{{- $images := (index . 0).Values.images -}}
{{- $name := index . 1 -}}
{{- index $images $name | default (printf "%s/%s:%s" $images.prefix $name ($images.tag | default (index . 0).Chart.AppVersion)) -}}
{{- end -}}

{{- define "hawser.labels" -}}
app.kubernetes.io/name: hawser
app.kubernetes.io/component: operator
{{- end -}}
