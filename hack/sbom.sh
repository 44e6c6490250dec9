#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the SBOM of an image or of a directory in SPDX, as syft finds it: Debian packages, and the modules of Go programs.
# Twice gives the same bytes: syft would put the present time and a random name into it.
#
#   hack/sbom.sh VERSION NAME SOURCE FLAGS...       SYFT names the program

set -euo pipefail
version=${1:?usage: sbom.sh VERSION NAME SOURCE FLAGS...}
name=${2:?the name is missing}
source=${3:?the source is missing}
export SYFT_CHECK_FOR_APP_UPDATE=false

"$SYFT" scan --quiet "$source" "${@:4}" --source-name "$name" --source-version "$version" --output spdx-json |
	jq --arg version "$version" --arg name "$name" --argjson time "${SOURCE_DATE_EPOCH:?the time is missing}" '
		.name = $name
		| .documentNamespace = "https://github.com/hawser-io/hawser/releases/\($version)/\($name).spdx.json"
		| .creationInfo.created = ($time | todate)
		# The version of our own modules is not in what -trimpath leaves of the flags.
		| (.packages[] | select(.name | test("^github.com/hawser-io/hawser(/|$)")) | .versionInfo) = $version'
