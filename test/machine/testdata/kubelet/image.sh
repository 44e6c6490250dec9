#!/bin/sh
# Makes the image of all containers, which has busybox alone, and the configuration of a network without a plugin: pods
# have the machine's network.
set -eu
mkdir -p /etc/kubelet/cni /tmp/image/bin
echo '{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}' >/etc/kubelet/cni/none.conflist
cd /tmp/image
cp /bin/busybox bin/
tar -cf layer.tar bin
echo '{"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/busybox", "sleep", "2147483647"]},
	"rootfs": {"type": "layers", "diff_ids": ["sha256:'"$(sha256sum layer.tar | cut -d ' ' -f 1)"'"]}}' >config.json
echo '[{"Config": "config.json", "RepoTags": ["machine.local/busybox:latest"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf /tmp/image.tar manifest.json config.json layer.tar
