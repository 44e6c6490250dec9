#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs of the local cluster from Go modules into .cache/bin: etcd, kube-apiserver,
# kubectl, kube-controller-manager, kube-scheduler, csi-attacher, csi-provisioner, csi-resizer, csi-sanity. Needs
# nothing but Go. Only when they are named: kubelet, containerd, containerd-shim-runc-v2, ctr, for nodes that run pods;
# karpenter, with its provider of nodes that are none; and azurediskplugin, the CSI driver of Azure's disks.
#
# Every program carries a stamp of what it was built from, so a second run does nothing and an
# interrupted one goes on where it stopped. A directory in KUBEBUILDER_ASSETS spares the programs
# of the control plane that it holds; they are linked into .cache/bin, so all are found there.
#
#   hack/build-control-plane.sh [PROGRAM ...]     default: all but those
#   hack/build-control-plane.sh --agree           only check that versions.env and the go.mod files agree
#   hack/build-control-plane.sh --kubernetes 1.35 an older control plane, for tests against it, into .cache/bin-1.35:
#                                                 etcd, kube-apiserver, kubectl, kube-controller-manager,
#                                                 kube-scheduler, csi-attacher
#
# LOCALCLUSTER_BIN names another directory than .cache/bin.

set -euo pipefail

hack=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
module=$hack/localcluster
bin=${LOCALCLUSTER_BIN:-$(dirname "$hack")/.cache/bin}
# shellcheck source=versions.env
source "$hack/versions.env"

# The module that Kubernetes is built from, and its release.
kubernetes=$module
release=$KUBERNETES_VERSION
if [[ ${1:-} == --kubernetes ]]; then
	minor=${2:?usage: build-control-plane.sh --kubernetes 1.MINOR}
	shift 2
	if [[ $release != "v$minor."* ]]; then
		kubernetes=$module/kubernetes/$minor
		bin+=-$minor
		# Its programs have another version.
		unset KUBEBUILDER_ASSETS
		if [[ ! -f $kubernetes/go.mod ]]; then
			pinned=("$module"/kubernetes/*/)
			printf 'build-control-plane: Kubernetes %s is not pinned; there are %s and %s\n' "$minor" \
				"$(basename -a "${pinned[@]}" | paste -s -d ' ')" "$release" >&2
			exit 1
		fi
	fi
	# The attacher is of the same version everywhere.
	set -- etcd kube-apiserver kubectl kube-controller-manager kube-scheduler csi-attacher
fi

programs=("$@")
if [[ ${#programs[@]} -eq 0 ]]; then
	programs=(etcd kube-apiserver kubectl kube-controller-manager kube-scheduler
		csi-attacher csi-provisioner csi-resizer csi-sanity)
fi

say() { printf '%s\n' "$*"; }
fail() {
	printf 'build-control-plane: %s\n' "$*" >&2
	exit 1
}

# required prints the version of a module that a go.mod requires.
required() { awk -v m="$2" '$1 == m && $2 ~ /^v/ { print $2 } $1 == "require" && $2 == m { print $3 }' "$1"; }

# agree fails when a go.mod and versions.env name different versions.
agree() {
	local found
	found=$(required "$1" "$2")
	[[ $found == "$3" ]] || fail "$1 requires $2 ${found:-(nothing)}, versions.env says $3"
}

# version_of prints what is built for a program.
version_of() {
	case $1 in
	etcd) say "$ETCD_VERSION" ;;
	kube-apiserver | kubectl | kube-controller-manager | kube-scheduler | kubelet) say "$release" ;;
	csi-attacher) say "$CSI_ATTACHER_VERSION" ;;
	csi-provisioner) say "$CSI_PROVISIONER_VERSION" ;;
	csi-resizer) say "$CSI_RESIZER_VERSION" ;;
	csi-sanity) say "$CSI_SANITY_VERSION" ;;
	containerd | containerd-shim-runc-v2 | ctr) say "$CONTAINERD_VERSION" ;;
	karpenter) say "$KARPENTER_VERSION" ;;
	azurediskplugin) say "$AZUREDISK_VERSION" ;;
	*) fail "no such program: $1" ;;
	esac
}

# kubernetes_flags stamps the version: an unstamped kubectl refuses the server's version.
# The date is the one of the release line, not of the build, so that builds are reproducible.
kubernetes_flags() {
	local number=${release#v} package flags=""
	local major=${number%%.*} rest=${number#*.}
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $package.gitVersion=$release -X $package.gitMajor=$major"
		flags+=" -X $package.gitMinor=${rest%%.*} -X $package.gitTreeState=clean"
	done
	say "$flags"
}

# recipe sets what go build is told for a program: directory, package, flags, tags.
recipe() {
	directory=$module package="" flags="-s -w" tags=""
	case $1 in
	etcd) package=./etcd ;;
	kube-apiserver | kubectl | kube-controller-manager | kube-scheduler | kubelet)
		directory=$kubernetes
		package=k8s.io/kubernetes/cmd/$1
		flags+=$(kubernetes_flags)
		;;
	csi-attacher)
		directory+=/csi
		package=github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher
		flags+=" -X main.version=$CSI_ATTACHER_VERSION"
		;;
	csi-provisioner)
		directory+=/provisioning
		package=github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner
		flags+=" -X main.version=$CSI_PROVISIONER_VERSION"
		;;
	csi-resizer)
		directory+=/provisioning
		package=github.com/kubernetes-csi/external-resizer/cmd/csi-resizer
		flags+=" -X main.version=$CSI_RESIZER_VERSION"
		;;
	csi-sanity)
		directory+=/csi
		package=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity
		;;
	karpenter)
		directory+=/karpenter
		package=sigs.k8s.io/karpenter/kwok
		;;
	azurediskplugin)
		directory+=/azuredisk
		package=sigs.k8s.io/azuredisk-csi-driver/pkg/azurediskplugin
		;;
	containerd | containerd-shim-runc-v2 | ctr)
		directory+=/containerd
		package=github.com/containerd/containerd/v2/cmd/$1
		flags+=" -X github.com/containerd/containerd/v2/version.Version=$CONTAINERD_VERSION"
		tags="no_btrfs no_devmapper no_zfs no_blockfile" # snapshotters that no node here uses
		;;
	esac
}

# The compiler takes a sixth less processor time if it collects garbage less often.
export GOGC=${GOGC:-400}

# compile builds one program to the given file.
compile() {
	local directory package flags tags
	recipe "$1"
	(cd "$directory" && CGO_ENABLED=0 GOWORK=off GOFLAGS= go build -mod=readonly -trimpath -buildvcs=false \
		-tags "$tags" -ldflags "$flags" -o "$2" "$package")
}

# stamp prints the hash of everything that a program is made of. The recipes of the others are not among
# it, so a change to one program rebuilds that one.
stamp() {
	local directory package flags tags
	recipe "$1"
	{
		version_of "$1"
		say "$package" "$flags" "$tags"
		declare -f compile
		cat "$directory/go.mod" "$directory/go.sum"
		[[ $1 != etcd ]] || cat "$module/etcd/main.go"
	} | sha256sum | cut -d ' ' -f 1
}

# spared reports whether the program is there in KUBEBUILDER_ASSETS already.
spared() {
	case $1 in csi-* | kubelet | containerd* | ctr | karpenter | azurediskplugin) return 1 ;; esac
	[[ -n ${KUBEBUILDER_ASSETS:-} && -x $KUBEBUILDER_ASSETS/$1 && ! $KUBEBUILDER_ASSETS -ef $bin ]]
}

# provide makes one program present in the bin directory: linked, unchanged, or built.
provide() {
	local name=$1 position=$2 want start
	if spared "$name"; then
		ln -sf "$(cd "$KUBEBUILDER_ASSETS" && pwd)/$name" "$bin/$name"
		rm -f "$bin/.stamp-$name"
		return
	fi
	want=$(stamp "$name")
	if [[ -x $bin/$name && $(cat "$bin/.stamp-$name" 2>/dev/null) == "$want" ]]; then
		return
	fi
	command -v go >/dev/null || fail "building $name needs Go, which is not in the PATH"
	say "building $name $(version_of "$name") ($position) ..."
	start=$SECONDS
	compile "$name" "$bin/.new-$name"
	# The file gets its name only when it is whole, its stamp only after that.
	mv -f "$bin/.new-$name" "$bin/$name"
	printf '%s\n' "$want" >"$bin/.stamp-$name"
	say "built $name in $((SECONDS - start)) s"
}

agree "$module/go.mod" k8s.io/kubernetes "$KUBERNETES_VERSION"
agree "$module/go.mod" go.etcd.io/etcd/server/v3 "$ETCD_VERSION"
agree "$module/csi/go.mod" github.com/kubernetes-csi/external-attacher/v4 "$CSI_ATTACHER_VERSION"
agree "$module/provisioning/go.mod" github.com/kubernetes-csi/external-provisioner/v5 "$CSI_PROVISIONER_VERSION"
agree "$module/provisioning/go.mod" github.com/kubernetes-csi/external-resizer "$CSI_RESIZER_VERSION"
agree "$module/csi/go.mod" github.com/kubernetes-csi/csi-test/v5 "$CSI_SANITY_VERSION"
agree "$module/karpenter/go.mod" sigs.k8s.io/karpenter "$KARPENTER_VERSION"
agree "$module/azuredisk/go.mod" sigs.k8s.io/azuredisk-csi-driver "$AZUREDISK_VERSION"
agree "$module/containerd/go.mod" github.com/containerd/containerd/v2 "$CONTAINERD_VERSION"

if [[ ${1:-} == --agree ]]; then
	exit 0
fi
[[ $kubernetes == "$module" ]] || release=$(required "$kubernetes/go.mod" k8s.io/kubernetes)
mkdir -p "$bin"
# One build at a time: two callers would build everything twice.
if command -v flock >/dev/null; then
	exec 9>"$bin/.lock"
	flock 9
fi
for i in "${!programs[@]}"; do
	provide "${programs[$i]}" "$((i + 1))/${#programs[@]}"
done
