#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the provenance of a release, an in-toto statement with a predicate of SLSA v1: which files and images have been
# built, from which commit and packages, and by whom. The same build gives the same bytes, so it has no times of its own.
#
#   hack/provenance.sh write VERSION IMAGES DIR       COMMIT and BUILDER
#   hack/provenance.sh subjects VERSION IMAGES DIR    what it has to be about: digest and name
#
# IMAGES is what comes before /operator, /manager and /agent in the names of the images.

set -euo pipefail
shopt -s inherit_errexit # a checksum that fails within $(subjects) would be passed over
export LC_ALL=C
command=${1:?usage: provenance.sh write|subjects VERSION IMAGES DIR}
version=${2:?the version is missing}
images=${3:?the prefix of the images is missing}
dir=${4:?the directory is missing}
repository=https://github.com/hawser-io/hawser

# subjects prints digests and names as sha256sum does: those of all files, and those by which registries have the images.
subjects() {
	local archive name
	(cd "$dir" && find . -type f ! -path ./SHA256SUMS ! -path ./SHA256SUMS.sigstore.json ! -path ./hawser.intoto.json \
		-printf '%P\n' | sort | xargs sha256sum)
	for archive in "$dir"/*_"$version".tar; do
		[[ -f $archive ]] || continue
		name=$(basename "$archive" "_$version.tar")
		tar -xOf "$archive" index.json |
			jq -r --arg name "$images/$name" '.manifests[0].digest | sub("^sha256:"; "") + "  " + $name'
	done
}

# materials prints digests and names of the Debian packages that the root file systems consist of.
materials() {
	local list
	for list in "$dir"/*.debs.sha256; do
		[[ ! -f $list ]] || cat "$list"
	done | sort -u
}

write() {
	local subjects materials
	subjects=$(subjects) # a failure within the arguments of jq would be passed over
	materials=$(materials)
	jq -n --arg version "$version" --arg images "$images" --arg repository "$repository" --arg go "$(go env GOVERSION)" \
		--arg commit "${COMMIT:?the commit is missing}" --arg epoch "${SOURCE_DATE_EPOCH:?the time is missing}" \
		--arg builder "${BUILDER:-$repository/blob/main/hack/release.sh}" \
		--arg subjects "$subjects" --arg materials "$materials" '
		def lines: split("\n") | map(select(. != "") | split("  ") | {digest: {sha256: .[0]}, name: .[1]});
		def package: .name | capture("^(?<name>[^_]+)_(?<version>[^_]+)_(?<arch>[^_]+)\\.deb$")
			| "pkg:deb/debian/\(.name)@\(.version | gsub("[+]"; "%2B"))?arch=\(.arch)";
		{
			_type: "https://in-toto.io/Statement/v1",
			subject: ($subjects | lines | map({name, digest})),
			predicateType: "https://slsa.dev/provenance/v1",
			predicate: {
				buildDefinition: {
					buildType: "\($repository)/blob/main/docs/development.md#provenance",
					externalParameters: {source: "git+\($repository)", version: $version, images: $images},
					internalParameters: {SOURCE_DATE_EPOCH: $epoch},
					resolvedDependencies: (
						[{uri: "git+\($repository)", digest: {gitCommit: $commit}},
							{uri: "pkg:golang/stdlib@\($go | sub("^go"; ""))"}] +
						($materials | lines | map({uri: package, digest})))
				},
				runDetails: {builder: {id: $builder}}
			}
		}'
}

"$command"
