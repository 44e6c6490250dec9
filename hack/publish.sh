#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Pushes images and chart of a release that make verify-release has accepted, and signs the images. What is in the
# registry then has the digests that the provenance names. Pushing a release again adds signatures, and nothing else.
#
#   hack/publish.sh VERSION DIR       HELM and COSIGN name the programs; skopeo must be there, and logged in
#
# The images go where the release says they are, the chart beside them, below charts/. COSIGN_KEY or COSIGN_KEYLESS=1 sign
# as for hack/release.sh. PLAIN_HTTP=1 is for a registry on this machine without TLS.

set -euo pipefail
version=${1:?usage: publish.sh VERSION DIR}
source "$(dirname "${BASH_SOURCE[0]}")/signing.sh"
cd "${2:?the directory is missing}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	printf 'publish: %s\n' "$*" >&2
	exit 1
}
images=$(jq -er .predicate.buildDefinition.externalParameters.images hawser.intoto.json)

copy=(skopeo copy --quiet --all --preserve-digests) inspect=(skopeo inspect --raw) push=("$HELM" push)
signing_options "$work" || fail "neither COSIGN_KEY nor COSIGN_KEYLESS is set"
sign=("$COSIGN" sign "${signing[@]}")
if [[ ${PLAIN_HTTP:-} ]]; then
	copy+=(--dest-tls-verify=false) inspect+=(--tls-verify=false) push+=(--plain-http) sign+=(--allow-http-registry)
fi

# there REFERENCE prints the manifest that the registry has, and nothing if it has none.
there() {
	if ! "${inspect[@]}" "docker://$1" 2>"$work/error"; then
		grep -qE 'manifest unknown|name unknown' "$work/error" || fail "the registry does not answer: $(<"$work/error")"
	fi
}

# Everything is compared before anything is pushed: with the checksums, with the provenance, and with what the registry
# has: a version that is out is not replaced by another one.
sha256sum --check --strict --quiet SHA256SUMS
declare -A digests
for name in operator manager agent; do
	image=$images/$name
	digest=$(jq -er --arg image "$image" '.subject[] | select(.name == $image).digest.sha256' hawser.intoto.json)
	archived=$(tar -xOf "${name}_$version.tar" index.json | jq -er '.manifests[0].digest')
	[[ $archived == "sha256:$digest" ]] || fail "the archive has $image with $archived, the provenance names sha256:$digest"
	there "$image:$version" >"$work/there"
	if [[ -s $work/there ]]; then
		other=$(sha256sum <"$work/there" | cut -d ' ' -f 1)
		[[ $other == "$digest" ]] || fail "the registry has another $image:$version, sha256:$other"
	fi
	digests[$name]=$digest
done
chart=hawser-${version#v}.tgz
there "$images/charts/hawser:${version#v}" >"$work/chart"
if [[ -s $work/chart ]]; then
	jq -e --arg digest "sha256:$(sha256sum <"$chart" | cut -d ' ' -f 1)" 'any(.layers[]; .digest == $digest)' \
		"$work/chart" >/dev/null || fail "the registry has another chart ${version#v}"
fi

for name in operator manager agent; do
	image=$images/$name digest=${digests[$name]}
	"${copy[@]}" "oci-archive:${name}_$version.tar" "docker://$image:$version"
	pushed=$("${inspect[@]}" "docker://$image:$version" | sha256sum | cut -d ' ' -f 1)
	[[ $pushed == "$digest" ]] || fail "the registry has $image with sha256:$pushed, the provenance names sha256:$digest"
	"${sign[@]}" "$image@sha256:$digest"
	printf 'publish: %s:%s@sha256:%s\n' "$image" "$version" "$digest"
done
[[ -s $work/chart ]] || "${push[@]}" "$chart" "oci://$images/charts"
