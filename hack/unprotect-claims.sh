#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The last step of uninstalling Hawser (docs/install.md): takes its finalizer, and nothing else, off every
# PersistentVolumeClaim that carries it. Such a claim would otherwise stay Terminating once it is deleted. Needs kubectl and
# nothing else, and can be run again.
#
#   hack/unprotect-claims.sh [ARGUMENTS OF KUBECTL, such as --context=NAME]

set -euo pipefail
readonly finalizer=volumes.hawser.io/claim-protection

kubectl() { command kubectl "${flags[@]}" "$@"; }
flags=("$@")

# As long as there are intents a volume may be mounted; and a manager that runs would set the finalizer again.
if [[ -n $(kubectl get crd volumeattachmentintents.volumes.hawser.io --ignore-not-found -o name) ]]; then
	intents=$(kubectl get vai --all-namespaces -o name)
	if [[ -n $intents ]]; then
		echo "there are still intents (kubectl get vai -A); delete them first and wait until they are gone" >&2
		exit 1
	fi
fi

# protected prints namespace, name and the finalizer's place in the list of each claim that carries it.
protected() {
	kubectl get persistentvolumeclaims --all-namespaces -o go-template='
		{{- range $claim := .items }}
			{{- range $place, $f := .metadata.finalizers }}
				{{- if eq $f "'$finalizer'" }}{{ $claim.metadata.namespace }} {{ $claim.metadata.name }} {{ $place }}{{ "\n" }}{{ end }}
			{{- end }}
		{{- end }}'
}

# The API server removes what stands at that place only if it is still the finalizer. Where somebody changed the list
# meanwhile it refuses, and the claim is looked at again.
for _ in 1 2 3; do
	found=$(protected)
	if [[ -z $found ]]; then
		echo "no claim carries $finalizer"
		exit 0
	fi
	while read -r namespace name place; do
		kubectl patch persistentvolumeclaim "$name" --namespace="$namespace" --type=json --patch='[
			{"op": "test", "path": "/metadata/finalizers/'"$place"'", "value": "'$finalizer'"},
			{"op": "remove", "path": "/metadata/finalizers/'"$place"'"}]' </dev/null || true
	done <<<"$found"
done
if [[ -n $(protected) ]]; then
	echo "claims still carry $finalizer; see what was refused" >&2
	exit 1
fi
