/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package cluster starts a Kubernetes cluster on one machine and stops it again: a real control plane, and nodes whose
// kubelet package kubelet simulates. All its files are below one directory.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

// Layout names the files of a cluster below its directory.
type Layout struct {
	// Root is absolute.
	Root string
}

// NewLayout makes the directory's path absolute.
func NewLayout(directory string) (Layout, error) {
	root, err := filepath.Abs(directory)
	if err != nil {
		return Layout{}, fmt.Errorf("resolving %s: %w", directory, err)
	}
	return Layout{Root: root}, nil
}

// AdminKubeconfig belongs to system:masters.
func (l Layout) AdminKubeconfig() string { return filepath.Join(l.Root, "admin.kubeconfig") }

// Kubeconfig of a part of the control plane or of a program in hawser-system.
func (l Layout) Kubeconfig(name string) string { return filepath.Join(l.Root, name+".kubeconfig") }

// AuditLog has one JSON line for each request.
func (l Layout) AuditLog() string { return filepath.Join(l.Root, "audit.log") }

// Node is the directory of one node.
func (l Layout) Node(node string) string { return filepath.Join(l.Root, "nodes", node) }

// StaticPods replaces /etc/kubernetes/manifests of a real node.
func (l Layout) StaticPods(node string) string { return filepath.Join(l.Node(node), "static-pods") }

// KubeletDir replaces /var/lib/kubelet of a real node.
func (l Layout) KubeletDir(node string) string { return filepath.Join(l.Node(node), "kubelet") }

// AgentRoot is the agent's root directory.
func (l Layout) AgentRoot(node string) string { return filepath.Join(l.Node(node), "root") }

// AgentKubeconfig has a token that is bound to the agent's pod, and so to the node.
func (l Layout) AgentKubeconfig(node string) string {
	return filepath.Join(l.Node(node), "agent.kubeconfig")
}

// KubeletKubeconfig is for the user system:node:<node>.
func (l Layout) KubeletKubeconfig(node string) string {
	return filepath.Join(l.Node(node), "kubelet.kubeconfig")
}

// Silence is a file that stops a node's heartbeats while it exists.
func (l Layout) Silence(node string) string { return filepath.Join(l.Node(node), "silent") }

// PodLogs contains the output of a real node's containers.
func (l Layout) PodLogs(node string) string { return filepath.Join(l.Node(node), "podlogs") }

// Log is the output of a process.
func (l Layout) Log(name string) string { return filepath.Join(l.Root, "logs", name+".log") }

// Processes has the records of the running processes.
func (l Layout) Processes() process.Directory {
	return process.Directory(filepath.Join(l.Root, "run"))
}

func (l Layout) image() string       { return filepath.Join(l.Root, "image.tar") }
func (l Layout) pki() string         { return filepath.Join(l.Root, "pki") }
func (l Layout) etcdData() string    { return filepath.Join(l.Root, "etcd") }
func (l Layout) auditPolicy() string { return filepath.Join(l.Root, "audit-policy.yaml") }
func (l Layout) portsFile() string   { return filepath.Join(l.Root, "ports.json") }

// prepare creates the directories of the cluster and of its nodes.
func (l Layout) prepare(nodes []string) error {
	directories := []string{filepath.Join(l.Root, "logs"), string(l.Processes())}
	for _, node := range nodes {
		directories = append(directories, l.AgentRoot(node))
		for _, name := range []string{"plugins", "plugins_registry", "pods"} {
			directories = append(directories, filepath.Join(l.KubeletDir(node), name))
		}
	}
	for _, directory := range directories {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return fmt.Errorf("making the cluster's directories: %w", err)
		}
	}
	return nil
}

// Ports of the control plane on 127.0.0.1. They stay the same for the life of the directory.
type Ports struct {
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
}

// Server is the URL of the API server.
func (p Ports) Server() string { return "https://" + p.apiServerAddress() }

func (p Ports) apiServerAddress() string { return fmt.Sprintf("127.0.0.1:%d", p.APIServer) }

// ports reads the cluster's ports. The first call selects free ports.
func (l Layout) ports() (Ports, error) {
	var ports Ports
	data, err := os.ReadFile(l.portsFile())
	if err == nil {
		if err := json.Unmarshal(data, &ports); err != nil {
			return ports, fmt.Errorf("parsing %s: %w", l.portsFile(), err)
		}
		return ports, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return ports, fmt.Errorf("reading the ports: %w", err)
	}
	free, err := freePorts(4)
	if err != nil {
		return ports, err
	}
	ports = Ports{EtcdClient: free[0], EtcdPeer: free[1], APIServer: free[2], ControllerManager: free[3]}
	if data, err = json.Marshal(ports); err != nil {
		return ports, fmt.Errorf("encoding the ports: %w", err)
	}
	if err := os.WriteFile(l.portsFile(), append(data, '\n'), 0o644); err != nil {
		return ports, fmt.Errorf("writing the ports: %w", err)
	}
	return ports, nil
}

// freePorts keeps all listeners open at once, so that no port is chosen twice.
func freePorts(count int) ([]int, error) {
	ports := make([]int, 0, count)
	for range count {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, fmt.Errorf("choosing a port: %w", err)
		}
		defer func() { _ = listener.Close() }() // only its port was needed
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
