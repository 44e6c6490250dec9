#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes two releases, v0.1.0 of the present commit and v0.1.1 of a next one, and checks both as a downloader would. They
# are in DIR/v0.1.0 and DIR/v0.1.1. The next commit is in a clone, and only has what a release asks for: its section of
# the changelog, and its version in each go.mod.
#
#   hack/releases.sh DIR       KUBECTL, OPERATOR_SDK, OPM, HELM, SYFT and KREW name programs
#
# Only what this machine runs is made: its architecture, and its platform of the plugin.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "${1:?usage: releases.sh DIR}"
dir=$(realpath "$1")
export ARCHITECTURES PLATFORMS CACHE=$dir/cache CHECKS="listed whole programs plugin chart images olm sboms provenance"
ARCHITECTURES=$(go env GOARCH) PLATFORMS=linux/$(go env GOARCH)

# The agent's root file system changes seldom, and takes a while to make.
mkdir -p "$CACHE/images"
for file in .cache/images/root-"$ARCHITECTURES".tar{,.stamp,.packages}; do
	if [[ -f $file ]]; then cp -u "$file" "$CACHE/images/"; fi
done

rm -rf "$dir/tree"
git clone --quiet --shared . "$dir/tree"
cd "$dir/tree"
release() {
	hack/release.sh "$1" registry.example.com/hawser "$dir/$1"
	hack/verify-release.sh "$1" "$dir/$1"
}
release v0.1.0
sed -i 's/^## v0.1.0$/## v0.1.1\n\nThe next release.\n\n&/' CHANGELOG.md
hack/modules.sh require v0.1.1
git -c user.name=test -c user.email=test@example.com commit --quiet --all --message "Add a release"
release v0.1.1
