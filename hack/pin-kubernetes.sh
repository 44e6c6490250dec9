#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Pins an older Kubernetes for `make test KUBERNETES_VERSION=1.35`: writes hack/localcluster/kubernetes/1.35, a Go module
# that builds kube-apiserver, kube-controller-manager and kubectl. Needs the module proxy and the checksum database.
#
#   hack/pin-kubernetes.sh v1.35.8
#
# Kubernetes requires its staging modules (k8s.io/api, ...) by local replacements. A module that requires Kubernetes
# replaces each of them with the same release, which k8s.io/kubernetes v1.35.8 calls v0.35.8.
set -euo pipefail

release=${1:?usage: hack/pin-kubernetes.sh v1.MINOR.PATCH}
[[ $release =~ ^v1\.([0-9]+)\.[0-9]+$ ]] || { echo "pin-kubernetes: want v1.MINOR.PATCH, got $release" >&2; exit 1; }
minor=1.${BASH_REMATCH[1]}
module=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/localcluster/kubernetes/$minor
mkdir -p "$module"
cd "$module"
# A folder outside any module, so that the download changes no go.sum.
theirs=$(cd / && go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
[[ -f $theirs ]] || { echo "pin-kubernetes: k8s.io/kubernetes@$release is not to be had" >&2; exit 1; }
rm -f go.sum
{
	cat <<-END
		// Written by hack/pin-kubernetes.sh. Builds the control plane of Kubernetes $minor for tests against it.
		module github.com/hawser-io/hawser/hack/localcluster/kubernetes/$minor

		$(grep '^go ' "$theirs")

		$(grep '^godebug ' "$theirs")

		tool (
		$(printf '\tk8s.io/kubernetes/cmd/%s\n' kube-apiserver kube-controller-manager kubectl)
		)

		require k8s.io/kubernetes $release

		replace (
	END
	sed -n "s,^\t\(k8s.io/[a-z-]*\) => ./staging/.*,\t\1 => \1 v0${release#v1},p" "$theirs"
	echo ')'
} >go.mod
go mod tidy
