# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sourced by what signs. signing_options WORK sets the array `signing` to the options of cosign, and fails if neither
# COSIGN_KEY nor COSIGN_KEYLESS=1 is set. With a key neither services nor roots of trust are asked.

signing_options() {
	signing=(--yes)
	if [[ ${COSIGN_KEY:-} ]]; then
		printf '{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}' >"$1/services.json"
		printf '{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}' >"$1/roots.json"
		signing+=(--key "$COSIGN_KEY" --signing-config "$1/services.json" --trusted-root "$1/roots.json")
	else
		[[ ${COSIGN_KEYLESS:-} ]]
	fi
}
