#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes the images of operator, manager and agent as OCI archives, without a container tool and without a registry.
# The Dockerfile makes the same images where both are at hand.
#
#   hack/images.sh VERSION IMAGES TAG DIR       ARCHITECTURES="amd64 arm64" by default
#                                               SYFT, if set, makes SBOMs, which are attached
#
# hack/images/root.sh makes the agent's root file system. PACKAGES=pinned takes the Debian packages that are pinned.
#
#   ctr -n k8s.io images import DIR/agent.tar   or podman load, skopeo copy oci-archive:...

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:?usage: images.sh VERSION IMAGES TAG DIR}
images=${2:?the prefix of the images is missing}
tag=${3:?the tag is missing}
mkdir -p "${4:?the directory is missing}"
output=$(cd "$4" && pwd)
read -r -a architectures <<<"${ARCHITECTURES:-amd64 arm64}"
# The time of everything in the images.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# What would give other programs on another machine.
export GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOWORK=off

# What the agent and the drivers' checks run.
needs=mount,umount,blkid,fsck,sh,mkfs.ext4,fsck.ext4,resize2fs,mkfs.xfs,xfs_growfs,xfs_repair,mkfs.btrfs,btrfs

for architecture in "${architectures[@]}"; do
	mkdir -p "$output/$architecture"
	CGO_ENABLED=0 GOOS=linux GOARCH=$architecture go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X github.com/hawser-io/hawser/internal/version.Version=$version" \
		-o "$output/$architecture/" ./cmd/operator ./cmd/manager ./cmd/agent
	hack/images/root.sh "$architecture" "$output/root-$architecture.tar"
done
go -C hack/images build -o "$output/images" .

# pack NAME DESCRIPTION ENTRYPOINT FLAGS... With syft each image gets its SBOM, which is about the image without it.
pack() {
	local command=("$output/images" --name "$images/$1" --tag "$tag" --version "$version" --title "Hawser $1"
		--description "$2" --entrypoint "$3" --binary "$output/ARCH/$1" --epoch "$SOURCE_DATE_EPOCH"
		--architectures "$(tr ' ' , <<<"${architectures[*]}")" --output "$output/$1.tar" "${@:4}")
	"${command[@]}"
	[[ ${SYFT:-} ]] || return 0
	for architecture in "${architectures[@]}"; do
		hack/sbom.sh "$version" "${1}_linux_$architecture" "oci-archive:$output/$1.tar" --platform "linux/$architecture" \
			>"$output/$1-$architecture.spdx.json"
	done
	"${command[@]}" --sbom "$output/$1-ARCH.spdx.json"
}
pack operator "Installs Hawser and keeps it as its VolumeManager asks for." /operator --user 65532:65532
pack manager "Attaches and detaches volumes." /manager --user 65532:65532
pack agent "Stages, publishes and expands volumes on a node." /usr/local/bin/agent \
	--root "$output/root-ARCH.tar" --needs "$needs"
