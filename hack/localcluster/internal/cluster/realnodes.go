/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/hawser-io/hawser/hack/localcluster/internal/image"
	"github.com/hawser-io/hawser/hack/localcluster/internal/pki"
	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

const (
	// Image is the only image of every machine. It is the sandbox image too.
	Image = "localcluster.local/program:latest"

	containerdSocket = "/run/containerd/containerd.sock" // each machine has its own /run
	shim             = "containerd-shim-runc-v2"
)

// Names of a real node's processes.
func machineName(node string) string    { return "machine-" + node }
func containerdName(node string) string { return "containerd-" + node }
func kubeletName(node string) string    { return "kubelet-" + node }

// controlGroup is the parent control group of a node's pods.
func (l Layout) controlGroup(node string) string {
	return filepath.Join(l.controlGroups(), node)
}

// controlGroups is the parent of all control groups of the cluster. It depends on the directory.
func (l Layout) controlGroups() string {
	return fmt.Sprintf("/localcluster-%x", sha256.Sum256([]byte(l.Root)))[:len("/localcluster-")+8]
}

// startRealNodes starts machines concurrently, with containerd and kubelet in each.
func (o Options) startRealNodes(ctx context.Context, p Ports, a *pki.Authority) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("finding runc, which hack/setup-packages.sh --containers installs: %w", err)
	}
	if err := image.Pack(o.Layout.image(), Image, o.ContainerProgram, "pause"); err != nil {
		return err
	}
	problems := make([]error, len(o.Nodes))
	var group sync.WaitGroup
	for i, node := range o.Nodes {
		group.Go(func() {
			n := realNode{Options: o, name: node, address: fmt.Sprintf("192.0.2.%d", i+1), ports: p, authority: a, runc: runc}
			if err := n.start(ctx); err != nil {
				problems[i] = fmt.Errorf("node %s: %w", node, err)
			}
		})
	}
	group.Wait()
	return errors.Join(problems...)
}

// realNode is one machine with a kubelet. Its address is from a documentation network and invisible to other machines.
type realNode struct {
	Options
	name, address, runc string
	ports               Ports
	authority           *pki.Authority
}

func (n realNode) start(ctx context.Context) error {
	if err := n.writeConfigs(); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{n.startMachine, n.startContainerd, n.importImage, n.startKubelet} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n realNode) startMachine(ctx context.Context) error {
	return startAndWait(ctx, n.Layout, process.Spec{
		Name: machineName(n.name), Program: n.Self, Machine: true, Notifies: true,
		Args: []string{
			"run-machine", "--dir", n.Layout.Root, "--address", n.address, "--api-server", n.ports.apiServerAddress(),
			"--control-group", n.Layout.controlGroup(n.name),
		},
	})
}

func (n realNode) startContainerd(ctx context.Context) error {
	program, err := n.program("containerd")
	if err != nil {
		return err
	}
	return startAndWait(ctx, n.Layout, process.Spec{
		Name: containerdName(n.name), Program: program, Inside: machineName(n.name), Notifies: true,
		Args: []string{"--config", n.file("containerd.toml")},
	})
}

// importImage imports the image into the machine's containerd. A second call changes nothing.
func (n realNode) importImage(ctx context.Context) error {
	program, err := n.program("ctr")
	if err != nil {
		return err
	}
	record, err := n.Layout.Processes().Load(machineName(n.name))
	if err != nil {
		return err
	}
	cmd := process.Command(ctx, program, "--address", containerdSocket, "--namespace", "k8s.io",
		"images", "import", "--local", "--snapshotter", "native", n.Layout.image())
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := record.StartInside(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("importing the image: %w\n%s", err, output.String())
	}
	return nil
}

func (n realNode) startKubelet(ctx context.Context) error {
	program, err := n.program("kubelet")
	if err != nil {
		return err
	}
	return startAndWait(ctx, n.Layout, process.Spec{
		Name: kubeletName(n.name), Program: program, Inside: machineName(n.name),
		Args: []string{
			"--config=" + n.file("kubelet.yaml"),
			"--kubeconfig=" + n.Layout.KubeletKubeconfig(n.name),
			"--root-dir=" + n.Layout.KubeletDir(n.name),
			"--cert-dir=" + filepath.Join(n.Layout.KubeletDir(n.name), "pki"),
			"--hostname-override=" + n.name,
			"--node-ip=" + n.address,
			"--v=" + kubeletVerbosity,
		},
	})
}

func (n realNode) file(name string) string { return filepath.Join(n.Layout.Node(n.name), name) }
