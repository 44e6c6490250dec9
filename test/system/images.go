/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/apiserver"
)

// programs have an image each.
var programs = []string{"operator", "manager", "agent"}

// MachinePID is the process ID of the first process of a node with a real kubelet.
func (s *System) MachinePID(node string) (string, error) {
	data, err := os.ReadFile(filepath.Join(s.Dir, "run", Machine(node)+".json"))
	if err != nil {
		return "", err
	}
	var record struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return "", fmt.Errorf("reading the record of %s: %w", Machine(node), err)
	}
	return strconv.Itoa(record.PID), nil
}

// Inside runs a program on a node with a real kubelet, and returns what it prints.
func (s *System) Inside(ctx context.Context, node string, command ...string) (string, error) {
	pid, err := s.MachinePID(node)
	if err != nil {
		return "", err
	}
	args := append([]string{"--target", pid, "--mount", "--net", "--"}, command...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("node %s: running %v: %w\n%s", node, command, err, out)
	}
	return string(out), nil
}

// ImportImages imports the archives that `make images` has written to a directory into the containerd of a node.
func (s *System) ImportImages(ctx context.Context, node, dir string) error {
	for _, program := range programs {
		if err := s.ImportImage(ctx, node, filepath.Join(dir, program+".tar")); err != nil {
			return err
		}
	}
	return nil
}

// ImportImage imports an OCI archive into a node's containerd.
func (s *System) ImportImage(ctx context.Context, node, archive string) error {
	_, err := s.Inside(ctx, node, filepath.Join(assets(), "ctr"),
		"--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io",
		"images", "import", "--local", "--snapshotter", "native", archive)
	return err
}

// ShareKubeletDir shows the kubelet directory of a node under the path that it has on another one. All agents of an
// installation expect it at one path.
func (s *System) ShareKubeletDir(ctx context.Context, node, other string) error {
	_, err := s.Inside(ctx, node, "mount", "--bind", s.KubeletDir(node), s.KubeletDir(other))
	return err
}

//go:embed network.yaml
var network string

// PlayNetwork applies what takes the place of the pod network for the pods of an installation, and of the scheduler if
// it is to place them. It waits until the API server has begun. The nodes are node-a and node-b.
func (s *System) PlayNetwork(ctx context.Context, place bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("reading the address of the API server: %w", err)
	}
	file, policy := filepath.Join(s.Dir, "network.yaml"), strings.ReplaceAll(network, "API_PORT", server.Port())
	if !place {
		policy = strings.Replace(policy, "nodeName: variables.node,", "", 1)
	}
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	// No event signals that the API server has begun to apply a policy.
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "probe"},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: Image}}}}
			err := s.Client.Create(ctx, pod, client.DryRunAll)
			return err == nil && (pod.Spec.NodeName != "") == place && pod.Spec.HostNetwork, nil
		})
}

// Overlay writes a kustomization of config/default whose operator begins with this spec of the VolumeManager.
func Overlay(dir, spec string) error {
	base, err := filepath.Rel(dir, filepath.Join(apiserver.Root(), "config", "default"))
	if err != nil {
		return err
	}
	return OverlayOf(dir, base, spec)
}

// OverlayOf is Overlay for a file in dir or a directory, by its relative path, that contains the operator.
func OverlayOf(dir, base, spec string) error {
	text := fmt.Sprintf(`resources: [%s]
patches:
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: hawser-operator, namespace: hawser-system}
    spec: {template: {spec: {containers: [{name: operator, env: [{name: INITIAL_SPEC, value: %q}]}]}}}
`, base, spec)
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)
}
