/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package system runs all of Hawser on one machine: a real control plane, several nodes with an agent each, the cluster
// controller, and the loop CSI driver with its external-attacher, external-provisioner and external-resizer. The demo,
// the benchmark and the end-to-end tests use it. It needs root, for mounts, and Linux.
package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/environment"
)

// DriverName is the loop CSI driver's name.
const DriverName = "loop.csi.hawser.io"

// Options of a System.
type Options struct {
	// Dir contains all files of the system.
	Dir string
	// Nodes to run agents on.
	Nodes []string
	// Out receives the progress lines.
	Out io.Writer
	// AttachDetach runs upstream's attach/detach controller next to Hawser, as in mode Coexist.
	AttachDetach bool
	// ContainerProgram, if set, gives every node a real kubelet instead of a simulated one. The node is then a machine
	// with its own mounts, network and process IDs (see hack/localcluster). It is the path of a static program, the only
	// one that the nodes' containers can run.
	ContainerProgram string
	// KubeletDefaults has real kubelets report their nodes as seldom as by default, instead of every second.
	KubeletDefaults bool
	// LinkedKubelets are the nodes whose kubelet directory is a symbolic link.
	LinkedKubelets []string
	// ControllerManagerArgs are added to kube-controller-manager's own.
	ControllerManagerArgs []string
	// OnlyUpstream omits Hawser's own programs, for a comparison.
	OnlyUpstream bool
	// ManagerArgs, AgentArgs and AttacherArgs are added to the programs' own.
	ManagerArgs, AgentArgs, AttacherArgs []string
	// ArgsOfAgent are added to those of one node's agent.
	ArgsOfAgent map[string][]string
	// Machines gives each node a machine of its own, which Identify replaces. Agents of earlier releases cannot take it.
	Machines bool
	// DriverArgs are added to the loop driver's.
	DriverArgs []string
	// Outside are nodes whose agent and driver something else starts, such as a virtual machine.
	Outside []string
	// ControllerSockets are the sockets of further drivers' controller services, by driver.
	ControllerSockets map[string]string
	// ArgsOfDriver are added to those of one node's plugin of the driver.
	ArgsOfDriver map[string][]string
	// Bin is the directory of the programs; empty means the repository's bin.
	Bin string
}

// System is a running one.
type System struct {
	Options
	// Client acts as an administrator.
	Client client.WithWatch

	// keep makes every started process restart whenever it ends.
	keep bool
}

// Up starts a System. After an error it stops what it has started.
func Up(ctx context.Context, options Options) (*System, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the system needs root: it mounts volumes")
	}
	s := Open(options)
	if err := s.up(ctx); err != nil {
		return nil, errors.Join(err, s.Down(context.WithoutCancel(ctx)))
	}
	return s, nil
}

type step struct {
	name string
	run  func(context.Context) error
}

func (s *System) up(ctx context.Context) error {
	if err := s.cluster(ctx); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	steps := []step{
		{"starting the loop driver", s.startDrivers},
		{"starting the external-attacher", s.StartAttacher},
	}
	if !s.OnlyUpstream {
		steps = append([]step{{"installing Hawser's kinds, roles and admission policies", s.install}}, steps...)
		steps = append(steps, step{"starting the controller", s.StartManager}, step{"starting the agents", s.startAgents})
	}
	for _, step := range steps {
		begin := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		s.say("%s (%.1f s)", step.name, time.Since(begin).Seconds())
	}
	return nil
}

func (s *System) say(format string, args ...any) {
	if s.Out != nil {
		_, _ = fmt.Fprintf(s.Out, format+"\n", args...) // progress only
	}
}

func (s *System) cluster(ctx context.Context) error {
	if err := s.linkKubelets(); err != nil {
		return err
	}
	args := []string{"up", "--dir", s.Dir, "--bin", assets(), "--nodes", strings.Join(s.Nodes, ","),
		fmt.Sprintf("--attach-detach=%t", s.AttachDetach),
		"--controller-socket", DriverName + "=" + s.ControllerSocket()}
	if s.ContainerProgram != "" {
		args = append(args, "--real-kubelets", "--container-program", s.ContainerProgram,
			fmt.Sprintf("--kubelet-defaults=%t", s.KubeletDefaults))
	}
	for driver, socket := range s.ControllerSockets {
		args = append(args, "--controller-socket", driver+"="+socket)
	}
	for _, arg := range s.ControllerManagerArgs {
		args = append(args, "--controller-manager-arg="+arg)
	}
	return s.localcluster(ctx, args...)
}

// linkKubelets creates the links before any program creates directories there.
func (s *System) linkKubelets() error {
	for _, node := range s.LinkedKubelets {
		link := s.KubeletDir(node)
		target := filepath.Join(filepath.Dir(link), "data", "kubelet")
		err := os.MkdirAll(target, 0o755)
		if err == nil {
			err = os.Symlink(target, link)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("linking the kubelet directory of %s: %w", node, err)
		}
	}
	return nil
}

// connect creates the administrator's client, without client-side rate limits.
func (s *System) connect() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = -1, -1
	s.Client, err = client.NewWithWatch(cfg, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		return fmt.Errorf("creating the administrator's client: %w", err)
	}
	return nil
}

func (s *System) install(ctx context.Context) error {
	overlay, err := s.overlay()
	if err != nil {
		return err
	}
	// The name of the CSIDriver has no prefix, because pods name it.
	for _, dir := range []string{overlay, filepath.Join(apiserver.Root(), "config", "csidriver")} {
		if _, err := s.Kubectl(ctx, "apply", "--server-side", "-k", dir); err != nil {
			return err
		}
	}
	return s.awaitPolicies(ctx)
}

// overlay returns a directory with what the installation needs beside its programs, under its namespace and names. A
// test may change the attach mode at any time, so the manager has the right of Replace from the beginning. kubectl
// reads no file outside that directory, so it gets copies.
func (s *System) overlay() (string, error) {
	dir := filepath.Join(s.Dir, "overlay")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the directory of the overlay: %w", err)
	}
	config, err := filepath.Rel(dir, filepath.Join(apiserver.Root(), "config"))
	if err != nil {
		return "", fmt.Errorf("finding the manifests: %w", err)
	}
	for _, file := range []string{"standalone/references.yaml", "monitoring/scraper.yaml"} {
		content, err := os.ReadFile(filepath.Join(apiserver.Root(), "config", file))
		if err != nil {
			return "", fmt.Errorf("reading a manifest: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o600); err != nil {
			return "", fmt.Errorf("copying a manifest: %w", err)
		}
	}
	text := fmt.Sprintf("resources: [%[1]s/crd, %[1]s/rbac, %[1]s/admission, scraper.yaml]\n"+
		"components: [%[1]s/replace, %[1]s/node-writes]\nconfigurations: [references.yaml]\n"+
		"namespace: %[2]s\nnamePrefix: %[3]q\n",
		config, install.Namespace(), namePrefix)
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)
}

// inside are the nodes whose programs this System starts.
func (s *System) inside() []string {
	return slices.DeleteFunc(slices.Clone(s.Nodes), func(node string) bool { return slices.Contains(s.Outside, node) })
}

// Kubeconfig of the administrator.
func (s *System) Kubeconfig() string { return filepath.Join(s.Dir, "admin.kubeconfig") }

// AuditLog of the API server.
func (s *System) AuditLog() string { return filepath.Join(s.Dir, "audit.log") }

// KubeletDir of a node.
func (s *System) KubeletDir(node string) string {
	return filepath.Join(s.Dir, "nodes", node, "kubelet")
}

// KubeletConfig is the configuration file of a node's real kubelet, which reads it when it starts.
func (s *System) KubeletConfig(node string) string {
	return filepath.Join(s.Dir, "nodes", node, "kubelet.yaml")
}

// StaticPods is the directory of a node's static pods.
func (s *System) StaticPods(node string) string {
	return filepath.Join(s.Dir, "nodes", node, "static-pods")
}

// AgentRoot of a node.
func (s *System) AgentRoot(node string) string { return filepath.Join(s.Dir, "nodes", node, "root") }

// PublishedPath is where the node's agent publishes an intent.
func (s *System) PublishedPath(node, namespace, name string) string {
	return filepath.Join(s.AgentRoot(node), "published", namespace, name)
}

// BackingDir is the loop driver's store.
func (s *System) BackingDir() string { return filepath.Join(s.Dir, "backing") }

// ControllerSocket is where the driver serves its controller service.
func (s *System) ControllerSocket() string { return filepath.Join(s.Dir, "driver", "controller.sock") }

// Kubectl runs kubectl as an administrator and returns its output.
func (s *System) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(assets(), "kubectl"), args...)
	cmd.Env = environment.With("KUBECONFIG=" + s.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("running kubectl %v: %w: %s", args, err, stderr.String())
	}
	return stdout.String(), nil
}

func (s *System) localcluster(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.program("localcluster"), args...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = s.Out, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running localcluster %s: %w: %s", args[0], err, stderr.String())
	}
	return nil
}

// Open returns a System that another process started, without a client, to stop it.
func Open(options Options) *System {
	if dir, err := filepath.Abs(options.Dir); err == nil { // fails only without a working directory
		options.Dir = dir
	}
	if options.Bin == "" {
		options.Bin = filepath.Join(apiserver.Root(), "bin")
	}
	return &System{Options: options}
}

// assets is where the control plane's programs are.
func assets() string { return filepath.Join(apiserver.Root(), ".cache", "bin") }
