/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// fromPod is what a pod writes to its volume.
const fromPod = "written by a pod"

// showPods shows pods with inline volumes in a cluster of its own, whose node has a real kubelet. It says why if there
// can be none here, which is no error.
func showPods(ctx context.Context, dir string, out io.Writer) (err error) {
	leftOut := func(why error) error {
		_, _ = fmt.Fprintf(out, "\nLEFT OUT: pods with inline volumes, which need a real kubelet: %v\n", why)
		return nil
	}
	if why := missingForPods(); why != nil {
		return leftOut(why)
	}
	program, err := system.BuildStatic(ctx, "./test/kubelet/cmd/program")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\n== another cluster, whose node has a real kubelet\n")
	sys, err := system.Up(ctx, system.Options{Dir: dir, Nodes: []string{nodeA}, Out: out, AttachDetach: true,
		ContainerProgram: program, KubeletDefaults: true})
	if err != nil {
		return leftOut(err)
	}
	defer func() { err = errors.Join(err, sys.Down(context.WithoutCancel(ctx))) }()
	d := &demo{System: sys, out: out}
	for _, step := range []step{
		{"a pod names a claim: Hawser attaches, mounts and binds its volume", d.podOfClaim},
		{"a pod names an intent that is Ready: it sees the file of the first one", d.podOfIntent},
		{"the driver is stopped: the next pod waits, and why names the cause", d.podWaits},
		{"the driver starts again: the pod runs by itself, and all are deleted", d.podRuns},
	} {
		if err := d.show(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// missingForPods is what a real kubelet lacks here; nil if nothing is known to be missing.
func missingForPods() error {
	for _, program := range []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr"} {
		if _, err := os.Stat(filepath.Join(apiserver.Root(), ".cache", "bin", program)); err != nil {
			return fmt.Errorf("%s is not built: hack/build-control-plane.sh %s", program, program)
		}
	}
	if _, err := exec.LookPath("runc"); err != nil {
		return fmt.Errorf("runc is not installed: %w", err)
	}
	return nil
}

// pod creates a pod on node A with an inline volume. It runs the step on the volume and then waits.
func (d *demo) pod(ctx context.Context, name string, attributes map[string]string,
	step ...string) (*corev1.Pod, error) {
	container := func(name string, args ...string) corev1.Container {
		return corev1.Container{Name: name, Image: system.Image, ImagePullPolicy: corev1.PullNever, Args: args,
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeA, HostNetwork: true, EnableServiceLinks: ptr.To(false),
			AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](5),
			InitContainers: []corev1.Container{container("step", step...)},
			Containers:     []corev1.Container{container("main", "pause")},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
				Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: attributes}}}},
		},
	}
	if err := d.Client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("creating pod %s: %w", name, err)
	}
	return pod, nil
}

// running waits until the pod runs, and prints the file that it sees.
func (d *demo) running(ctx context.Context, name string) error {
	pod, err := system.Await(ctx, d.System, &corev1.PodList{}, client.ObjectKey{Namespace: namespace, Name: name},
		func(p *corev1.Pod) bool {
			return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
		})
	if err != nil {
		return err
	}
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	pid, err := d.PID(system.Machine(nodeA))
	if err != nil {
		return err
	}
	path := filepath.Join(d.KubeletDir(nodeA), "pods", string(pod.UID), "volumes", "kubernetes.io~csi", "data", "mount",
		"file")
	content, err := os.ReadFile(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), path))
	if err != nil {
		return fmt.Errorf("reading the file of pod %s: %w", name, err)
	}
	if string(content) != fromPod {
		return fmt.Errorf("the file of pod %s is %q, want %q", name, content, fromPod)
	}
	_, _ = fmt.Fprintf(d.out, "   pod %s runs, %.0f s after it was created; /data/file: %q\n", name,
		started.Sub(pod.CreationTimestamp.Time).Seconds(), content)
	return nil
}

func claim(name string) map[string]string {
	return map[string]string{volumesv1alpha1.AttributeClaim: name}
}

func (d *demo) podOfClaim(ctx context.Context) error {
	if _, err := d.Kubectl(ctx, "apply", "-k", sample("")); err != nil {
		return err
	}
	// Kubernetes refuses pods before their account is there.
	if _, err := d.Kubectl(ctx, "wait", "--for=create", "--timeout=1m", "-n", namespace,
		"serviceaccount/default"); err != nil {
		return err
	}
	if _, err := d.pod(ctx, "of-a-claim", claim("data"), "write", "/data/file", fromPod); err != nil {
		return err
	}
	return d.running(ctx, "of-a-claim")
}

func (d *demo) podOfIntent(ctx context.Context) error {
	if _, err := d.AwaitReady(ctx, namespace, dataOnA); err != nil {
		return err
	}
	attributes := map[string]string{volumesv1alpha1.AttributeIntent: dataOnA}
	if _, err := d.pod(ctx, "of-an-intent", attributes, "read", "/data/file", fromPod); err != nil {
		return err
	}
	return d.running(ctx, "of-an-intent")
}

// podWaits takes everything away before, so that the volume has to be mounted again.
func (d *demo) podWaits(ctx context.Context) error {
	if err := d.removePods(ctx); err != nil {
		return err
	}
	if err := d.StopProcess(ctx, system.NodeDriver(nodeA)); err != nil {
		return err
	}
	pod, err := d.pod(ctx, "waits", claim("data"), "read", "/data/file", fromPod)
	if err != nil {
		return err
	}
	intent := volumesv1alpha1.InlineIntentName(pod.Name, pod.UID, "data")
	reason, err := d.missesDriver(ctx, intent)
	if err != nil {
		return err
	}
	return d.whyOf(ctx, "pod", pod.Name, reason)
}

func (d *demo) podRuns(ctx context.Context) error {
	if err := d.StartAgain(ctx, system.NodeDriver(nodeA)); err != nil {
		return err
	}
	if err := d.running(ctx, "waits"); err != nil {
		return err
	}
	return d.removePods(ctx)
}

// removePods deletes pods and intents, and waits until the node has released every volume.
func (d *demo) removePods(ctx context.Context) error {
	for _, kind := range []string{"pods", "vai"} {
		if out, err := d.Kubectl(ctx, "delete", kind, "--all", "-n", namespace); err != nil {
			return fmt.Errorf("deleting %s: %w: %s", kind, err, strings.TrimSpace(out))
		}
	}
	_, err := d.AwaitNode(ctx, nodeA, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
		return nvs != nil && len(nvs.Spec.Attachments) == 0 && len(nvs.Status.Volumes) == 0
	})
	return err
}
