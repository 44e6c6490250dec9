/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Names of the processes. Those of a node end with its name.
const (
	Manager          = "manager"
	Attacher         = "csi-attacher"
	ControllerDriver = "csi-loop-controller"
)

// Agent is the name of a node's agent process.
func Agent(node string) string { return "agent-" + node }

// Image is the image of the containers on nodes with real kubelets: ContainerProgram, with its arguments.
const Image = "localcluster.local/program:latest"

// Kubelet is the name of a node's kubelet process, if it has a real one.
func Kubelet(node string) string { return "kubelet-" + node }

// Containerd is the name of the container runtime of a node with a real kubelet.
func Containerd(node string) string { return "containerd-" + node }

// Machine is the name of the first process of a node with a real kubelet. All others of the node end with it.
func Machine(node string) string { return "machine-" + node }

// NodeDriver is the name of a node's loop driver process.
func NodeDriver(node string) string { return "csi-loop-" + node }

func (s *System) startDrivers(ctx context.Context) error {
	if err := s.StartControllerDriver(ctx); err != nil {
		return err
	}
	for _, node := range s.inside() {
		if err := s.StartNodeDriver(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// StartControllerDriver starts the driver's controller service.
func (s *System) StartControllerDriver(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.ControllerSocket()), 0o755); err != nil {
		return fmt.Errorf("creating the driver's directory: %w", err)
	}
	return s.start(ctx, ControllerDriver, s.program("csi-loop"), append([]string{
		"--mode=controller", "--backing-dir", s.BackingDir(), "--endpoint", s.ControllerSocket(), "--node-id=controller"},
		s.DriverArgs...)...)
}

// StartNodeDriver starts a node's plugin of the driver, registered in the node's kubelet directory.
func (s *System) StartNodeDriver(ctx context.Context, node string) error {
	return s.startOn(ctx, node, NodeDriver(node), s.program("csi-loop"), append([]string{
		"--mode=node", "--backing-dir", s.BackingDir(), "--kubelet-dir", s.KubeletDir(node), "--node-id", node},
		slices.Concat(s.DriverArgs, s.ArgsOfDriver[node])...)...)
}

// APIServer is the name of the API server's process.
const APIServer = "kube-apiserver"

// StartAPIServer starts the API server again after a stop.
func (s *System) StartAPIServer(ctx context.Context) error {
	if err := s.localcluster(ctx, "start", "--dir", s.Dir, APIServer); err != nil {
		return err
	}
	return s.awaitPolicies(ctx)
}

// awaitPolicies returns once the API server serves both kinds and sets the finalizer of a new intent. Before that, it
// first serves intents without the policy, and then refuses those that the policy would change, until it has read their
// schema: up to 5 s after a CRD is established. No event signals either change.
func (s *System) awaitPolicies(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			last = s.probePolicies(ctx)
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for the admission policies: %w", errors.Join(err, last))
	}
	return nil
}

func (s *System) probePolicies(ctx context.Context) error {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: metav1.NamespaceDefault},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: "probe", DesiredState: volumesv1alpha1.DesiredPublished,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "probe"}},
		},
	}
	if err := s.Client.Create(ctx, intent, client.DryRunAll); err != nil {
		return err
	}
	if !controllerutil.ContainsFinalizer(intent, volumesv1alpha1.ReleaseFinalizer) {
		return errors.New("no policy sets the finalizer of an intent")
	}
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
	return s.Client.Create(ctx, state, client.DryRunAll)
}

// BackingFile of a loop driver's volume.
func (s *System) BackingFile(handle string) string {
	return filepath.Join(s.BackingDir(), "volumes", handle+".img")
}

// StartAttacher starts the external-attacher on the driver's controller service.
func (s *System) StartAttacher(ctx context.Context) error {
	args := []string{"attacher", "--dir", s.Dir, "--bin", assets(), "--socket", s.ControllerSocket()}
	for _, arg := range s.AttacherArgs {
		args = append(args, "--attacher-arg="+arg)
	}
	return s.localcluster(ctx, args...)
}

// StartManager starts the cluster controller.
func (s *System) StartManager(ctx context.Context) error {
	return s.start(ctx, Manager, s.program("manager"), append([]string{
		"--kubeconfig=" + filepath.Join(s.Dir, "manager.kubeconfig"), "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0"}, s.ManagerArgs...)...)
}

func (s *System) startAgents(ctx context.Context) error {
	for _, node := range s.inside() {
		if err := s.StartAgent(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// StartAgent starts a node's agent. Without Machines all nodes share the identity of this machine, and differ in their
// names.
func (s *System) StartAgent(ctx context.Context, node string) error {
	args := []string{"--node-name=" + node, "--root-dir=" + s.AgentRoot(node), "--kubelet-dir=" + s.KubeletDir(node),
		"--kubeconfig=" + s.AgentKubeconfig(node),
		"--metrics-bind-address=0", "--health-probe-bind-address=0"}
	if s.Machines {
		args = append(args, "--machine-identity-file="+s.MachineFile(node))
		if err := s.Identify(node, node); err != nil {
			return err
		}
	}
	return s.startOn(ctx, node, Agent(node), s.program("agent"), slices.Concat(args, s.AgentArgs, s.ArgsOfAgent[node])...)
}

// AgentKubeconfig is that of a node's agent.
func (s *System) AgentKubeconfig(node string) string {
	return filepath.Join(s.Dir, "nodes", node, "agent.kubeconfig")
}

// StartAttacherOf starts another external-attacher, for one of ControllerSockets.
func (s *System) StartAttacherOf(ctx context.Context, driver string) error {
	return s.kept().start(ctx, Attacher+"-"+driver, filepath.Join(assets(), Attacher),
		"--csi-address="+s.ControllerSockets[driver], "--kubeconfig="+filepath.Join(s.Dir, Attacher+".kubeconfig"))
}

func (s *System) program(name string) string { return filepath.Join(s.Bin, name) }

// start runs a program that outlives this process. Down stops it.
func (s *System) start(ctx context.Context, name, program string, args ...string) error {
	program, args = s.wrap(program, args)
	return s.localcluster(ctx, append([]string{"run", "--dir", s.Dir, "--name", name, "--", program}, args...)...)
}

// Run is start for a program of a test.
func (s *System) Run(ctx context.Context, name, program string, args ...string) error {
	return s.start(ctx, name, program, args...)
}

// startOn starts a program on a node, inside its machine if it has one.
func (s *System) startOn(ctx context.Context, node, name, program string, args ...string) error {
	run := []string{"run", "--dir", s.Dir, "--name", name}
	if s.ContainerProgram != "" {
		run = append(run, "--node", node)
	}
	program, args = s.wrap(program, args)
	return s.localcluster(ctx, append(append(run, "--", program), args...)...)
}

// wrap adds the supervisor to a program that must be restarted whenever it ends.
func (s *System) wrap(program string, args []string) (string, []string) {
	if !s.keep {
		return program, args
	}
	return s.program("localcluster"), append([]string{"keep-running", "--", program}, args...)
}

// StartAgain starts a stopped or killed process with the same arguments.
func (s *System) StartAgain(ctx context.Context, name string) error {
	return s.localcluster(ctx, "start", "--dir", s.Dir, name)
}

// StopProcess stops one process normally.
func (s *System) StopProcess(ctx context.Context, name string) error {
	return s.localcluster(ctx, "stop", "--dir", s.Dir, name)
}

// Kill ends one process with SIGKILL, so that it cannot clean up.
func (s *System) Kill(name string) error { return s.Signal(name, syscall.SIGKILL) }

// Signal sends a signal to one process.
func (s *System) Signal(name string, signal syscall.Signal) error {
	pid, err := s.PID(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("signalling %s: %w", name, err)
	}
	return nil
}

// PID of one process.
func (s *System) PID(name string) (int, error) {
	data, err := os.ReadFile(filepath.Join(s.Dir, "run", name+".json"))
	if err != nil {
		return 0, fmt.Errorf("reading the record of %s: %w", name, err)
	}
	var record struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return 0, fmt.Errorf("parsing the record of %s: %w", name, err)
	}
	return record.PID, nil
}

// Down stops every process and removes the directory. If something is still mounted below it, Down keeps the directory
// and returns an error.
func (s *System) Down(ctx context.Context) error {
	err := s.localcluster(ctx, "down", "--dir", s.Dir)
	mounts, mountErr := MountsBelow(s.Dir)
	if err = errors.Join(err, mountErr); err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%d mounts are left below %s, which is kept as it is until `bin/localcluster discard --dir %s`: %v",
			len(mounts), s.Dir, s.Dir, mounts)
	}
	return s.localcluster(ctx, "down", "--dir", s.Dir, "--purge")
}

// ControllerManager is the name of kube-controller-manager's process.
const ControllerManager = "kube-controller-manager"

// SetAttachDetach restarts kube-controller-manager with or without upstream's attach/detach controller.
func (s *System) SetAttachDetach(ctx context.Context, on bool) error {
	if err := s.StopProcess(ctx, ControllerManager); err != nil {
		return err
	}
	s.AttachDetach = on
	return s.cluster(ctx)
}

// SetManagerArgs restarts the cluster controller with these additional arguments.
func (s *System) SetManagerArgs(ctx context.Context, args ...string) error {
	if err := s.StopProcess(ctx, Manager); err != nil {
		return err
	}
	s.ManagerArgs = args
	return s.StartManager(ctx)
}

// Scheduler is the name of kube-scheduler's process.
const Scheduler = "kube-scheduler"

// StartScheduler starts kube-scheduler, which binds the pods that are created without a node.
func (s *System) StartScheduler(ctx context.Context) error {
	return s.start(ctx, Scheduler, filepath.Join(assets(), "kube-scheduler"), "--kubeconfig="+s.Kubeconfig(),
		"--authentication-kubeconfig="+s.Kubeconfig(), "--authorization-kubeconfig="+s.Kubeconfig(),
		"--leader-elect=false", "--secure-port=0")
}
