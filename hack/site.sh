#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes the documentation of the working tree as a site, for one version, beside those that are there already:
#
#   site.sh HUGO VERSION OUTPUT [URL]
#
# OUTPUT/VERSION/ is the site, OUTPUT/versions.json names the versions, the newest first, and OUTPUT/index.html leads to
# the newest release that has no suffix. URL is where OUTPUT will be published. A link that leads nowhere is an error.
set -euo pipefail

hugo=$1 version=$2 output=$3 url=${4:-https://hawser-io.github.io/hawser}
forge=https://github.com/hawser-io/hawser
[[ $version =~ ^(main|v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?)$ ]] || {
	echo "site: version $version is neither main nor of the form v1.2.3" >&2
	exit 1
}
# Where files of the repository are linked. A version of development has no tag.
ref=${version/#*-dev/main}
cd "$(dirname "$0")/.."

mkdir -p "$output"
rm -rf "${output:?}/$version"
HUGO_PARAMS_ROOT=$PWD HUGO_PARAMS_VERSION=$version HUGO_PARAMS_REF=$ref HUGO_PARAMS_FORGE=$forge \
	"$hugo" --source . --config hack/site/hugo.yaml --baseURL "$url/$version/" --destination "$output/$version" \
	--noBuildLock --logLevel warn --printPathWarnings

# Releases before main, the newest first. To sort, ~ is before the end of a version, as v1.0.0-rc.1 is before v1.0.0.
mapfile -t versions < <(cd "$output" && find . -mindepth 1 -maxdepth 1 -type d -name 'v*' -printf '%f\n' |
	sed 's/-/~/' | sort -Vr | sed 's/~/-/')
[[ -d $output/main ]] && versions+=(main)
printf '%s\n' "${versions[@]}" | sed 's/.*/"&"/' | paste -sd, | sed 's/.*/[&]/' >"$output/versions.json"
newest=${versions[0]}
for other in "${versions[@]}"; do
	if [[ $other != *-* ]]; then newest=$other && break; fi
done
printf '<!doctype html><meta http-equiv="refresh" content="0; url=%s/"><a href="%s/">%s</a>\n' \
	"$newest" "$newest" "$newest" >"$output/index.html"
