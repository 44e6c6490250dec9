#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Checks a release as one who has downloaded it, with nothing but its files: each is listed with its checksum, and does
# what it is for. Needs no network.
#
#   hack/verify-release.sh VERSION DIR [OTHER]       OPERATOR_SDK, OPM, HELM, KREW and COSIGN name the programs
#
# COSIGN_PUBLIC_KEY is the file with the key that has to have signed. COMMIT is the commit that has to have been built.
# CHECKS takes less than everything: names of functions.
# OTHER is the directory of another build of the same commit, which has to have the same bytes.

set -euo pipefail
export LC_ALL=C
version=${1:?usage: verify-release.sh VERSION DIR}
other=${3:+$(realpath "$3")}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
key=${COSIGN_PUBLIC_KEY:+$(realpath "$COSIGN_PUBLIC_KEY")}
cd "${2:?the directory is missing}"
read -r -a architectures <<<"${ARCHITECTURES:-amd64 arm64}"
read -r -a platforms <<<"${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	printf 'verify-release: %s\n' "$*" >&2
	exit 1
}

# check DESCRIPTION COMMAND... Any command of a function that fails ends the function, which bash ignores in conditions.
check() {
	local code
	[[ -z ${CHECKS:-} || " $CHECKS " == *" $2 "* ]] || return 0
	set +e
	(set -e && "${@:2}") >"$work/log" 2>&1
	code=$?
	set -e
	if [[ $code -ne 0 ]]; then
		cat "$work/log" >&2
		fail "not so: $1"
	fi
	printf 'verify-release: %s\n' "$1"
}

listed() {
	sha256sum --check --strict --quiet SHA256SUMS
	diff <(awk '{print "f " $2}' SHA256SUMS | sort) <(find . -mindepth 1 ! -path ./SHA256SUMS \
		! -path ./SHA256SUMS.sigstore.json -printf '%y %P\n' | sort)
}
# The files of hack/release.sh.
whole() {
	diff <(names | sort) <(awk '{print $2}' SHA256SUMS | sort)
}
names() {
	local architecture platform
	printf '%s\n' install.yaml observer.yaml hawser-alerts.yaml hawser-observer-alerts.yaml hawser-dashboard.json \
		hawser-krew.yaml "kubectl-hawser_${version}_man.tar.gz" "hawser-${version#v}.tgz" \
		{operator,manager,agent}_"$version.tar" {bundle,catalog}_"$version.tar.gz" hawser.spdx.json hawser.intoto.json \
		CHANGES.md
	for architecture in "${architectures[@]}"; do
		printf '%s\n' "hawser_${version}_linux_$architecture.tar.gz" "agent_${version}_linux_$architecture.debs.sha256" \
			{operator,manager,agent}_"${version}_linux_$architecture.spdx.json"
	done
	for platform in "${platforms[@]/\//_}"; do
		printf '%s\n' "kubectl-hawser_${version}_$platform.tar.gz"
	done
}
# First, because everything else rests on the checksums. A key that is trusted needs no entry in a public log.
signature() {
	"$COSIGN" verify-blob --key "$key" --insecure-ignore-tlog --bundle SHA256SUMS.sigstore.json SHA256SUMS
}
if [[ $key ]]; then
	check "the checksums are signed with $(basename "$key")" signature
else
	printf 'verify-release: WITHOUT a check of the signature: COSIGN_PUBLIC_KEY is not set\n'
fi

check "every file has its checksum, and none is left over" listed
check "no file of a release is missing" whole

identical() {
	(cd "$other" && sha256sum --check --strict --quiet) <SHA256SUMS
	diff SHA256SUMS "$other/SHA256SUMS"
}
if [[ $other ]]; then
	check "the other build has the same bytes" identical
fi

architecture=$(go env GOARCH)
programs() {
	mkdir "$work/programs"
	tar -xzf "hawser_${version}_linux_$architecture.tar.gz" -C "$work/programs"
	local name
	for name in operator manager agent; do
		grep -q "path.*github.com/hawser-io/hawser/cmd/$name" < <(go version -m "$work/programs/$name")
		grep -aq "$version" "$work/programs/$name"
	done
}
check "operator, manager and agent are of this version" programs

plugin() {
	export KREW_ROOT=$work/krew KREW_NO_UPGRADE_CHECK=1
	"$KREW" install --manifest=hawser-krew.yaml --archive="kubectl-hawser_${version}_linux_$architecture.tar.gz"
	[[ $("$KREW_ROOT/bin/kubectl-hawser" --version) == *"$version" ]]
	grep -q '^pod' < <("$KREW_ROOT/bin/kubectl-hawser" __complete why "") # a pipe would fail if grep ended first
}
check "krew installs the plugin, which has the version and completes" plugin

# Each platform of the manifest has the checksum of its archive.
manifest() {
	local archive found=0
	for archive in kubectl-hawser_"$version"_*_*64.tar.gz; do
		grep -q "$(sha256sum "$archive" | cut -d ' ' -f 1)" hawser-krew.yaml
		found=$((found + 1))
	done
	[[ $found -eq 6 && $(grep -c sha256 hawser-krew.yaml) -eq 6 ]]
}
check "the manifest for krew has the six platforms" manifest

chart() {
	"$HELM" lint --strict "hawser-${version#v}.tgz"
	"$HELM" template hawser "hawser-${version#v}.tgz" --namespace hawser-system >"$work/chart.yaml"
	named_in "$work/chart.yaml" agent manager operator
	named_in install.yaml agent manager operator
	named_in observer.yaml manager
}
# named_in FILE IMAGE... compares the images that a file names with the provenance.
named_in() {
	local images
	images=$(jq -r .predicate.buildDefinition.externalParameters.images hawser.intoto.json)
	diff <(grep -oE '[^ ]+/(agent|manager|operator):[^ ]+$' "$1" | sort -u) \
		<(printf '%s\n' "${@:2}" | sed "s|.*|$images/&:$version|")
}
check "the chart is well-formed, and all manifests name the images of the provenance" chart

# Each blob of an archive has its own digest as its name. The index leads to each of them, and has the architectures.
images() {
	local name blobs=$work/image/blobs/sha256 index manifest
	for name in operator manager agent; do
		rm -rf "$work/image"
		mkdir "$work/image"
		tar -xf "${name}_$version.tar" -C "$work/image"
		(cd "$blobs" && for blob in *; do printf '%s  %s\n' "$blob" "$blob"; done | sha256sum --check --strict --quiet)
		grep -rq "Hawser $name" "$blobs" # its title
		index=$(digests_in "$work/image/index.json")
		diff <(jq -r '.manifests[].platform | select(.os == "linux").architecture' "$blobs/$index" | sort) \
			<(printf '%s\n' "${architectures[@]}" | sort)
		{
			printf '%s\n' "$index"
			for manifest in $(digests_in "$blobs/$index"); do
				printf '%s\n' "$manifest"
				digests_in "$blobs/$manifest"
			done
		} | sort -u >"$work/referenced"
		diff "$work/referenced" <(ls "$blobs")
	done
}
# digests_in FILE prints those of all blobs that an index or a manifest refers to.
digests_in() {
	jq -r '(.manifests[]?, .config, .layers[]?) | .digest? // empty | sub("^sha256:"; "")' "$1"
}
check "the images have what their names promise, for ${architectures[*]}" images

olm() {
	mkdir "$work/bundle" "$work/catalog"
	tar -xzf "bundle_$version.tar.gz" -C "$work/bundle"
	tar -xzf "catalog_$version.tar.gz" -C "$work/catalog"
	"$OPERATOR_SDK" bundle validate "$work/bundle/bundle"
	"$OPM" validate "$work/catalog"
	grep -rq "hawser.$version" "$work/catalog"
}
check "bundle and catalog are valid" olm

# Each image has its SBOM attached, in the form of BuildKit, and the file beside it is the same. What the agent runs comes
# from Debian, so its SBOM has these packages.
sboms() {
	local name architecture blobs=$work/image/blobs/sha256 digest file package
	[[ $(jq '[.packages[] | select(.name == "github.com/hawser-io/hawser")] | length' hawser.spdx.json) -gt 1 ]]
	for name in operator manager agent; do
		rm -rf "$work/image"
		mkdir "$work/image"
		tar -xf "${name}_$version.tar" -C "$work/image"
		for architecture in "${architectures[@]}"; do
			file=${name}_${version}_linux_$architecture.spdx.json
			digest=$(jq -r --arg architecture "$architecture" \
				'.manifests[] | select(.platform.architecture == $architecture).digest' \
				"$blobs/$(digests_in "$work/image/index.json")")
			jq -se --arg digest "${digest#sha256:}" --slurpfile file "$file" 'map(select(
				.predicateType? == "https://spdx.dev/Document" and .subject[0].digest.sha256 == $digest
				and .predicate == $file[0])) | length == 1' < <(statements "$blobs")
			[[ $name == agent ]] || continue
			for package in e2fsprogs xfsprogs btrfs-progs util-linux; do
				jq -e --arg package "$package" 'any(.packages[]; .name == $package)' "$file"
			done
		done
	done
}
statements() {
	grep -l '^{"_type"' "$1"/* | xargs cat
}
check "each image has its SBOM, and the SBOM of the agent has the Debian packages" sboms

# The subjects are all files and images, with the digests that they have.
provenance() {
	local images
	[[ $(jq -r ._type,.predicateType hawser.intoto.json) == \
		https://in-toto.io/Statement/v1$'\n'https://slsa.dev/provenance/v1 ]]
	[[ $(jq -r .predicate.buildDefinition.externalParameters.version hawser.intoto.json) == "$version" ]]
	[[ $(built_from) =~ ^[0-9a-f]{40}$ && $(built_from) == "${COMMIT:-$(built_from)}" ]]
	images=$(jq -r .predicate.buildDefinition.externalParameters.images hawser.intoto.json)
	"$root/hack/provenance.sh" subjects "$version" "$images" . >"$work/subjects"
	diff <(jq -r '.subject[] | .digest.sha256 + "  " + .name' hawser.intoto.json) "$work/subjects"
}
built_from() {
	jq -r '.predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit' hawser.intoto.json
}
check "the provenance names every file and image, and a commit" provenance
if [[ -f hawser.intoto.json ]]; then
	printf 'verify-release: built from commit %s by %s\n' "$(built_from)" \
		"$(jq -r .predicate.runDetails.builder.id hawser.intoto.json)"
fi
extent=complete
if [[ ${CHECKS:-} ]]; then
	extent="checked in part: $CHECKS"
elif [[ ! $key ]]; then
	extent="complete, but NOT checked is who has signed it"
fi
printf 'verify-release: %s is %s\n' "$version" "$extent"
