#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the OLM bundle and the file-based catalog from config/manifests. Twice gives the same bytes.
#
#   hack/bundle.sh write VERSION IMAGES DIR     bundle/, bundle.Dockerfile and catalog/ below DIR
#   hack/bundle.sh check VERSION IMAGES DIR     validates them, and a catalog that has the next release too
#
# IMAGES is what comes before /operator, /manager, /agent and /bundle in the names of the images. KUBECTL,
# OPERATOR_SDK and OPM name the programs. config/manifests/releases has the versions that were released before.

set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
manifests=$root/config/manifests
command=${1:?usage: bundle.sh write|check VERSION IMAGES DIR}
version=${2:?the version is missing}
images=${3:?the prefix of the images is missing}
output=$(mkdir -p "${4:?the directory is missing}" && cd "$4" && pwd)
channel=candidate

if [[ ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	printf 'bundle: the version is %s, want v and a semantic version such as v0.1.0\n' "$version" >&2
	exit 1
fi

# Below the repository, because a kustomization refers to its bases by relative paths.
mkdir -p "$root/.cache"
work=$(mktemp -d "$root/.cache/bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT

# overlay writes a kustomization that sets images and icon.
overlay() {
	local name
	mkdir -p "$work/overlay"
	{
		printf 'resources: [../../../config/manifests]\nimages:\n'
		for name in operator manager agent; do
			printf -- '- {name: hawser/%s, newName: %s/%s, newTag: %s}\n' "$name" "$images" "$name" "$1"
		done
		printf 'patches:\n- target: {kind: ClusterServiceVersion}\n  patch: |-\n'
		printf '    - {op: add, path: /metadata/annotations/containerImage, value: "%s/operator:%s"}\n' "$images" "$1"
		printf '    - op: add\n      path: /spec/icon\n      value: [{mediatype: image/svg+xml, base64data: %s}]\n' \
			"$(base64 -w 0 "$manifests/icon.svg")"
	} >"$work/overlay/kustomization.yaml"
}

# generate writes bundle and bundle.Dockerfile of a version into a directory.
generate() {
	overlay "$1"
	mkdir -p "$2"
	cp "$root/PROJECT" "$2/PROJECT"
	# It reads from a pipe only, not from a file.
	"$KUBECTL" kustomize "$work/overlay" | (cd "$2" && "$OPERATOR_SDK" generate bundle --quiet \
		--version "${1#v}" --channels $channel --default-channel $channel 2>"$work/log") || {
		cat "$work/log" >&2
		exit 1
	}
	rm "$2/PROJECT"
	sed -i '/^    createdAt: /d' "$2"/bundle/manifests/*.clusterserviceversion.yaml
	mkdir "$work/roles"
	"$KUBECTL" kustomize "$manifests/roles" -o "$work/roles"
	mv "$work"/roles/*.yaml "$2/bundle/manifests/"
	rmdir "$work/roles"
}

# released prints the versions that were released before the given one.
released() { sed -e '/^#/d' -e '/^$/d' "$manifests/releases" | awk -v self="$1" '$1 == self { exit } { print }'; }

# catalog writes package and channel for the versions, and renders the bundle of the last one.
catalog() {
	local dir=$1/catalog/hawser previous="" v
	local last=${*: -1}
	mkdir -p "$dir/bundles"
	cat >"$dir/package.yaml" <<-END
		schema: olm.package
		name: hawser
		defaultChannel: $channel
		description: Attaches, stages and publishes volumes on nodes by API objects that explain each step.
		icon:
		  mediatype: image/svg+xml
		  base64data: $(base64 -w 0 "$manifests/icon.svg")
	END
	{
		printf 'schema: olm.channel\npackage: hawser\nname: %s\nentries:\n' $channel
		for v in "${@:2}"; do
			printf -- '- name: hawser.%s\n' "$v"
			[[ -z $previous ]] || printf '  replaces: hawser.%s\n' "$previous"
			# From every earlier build of the same version too.
			printf '  skipRange: ">=%s-0 <%s"\n' "$(sed 's/-.*//' <<<"${v#v}")" "${v#v}"
			previous=$v
		done
	} >"$dir/channel.yaml"
	"$OPM" render "$1/bundle" --alpha-image-ref-template "$images/bundle:$last" -o yaml >"$dir/bundles/$last.yaml"
}

# install_into moves what was generated to its place. The bundles of releases stay in the catalog.
install_into() {
	rm -rf "$2/bundle" "$2/catalog"
	mkdir -p "$2"
	mv "$1/bundle" "$1/bundle.Dockerfile" "$1/catalog" "$2/"
}

# keep copies the rendered bundles of the releases into a catalog.
keep() {
	local v
	for v in $(released "$version"); do
		cp "$root/catalog/hawser/bundles/$v.yaml" "$1/catalog/hawser/bundles/"
	done
}

write() {
	generate "$version" "$work/new"
	mapfile -t versions < <(released "$version")
	catalog "$work/new" "${versions[@]}" "$version"
	keep "$work/new"
	install_into "$work/new" "$output"
}

# check fails on every warning that is not explained here.
check() {
	local found
	if ! "$OPERATOR_SDK" bundle validate "$output/bundle" --select-optional suite=operatorframework >"$work/log" 2>&1; then
		cat "$work/log" >&2
		exit 1
	fi
	found=$(grep -v 'All validation tests have completed successfully' "$work/log" |
		grep -F -v -f <(grep -v '^#' "$manifests/explained") || true)
	if [[ -n $found ]]; then
		printf '%s\nbundle: mend these, or explain them in config/manifests/explained\n' "$found" >&2
		exit 1
	fi
	"$OPM" validate "$output/catalog"
	# The next release replaces this one.
	local next="v999.0.0"
	generate "$next" "$work/next"
	mapfile -t versions < <(released "$version")
	catalog "$work/next" "${versions[@]}" "$version" "$next"
	cp "$output"/catalog/hawser/bundles/*.yaml "$work/next/catalog/hawser/bundles/"
	"$OPM" validate "$work/next/catalog"
	grep -q "replaces: hawser.$version\$" "$work/next/catalog/hawser/channel.yaml"
	echo "bundle: valid, and so is a catalog with the next release"
}

"$command"
