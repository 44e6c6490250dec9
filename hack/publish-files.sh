#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Publishes the files of a release on its page on GitHub, and compares its checksums with those that the page then has.
# A draft is what a run has left that was interrupted: it is made again. A page that is out stays as it is.
#
#   hack/publish-files.sh VERSION DIR       GITHUB_REPOSITORY names the repository; gh must be there, and logged in

set -euo pipefail
version=${1:?usage: publish-files.sh VERSION DIR}
cd "${2:?the directory is missing}"
page=("$version" --repo "${GITHUB_REPOSITORY:?the repository is missing}")

# Any other failure is not known to mean that there is no page.
if ! draft=$(gh release view "${page[@]}" --json isDraft --jq .isDraft 2>&1); then
	[[ $draft == *"release not found"* ]] || { echo "publish: $draft" >&2 && exit 1; }
	draft=missing
fi
if [[ $draft == true ]]; then
	gh release delete "${page[@]}" --yes
fi
if [[ $draft != false ]]; then
	mapfile -t files < <(find . -type f)
	if [[ $version == *-* ]]; then files+=(--prerelease); fi
	gh release create "${page[@]}" --verify-tag --title "$version" --notes-file CHANGES.md "${files[@]}"
fi

gh release download "${page[@]}" --pattern SHA256SUMS --output - | cmp - SHA256SUMS || {
	printf 'publish: the page of %s has other files than %s\n' "$version" "$PWD" >&2
	exit 1
}
