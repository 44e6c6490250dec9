#!/usr/bin/env bash
# Waits until every intent of a namespace is Ready. If one is not in time, prints why and fails.
#
#   wait.sh NAMESPACE [TIMEOUT]
set -euo pipefail

namespace=${1:?usage: wait.sh NAMESPACE [TIMEOUT]}
timeout=${2:-5m}

if kubectl wait vai --all --namespace="$namespace" --for=condition=Ready --timeout="$timeout"; then
	exit
fi
# The conditions, and for each intent that is not Ready its cause and the command that ends it.
kubectl get vai --namespace="$namespace" --output=wide
status='{.status.conditions[?(@.type=="Ready")].status}'
kubectl get vai --namespace="$namespace" --output=jsonpath="{range .items[*]}{.metadata.name} $status{'\n'}{end}" |
	while read -r name ready; do
		[[ $ready == True ]] || kubectl hawser why intent "$name" --namespace="$namespace" || true # 1 is a finding
	done
exit 1
