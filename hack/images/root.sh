#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes the root file system of the agent's image as a tar, from Debian's packages, unless it is there already.
#
#   hack/images/root.sh ARCHITECTURE FILE
#
# hack/images/debian-ARCHITECTURE.sha256 pins the packages by their digests, as of the time in its first line.
#
#   PACKAGES=newest     takes a FILE that is there, else what Debian has now, whatever is pinned: the default
#   PACKAGES=pinned     fails if Debian has others by now
#   PACKAGES=snapshot   takes them from snapshot.debian.org, as of the time of the pins, and fails if they are others:
#                       a mirror may have had a package before the snapshot of that time; has never run
#   PACKAGES=pin        takes what Debian has now, and pins it

set -euo pipefail
export LC_ALL=C
release=trixie

# record ROOT keeps what each package says of itself where scanners of images look for it, and lists the digests.
record() {
	local deb
	mkdir -p "$1/var/lib/dpkg/status.d"
	cd "$1/var/cache/apt/archives"
	for deb in *.deb; do
		dpkg-deb --field "$deb" >"$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"
	done
	sha256sum -- *.deb >"$1/var/cache/packages.sha256"
}
if [[ ${1:?usage: root.sh ARCHITECTURE FILE} == record ]]; then
	record "$2"
	exit
fi

self=$(realpath "${BASH_SOURCE[0]}")
architecture=$1
file=$(realpath -m "${2:?the file is missing}")
packages=${PACKAGES:-newest}
cd "$(dirname "$self")"
pins=debian-$architecture.sha256
time=$(sed -n '1s/^# //p' "$pins" 2>/dev/null || true)

fail() {
	printf 'images: %s\n' "$*" >&2
	exit 1
}

# What the tar depends on. That of any build is good for the next one, unless it must have the pinned packages.
stamp=$(cat packages "$self" | sha256sum | cut -d ' ' -f 1)
case $packages in
newest) ;;
pinned | snapshot) stamp+=" $(sha256sum <"$pins" | cut -d ' ' -f 1)" ;;
pin) time=$(date --utc +%Y%m%dT%H%M%SZ) ;;
*) fail "PACKAGES is $packages, want newest, pinned, snapshot or pin" ;;
esac
if [[ $packages != pin && -f $file && $(cat "$file.stamp" 2>/dev/null) == "$stamp"* ]]; then
	exit
fi
command -v mmdebstrap >/dev/null ||
	fail "the agent's image needs mmdebstrap (Debian package mmdebstrap), or build it with the Dockerfile"

options=() sources=()
if [[ $packages == snapshot ]]; then
	archive=http://snapshot.debian.org/archive
	signed="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" # apt of Ubuntu trusts no key of Debian's
	options=(--aptopt='Acquire::Check-Valid-Until "false"') # the signatures of a snapshot are old
	sources=("deb $signed $archive/debian/$time $release main" "deb $signed $archive/debian/$time $release-updates main"
		"deb $signed $archive/debian-security/$time $release-security main")
fi
rm -f "$file.stamp"
mmdebstrap --quiet --variant=extract --architectures="$architecture" --format=tar "${options[@]}" \
	--extract-hook="'$self' record \"\$1\"" --include="$(paste -s -d , packages)" \
	$release "$file.new" "${sources[@]}" 2>"$file.log" || {
	cat "$file.log" >&2
	exit 1
}
rm "$file.log"

tar -xOf "$file.new" ./var/cache/packages.sha256 >"$file.packages"
case $packages in
pin) (printf '# %s\n' "$time" && cat "$file.packages") >"$pins" ;;
pinned | snapshot)
	if ! diff <(sed 1d "$pins") "$file.packages" >&2; then
		rm "$file.new"
		fail "Debian has other packages (>) than $pins (<); make pin-packages pins the new ones," \
			"PACKAGES=snapshot takes the old ones from snapshot.debian.org"
	fi
	;;
esac
# Packages that are the pinned ones by chance, as they often are, serve a release too.
if [[ -f $pins ]] && diff -q <(sed 1d "$pins") "$file.packages" >/dev/null; then
	stamp="$(cut -d ' ' -f 1 <<<"$stamp") $(sha256sum <"$pins" | cut -d ' ' -f 1)"
fi
mv "$file.new" "$file"
printf '%s\n' "$stamp" >"$file.stamp"
