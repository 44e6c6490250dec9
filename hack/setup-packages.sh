#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes sure that the programs that make and mount filesystems are there. What is missing is installed
# through apt where that is possible, and named in one line where it is not.
#
#   hack/setup-packages.sh [--containers]     with it also what runs containers
#   hack/setup-packages.sh --images           only what makes the agent's image
#   hack/setup-packages.sh --release          only what makes a release
#   hack/setup-packages.sh --monitoring       also Prometheus, which make test-alerts runs
#   hack/setup-packages.sh --machines         only what makes and runs virtual machines

set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

# program:package
needed=(
	mkfs.ext4:e2fsprogs resize2fs:e2fsprogs
	mkfs.xfs:xfsprogs xfs_growfs:xfsprogs
	mkfs.btrfs:btrfs-progs
	losetup:mount blkid:util-linux mount:mount
	jq:jq
	cpio:cpio xz:xz-utils
	systemd-analyze:systemd # verifies the unit of an example
)

if [[ ${1:-} == --images ]]; then
	needed=(mmdebstrap:mmdebstrap)
fi
if [[ ${1:-} == --release ]]; then
	needed=(mmdebstrap:mmdebstrap jq:jq)
fi
if [[ ${1:-} == --machines ]]; then
	needed=(
		qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mmdebstrap:mmdebstrap
		depmod:kmod xz:xz-utils mkfs.ext4:e2fsprogs
	)
fi
if [[ ${1:-} == --containers ]]; then
	needed+=(runc:runc) # one built with plain "go build" lacks seccomp
fi
if [[ ${1:-} == --monitoring ]]; then
	needed+=(prometheus:prometheus)
fi

# missing prints those of the needed programs that are not there.
missing() {
	local pair
	for pair in "${needed[@]}"; do
		command -v "${pair%%:*}" >/dev/null || printf '%s\n' "$pair"
	done
}

mapfile -t absent < <(missing)
if [[ ${#absent[@]} -eq 0 ]]; then
	exit 0
fi

if command -v apt-get >/dev/null && [[ $(id -u) -eq 0 ]]; then
	mapfile -t packages < <(printf '%s\n' "${absent[@]#*:}" | sort -u)
	printf 'installing %s ...\n' "${packages[*]}"
	export DEBIAN_FRONTEND=noninteractive
	# A failure shows in what is still missing afterwards, in one line; the log tells why.
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	if ! { apt-get update && apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
		tail -n 5 "$log" >&2
	fi
	mapfile -t absent < <(missing)
fi

if [[ ${#absent[@]} -gt 0 ]]; then
	programs=("${absent[@]%%:*}")
	printf 'missing: %s (Debian packages: %s)\n' "${programs[*]}" \
		"$(printf '%s\n' "${absent[@]#*:}" | sort -u | tr '\n' ' ' | sed 's/ $//')" >&2
	exit 1
fi
