#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the images of an earlier revision and of the working tree, for the test of upgrade and rollback. Prints the
# directory with the earlier source: its images, with the tag "from", are below it in .cache/images. Those of the
# working tree, with the tag "to", are in .cache/upgrade/images.
#
#   hack/upgrade.sh REVISION

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

revision=${1:?usage: upgrade.sh REVISION}
commit=$(git rev-parse --verify --quiet "$revision^{commit}") || {
	echo "upgrade: $revision is no commit of this repository" >&2
	exit 1
}
if ! git cat-file -e "$commit:hack/images.sh" 2>/dev/null; then
	echo "upgrade: revision $revision ($commit) has no 'make images'; choose a later one" >&2
	exit 1
fi
ARCHITECTURES=$(go env GOARCH)
export ARCHITECTURES
present=.cache/upgrade/images
earlier=$PWD/.cache/upgrade/$commit
mkdir -p "$present" "$earlier/.cache/images"
# Only one earlier revision is kept: each takes some 400 MB.
find .cache/upgrade -mindepth 1 -maxdepth 1 ! -name images ! -name "$commit" -exec rm -r {} +

# share copies the agent's root file system, which changes seldom and takes a while to make.
share() {
	local file
	for file in "$1"/root-*.tar "$1"/root-*.tar.stamp; do
		if [[ -f $file && ! -f $2/${file##*/} ]]; then
			cp "$file" "$2/"
		fi
	done
}
share .cache/images "$present"
hack/images.sh v0.0.0-to hawser to "$present" >&2
share "$present" "$earlier/.cache/images"
# A commit does not change, so its images stay.
if [[ ! -f $earlier/.cache/images/agent.tar ]]; then
	git archive "$commit" | tar -x -C "$earlier"
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit") \
		make --no-print-directory -C "$earlier" images VERSION=v0.0.0-from IMAGES=hawser TAG=from >&2
fi
echo "$earlier"
