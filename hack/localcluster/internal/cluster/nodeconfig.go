/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// kubeletVerbosity logs each step of a volume.
const kubeletVerbosity = "2"

// containerdConfig has no network plugin: pods use their machine's network. The configuration of a plugin must
// exist, or the kubelet reports a broken network.
const containerdConfig = `version = 3
root = %[1]q
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = %[2]q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %[3]q

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    conf_dir = %[4]q
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = %[5]q
    snapshotter = "native"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = %[6]q
`

const cniConfig = `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}
`

// kubeletConfig reserves nothing of the machine, which other nodes share. It evicts no pod and deletes no image,
// because the disk is shared too: images that no pod uses for a moment cannot be pulled again.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %[1]q}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: "unix://%[2]s"
podLogsDir: %[3]q
cgroupDriver: cgroupfs
cgroupRoot: %[4]q
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
evictionHard: {memory.available: 1Mi, nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
readOnlyPort: 0
staticPodPath: %[5]q
`

// oftenReports has the kubelet write the node's status, with the volumes in use, every second instead of every ten.
// Pods wait for that status before they get their volumes.
const oftenReports = `nodeLeaseDurationSeconds: 12
nodeStatusUpdateFrequency: 1s
`

func (n realNode) writeConfigs() error {
	shimPath, err := n.program(shim)
	if err != nil {
		return err
	}
	cni := n.file("cni")
	for _, dir := range []string{cni, n.Layout.StaticPods(n.name)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	reports := oftenReports
	if n.KubeletDefaults {
		reports = ""
	}
	for path, content := range map[string]string{
		filepath.Join(cni, "none.conflist"): cniConfig,
		n.file("containerd.toml"): fmt.Sprintf(containerdConfig,
			n.file("containerd"), containerdSocket, Image, cni, shimPath, n.runc),
		n.file("kubelet.yaml"): fmt.Sprintf(kubeletConfig,
			n.authority.CertificateFile(), containerdSocket, n.Layout.PodLogs(n.name),
			n.Layout.controlGroup(n.name), n.Layout.StaticPods(n.name)) + reports,
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing the node's configuration: %w", err)
		}
	}
	return nil
}
