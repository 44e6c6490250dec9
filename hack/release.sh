#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes everything of a release into a directory. The same commit, the same version of Go and the same Debian packages
# (PACKAGES=pinned, see hack/images/root.sh) give the same bytes. Nothing is published.
#
#   hack/release.sh VERSION IMAGES DIR       KUBECTL, OPERATOR_SDK, OPM, HELM, SYFT and COSIGN name programs
#
# FINAL=1, for a release that will be published, refuses a changelog that does not regard it as released.
# For tests PARTS, ARCHITECTURES and PLATFORMS take less than everything. CACHE has the images in between.
#
#   hawser_VERSION_linux_ARCH.tar.gz     operator, manager and agent, with the licence
#   kubectl-hawser_VERSION_OS_ARCH.tar.gz, hawser-krew.yaml     the plugin of kubectl, and its manifest for krew
#   kubectl-hawser_VERSION_man.tar.gz    its manual pages
#   install.yaml                         what kubectl apply -k config/default applies
#   observer.yaml                        what kubectl apply -k config/observer applies
#   hawser-alerts.yaml, hawser-observer-alerts.yaml, hawser-dashboard.json
#   hawser-VERSION.tgz                   the chart for helm, VERSION without the v
#   operator_VERSION.tar, manager_VERSION.tar, agent_VERSION.tar     the images as OCI archives, of both architectures
#   IMAGE_VERSION_linux_ARCH.spdx.json   the SBOM of each image
#   agent_VERSION_linux_ARCH.debs.sha256 the Debian packages in the agent's
#   bundle_VERSION.tar.gz, catalog_VERSION.tar.gz
#   hawser.spdx.json                     the SBOM of the programs
#   hawser.intoto.json                   the provenance: from which commit and packages
#   CHANGES.md                           what is new
#   SHA256SUMS, SHA256SUMS.sigstore.json     the checksums, and their signature
#
# COSIGN_KEY signs: the name of a file, or whatever else cosign --key takes. COSIGN_KEYLESS=1 signs with the identity of
# the workflow in which it runs. Without either there is no signature.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/signing.sh
source hack/signing.sh
export LC_ALL=C

version=${1:?usage: release.sh VERSION IMAGES DIR}
images=${2:?the prefix of the images is missing}
output=${3:?the directory is missing}

fail() {
	printf 'release: %s\n' "$*" >&2
	exit 1
}
# The form for which the programs link the pages of the version (internal/version).
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]] ||
	fail "the version is $version, want one such as v0.1.0 or v0.1.0-rc.1"
grep -qE "^## ${version//./\\.}( |$)" CHANGELOG.md || fail "CHANGELOG.md has no heading '## $version'"
# section prints that of the version.
section() {
	awk -v "heading=## $version" '/^## / { ours = $0 == heading || index($0, heading " ") == 1; next } ours' CHANGELOG.md
}
if [[ ${FINAL:-} ]] && [[ $(section) == *"Not released yet"* ]]; then
	fail "CHANGELOG.md has 'Not released yet' in the section of $version: docs/development.md lists what to change"
fi
hack/modules.sh check "$version"

parts=${PARTS:-programs plugin sbom install chart monitoring olm changes provenance}
cache=$(realpath -m "${CACHE:-.cache}/images")
read -r -a architectures <<<"${ARCHITECTURES:-amd64 arm64}"
read -r -a platforms <<<"${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# What would give other files on another machine.
export GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOWORK=off PACKAGES=${PACKAGES:-newest} SYFT=${SYFT:-}
umask 022

rm -rf "$output"
mkdir -p "$output"
output=$(cd "$output" && pwd)
mkdir -p .cache
work=$(mktemp -d "$PWD/.cache/release.XXXXXX")
trap 'rm -rf "$work"' EXIT

# pack ARCHIVE DIRECTORY [NAME] writes a directory, or what has the name in it, as an archive that depends on nothing but
# its content.
pack() {
	tar --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw \
		-C "$2" -c "${3:-.}" | gzip -n >"$output/$1"
}

# Images and programs.
programs() {
	local name architecture
	hack/images.sh "$version" "$images" "$version" "$cache"
	for name in operator manager agent; do
		cp "$cache/$name.tar" "$output/${name}_$version.tar"
		for architecture in "${architectures[@]}"; do
			cp "$cache/$name-$architecture.spdx.json" "$output/${name}_${version}_linux_$architecture.spdx.json"
		done
	done
	for architecture in "${architectures[@]}"; do
		cp "$cache/root-$architecture.tar.packages" "$output/agent_${version}_linux_$architecture.debs.sha256"
		diff -q <(sed 1d "hack/images/debian-$architecture.sha256") "$cache/root-$architecture.tar.packages" >/dev/null ||
			printf 'release: NOTE: Debian has other packages for %s than are pinned, so a later build may differ\n' "$architecture"
		mkdir -p "$work/programs/linux_$architecture"
		cp LICENSE "$cache/$architecture"/{operator,manager,agent} "$work/programs/linux_$architecture/"
		pack "hawser_${version}_linux_$architecture.tar.gz" "$work/programs/linux_$architecture"
	done
}

# The plugin runs on the machines of users.
plugin() {
	local platform directory program archive archives=()
	for platform in "${platforms[@]}"; do
		directory=$work/plugin/${platform/\//_} program=kubectl-hawser
		archive=kubectl-hawser_${version}_${platform/\//_}.tar.gz
		if [[ $platform == windows/* ]]; then program+=.exe; fi
		mkdir -p "$directory"
		CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath -buildvcs=false \
			-ldflags "-s -w -X github.com/hawser-io/hawser/internal/version.Version=$version" \
			-o "$directory/$program" ./cmd/kubectl-hawser
		cp LICENSE hack/krew/kubectl_complete-hawser "$directory/"
		pack "$archive" "$directory"
		archives+=("$output/$archive")
	done
	go run ./hack/krew "$version" "${archives[@]}" >"$output/hawser-krew.yaml"
	mkdir "$work/man"
	go run ./hack/man "$version" "$work/man"
	pack "kubectl-hawser_${version}_man.tar.gz" "$work/man"
}

# The modules in the programs.
sbom() {
	mkdir "$work/sbom"
	cp -r "$work/programs" "$work/plugin" "$work/sbom/"
	hack/sbom.sh "$version" hawser "dir:$work/sbom" >"$work/hawser.spdx.json"
	mv "$work/hawser.spdx.json" "$output/"
}

install() {
	kustomization default operator manager agent >"$output/install.yaml"
}

# kustomization DIRECTORY IMAGE... renders a directory of config/ with the images of the release.
kustomization() {
	local directory=$work/kustomization-$1 name
	mkdir "$directory"
	{
		printf 'resources: [../../../config/%s]\nimages:\n' "$1"
		for name in "${@:2}"; do
			printf -- '- {name: hawser/%s, newName: %s/%s, newTag: %s}\n' "$name" "$images" "$name" "$version"
		done
	} >"$directory/kustomization.yaml"
	"$KUBECTL" kustomize "$directory"
}

chart() {
	mkdir "$work/chart"
	cp -r charts/hawser "$work/chart/"
	sed -i -E "s/^version: .*/version: ${version#v}/; s/^appVersion: .*/appVersion: $version/" \
		"$work/chart/hawser/Chart.yaml"
	sed -i -E "s|^  prefix: .*|  prefix: $images|" "$work/chart/hawser/values.yaml"
	"$HELM" lint --quiet --strict "$work/chart/hawser"
	pack "hawser-${version#v}.tgz" "$work/chart" hawser
}

# The observer and its alerts stand alone. The alerts link the pages of the release.
monitoring() {
	local name
	cp config/grafana/hawser.json "$output/hawser-dashboard.json"
	for name in hawser hawser-observer; do
		sed "s|/hawser/blob/main/|/hawser/blob/$version/|" "config/prometheus/$name.yaml" >"$output/$name-alerts.yaml"
	done
	kustomization observer manager >"$output/observer.yaml"
}

olm() {
	hack/bundle.sh write "$version" "$images" "$work/olm"
	hack/bundle.sh check "$version" "$images" "$work/olm"
	mkdir "$work/bundle"
	mv "$work/olm/bundle" "$work/olm/bundle.Dockerfile" "$work/bundle/"
	pack "bundle_$version.tar.gz" "$work/bundle"
	pack "catalog_$version.tar.gz" "$work/olm/catalog"
}

checksums() {
	(cd "$output" && find . -type f ! -path ./SHA256SUMS ! -path ./SHA256SUMS.sigstore.json -printf '%P\n' | sort | xargs sha256sum >"$work/sums")
	mv "$work/sums" "$output/SHA256SUMS"
}

changes() {
	section >"$output/CHANGES.md"
}

# A commit says what has been built only if everything of it is committed. A tree without git takes COMMIT.
provenance() {
	local head
	if head=$(git rev-parse --verify --quiet HEAD); then
		[[ -z $(git status --porcelain) ]] || fail "the tree differs from its commit, which the provenance names: commit first"
		[[ ${COMMIT:-$head} == "$head" ]] || fail "COMMIT is $COMMIT, and the tree is of $head"
		COMMIT=$head
	fi
	export COMMIT=${COMMIT:?this is no clone, so COMMIT has to name the commit}
	hack/provenance.sh write "$version" "$images" "$output" >"$work/provenance"
	mv "$work/provenance" "$output/hawser.intoto.json"
}

# The checksums cover the provenance, so one signature covers everything.
signature() {
	if ! signing_options "$work"; then
		printf 'release: not signed: neither COSIGN_KEY nor COSIGN_KEYLESS is set\n'
		return
	fi
	"$COSIGN" sign-blob "${signing[@]}" --bundle "$output/SHA256SUMS.sigstore.json" "$output/SHA256SUMS"
	chmod 644 "$output/SHA256SUMS.sigstore.json"
}

for part in $parts checksums signature; do
	"$part"
done
printf 'release: %s in %s\n' "$version" "$output"
