#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The version of the Go modules that others import. In the repository they are replaced by their directories, so that
# their version matters to importers only: what pkg/volumes requires of api has to have a tag.
#
#   hack/modules.sh require VERSION    write VERSION into each go.mod that requires one of them
#   hack/modules.sh check VERSION      fail if one requires another version
#   hack/modules.sh tags VERSION       print the tags of a release, beside VERSION itself

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage='usage: modules.sh require|check|tags VERSION'
do=${1:?$usage}
version=${2:?$usage}
[[ $do =~ ^(require|check|tags)$ ]] || {
	echo "$usage" >&2
	exit 2
}
modules=(api pkg/volumes)
module=github.com/hawser-io/hawser

failed=0
while read -r file; do
	for name in "${modules[@]}"; do
		required=$(sed -n -E "s,^(require)?[[:space:]]+$module/$name (v[^ ]+).*,\2,p" "$file")
		[[ -n $required && $required != "$version" ]] || continue
		case $do in
		require) go mod edit "-require=$module/$name@$version" "$file" ;;
		check)
			echo "modules: $file requires $name $required, want $version: run hack/modules.sh require $version" >&2
			failed=1
			;;
		esac
	done
done < <(find . -name go.mod -not -path './.cache/*')
if [[ $do == tags ]]; then
	printf "%s/$version\n" "${modules[@]}"
fi
exit "$failed"
