#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes what the virtual machines of test/machine boot, once: Debian's kernel with its modules, and a root file system
# with the packages of hack/machine-packages.
#
#   hack/machine-image.sh DIR             writes DIR/vmlinuz, DIR/root.img, and the initramfs' modules to DIR/modules/
#   hack/machine-image.sh DIR selinux     the same with Debian's SELinux policy and all files labelled for it

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:/usr/sbin:/sbin

mkdir -p "${1:?usage: machine-image.sh DIR [selinux]}"
dir=$(cd "$1" && pwd)
release=bookworm
size=6G
lists=(hack/machine-packages ${2:+"hack/machine-packages-$2"})

# Two suites may begin at the same time.
exec 9>"$dir/lock"
flock 9
stamp=$(cat "${lists[@]}" ${2:+"hack/machine-$2.cil"} hack/machine-image.sh | sha256sum)
if [[ -f $dir/root.img && $(cat "$dir/stamp" 2>/dev/null) == "$stamp" ]]; then
	exit 0
fi
rm -rf "$dir/stamp" "$dir/root.img" "$dir/vmlinuz" "$dir/modules" "$dir/tree"
trap 'rm -rf "$dir/tree"' EXIT

step() { printf 'machine image: %s (%d s)\n' "$1" "$SECONDS"; }

# The kernel's own package would also make an initramfs, which takes longer than all the rest.
step "installing Debian $release with $(cat "${lists[@]}" | wc -l) packages"
mmdebstrap --quiet --mode=root --variant=minbase --include="$(cat "${lists[@]}" | paste -s -d ,)" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--customize-hook='chroot "$1" sh -c "cd /root && apt-get -qq download \$(apt-cache depends linux-image-amd64 |
		sed -n \"s/.*Depends: \(linux-image-[^ ]*\).*/\1/p\")"' \
	$release "$dir/tree" >"$dir/log" 2>&1 || {
	tail -n 20 "$dir/log" >&2
	exit 1
}

step "unpacking the kernel"
dpkg-deb -x "$dir"/tree/root/linux-image-*.deb "$dir/tree/kernel"
version=$(basename "$dir"/tree/kernel/lib/modules/*)
cp "$dir/tree/kernel/boot/vmlinuz-$version" "$dir/vmlinuz"
mkdir -p "$dir/tree/usr/lib/modules"
mv "$dir/tree/kernel/lib/modules/$version" "$dir/tree/usr/lib/modules/$version"
# Hardware that the machine cannot have.
rm -rf "$dir/tree/usr/lib/modules/$version/kernel/"{sound,net/{bluetooth,wireless,mac80211}} \
	"$dir/tree/usr/lib/modules/$version/kernel/drivers/"{gpu,media,infiniband,iio,usb,staging,bluetooth,isdn,hwmon,platform} \
	"$dir/tree/usr/lib/modules/$version/kernel/drivers/"{i2c,mtd,mmc,ata,input,leds,video,edac,thunderbolt,firewire} \
	"$dir/tree/usr/lib/modules/$version/kernel/drivers/net/"{wireless,ethernet,usb,can,wwan,phy} \
	"$dir/tree/usr/lib/modules/$version/kernel/drivers/scsi/"{lpfc,qla2xxx,mpt3sas,megaraid,bfa,aic7xxx,qla4xxx,elx}
depmod -b "$dir/tree" "$version"
# What the initramfs loads, in this order, to find the root file system.
mkdir "$dir/modules"
for module in crc32c_generic virtio_pci virtio_blk virtio_net virtio_scsi virtio_rng sd_mod ext4 9pnet_virtio 9p; do
	modprobe --dirname "$dir/tree" --set-version "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | cat -n | while read -r number path; do
	cp "$path" "$dir/modules/$(printf %02d "$number")-$(basename "$path")"
done

step "writing the root file system"
rm -rf "$dir"/tree/root/*.deb "$dir/tree/kernel" "$dir"/tree/var/cache/apt/* "$dir"/tree/var/lib/apt/lists/* \
	"$dir"/tree/usr/share/{doc,man,locale,info}/* "$dir"/tree/dev/*
: >"$dir/tree/etc/fstab"
echo 'nameserver 10.0.2.3' >"$dir/tree/etc/resolv.conf"
echo '127.0.0.1 localhost' >"$dir/tree/etc/hosts"
if [[ ${2:-} == selinux ]]; then
	step "labelling the root file system"
	sed -i 's/^SELINUX=.*/SELINUX=enforcing/' "$dir/tree/etc/selinux/config"
	cp hack/machine-selinux.cil "$dir/tree/tmp/"
	# Labels are attributes of files, which any kernel keeps. The machine's own file systems are labelled as they begin.
	unshare --mount sh -e -c 'mount -t proc proc "$1/proc"
		chroot "$1" semodule --noreload --install /tmp/machine-selinux.cil
		rm "$1/tmp/machine-selinux.cil"
		chroot "$1" setfiles -F /etc/selinux/default/contexts/files/file_contexts /' - "$dir/tree" >>"$dir/log" 2>&1
fi
truncate -s $size "$dir/root.img.new"
mkfs.ext4 -q -F -E lazy_itable_init=0,nodiscard -d "$dir/tree" "$dir/root.img.new"
mv "$dir/root.img.new" "$dir/root.img"
printf '%s\n' "$stamp" >"$dir/stamp"
step "made, $(du -h "$dir/root.img" | cut -f1) of $size, kernel $version"
