/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// kubeletPrograms are those of a node with pods. Debian has runc.
var kubeletPrograms = []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr"}

// busybox is the only image of the machines.
const busybox = "machine.local/busybox:latest"

// The log has what a kubelet takes in a machine.
func TestAPodOfARealKubeletInAMachineUsesTheVolumeOfAnIntent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.startKubelet()
	v := n.newVolume(diskExt4, "64Mi")
	path := v.ready()
	begin := time.Now()
	pod := v.newPod("echo written by a pod >/data/file && /bin/busybox sync && exec /bin/busybox sleep 2147483647")
	n.awaitPod(pod.Name, func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning })
	t.Logf("pod created -> running %.1f s", time.Since(begin).Seconds())
	if got := n.must("until test -s %s/file; do sleep 0.1; done; cat %[1]s/file", path); got != "written by a pod" {
		t.Errorf("the volume has %q, want what the pod wrote", got)
	}
	v.unwant()
	v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		if i == nil {
			t.Fatal("the intent is gone while a pod uses it, want that it stays")
		}
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		return c != nil && c.Reason == volumesv1alpha1.ReasonUsedByPods && strings.Contains(c.Message, pod.Name)
	})
	begin = time.Now()
	n.ok(lab.sys.Client.Delete(n.limited(), pod))
	n.awaitPod(pod.Name, func(p *corev1.Pod) bool { return p == nil })
	t.Logf("pod deleted -> gone %.1f s", time.Since(begin).Seconds())
	v.released()
}

// startKubelet starts a kubelet with containerd, and waits until it reports the node.
func (n *node) startKubelet() {
	n.t.Helper()
	begin := time.Now()
	n.copyKubelet()
	n.t.Logf("kubelet and containerd are copied after %.1f s", time.Since(begin).Seconds())
	ctx := n.limited()
	n.ok(n.Launch(ctx, "containerd", "env PATH=/opt/kubelet:$PATH containerd --config /etc/kubelet/containerd.toml"))
	n.must("until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done; sh /etc/kubelet/image.sh && " +
		"/opt/kubelet/ctr -n k8s.io images import --local --snapshotter native /tmp/image.tar")
	n.t.Logf("containerd has the image after %.1f s", time.Since(begin).Seconds())
	kubeconfig := filepath.Join(lab.dir, "machines", n.Name, "kubelet.kubeconfig")
	n.writeKubeconfig(filepath.Join(filepath.Dir(lab.sys.AgentKubeconfig(n.Name)), "kubelet.kubeconfig"), kubeconfig)
	n.ok(n.Launch(ctx, "kubelet", fmt.Sprintf("/opt/kubelet/kubelet --config=/etc/kubelet/kubelet.yaml --kubeconfig=%s "+
		"--cert-dir=/var/lib/kubelet/pki --hostname-override=%s --node-ip=10.0.2.15 --v=2", kubeconfig, n.Name)))
	_, err := system.Await(ctx, lab.sys, &corev1.NodeList{}, client.ObjectKey{Name: n.Name}, func(o *corev1.Node) bool {
		return o != nil && strings.HasPrefix(o.Status.NodeInfo.ContainerRuntimeVersion, "containerd://")
	})
	n.okOfKubelet(err)
	n.t.Logf("the kubelet reports the node after %.1f s", time.Since(begin).Seconds())
}

// copyKubelet copies the programs and their configuration into the machine.
func (n *node) copyKubelet() {
	n.t.Helper()
	shared := filepath.Join(lab.dir, "machines", n.Name, "kubelet")
	n.ok(os.CopyFS(shared, os.DirFS(filepath.Join(apiserver.Root(), "test/machine/testdata/kubelet"))))
	for _, name := range kubeletPrograms {
		program, err := os.ReadFile(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), name))
		n.ok(err)
		n.ok(os.WriteFile(filepath.Join(shared, name), program, 0o755))
	}
	_, err := n.RunFor(n.limited(), patience, "mkdir -p /opt/kubelet /etc/kubelet && cd %s && mv %s /opt/kubelet/ && "+
		"mv * /etc/kubelet/", shared, strings.Join(kubeletPrograms, " "))
	n.ok(err)
}

// okOfKubelet is ok, with what the kubelet and containerd printed.
func (n *node) okOfKubelet(err error) {
	n.t.Helper()
	if err != nil {
		for _, program := range []string{"containerd", "kubelet"} {
			log, _ := n.Log(n.limited(), program)
			n.t.Logf("%s: %s", program, log)
		}
		n.t.Fatal(err)
	}
}

// newPod creates a pod that uses the intent's volume at /data, and runs the script.
func (v *volume) newPod(script string) *corev1.Pod {
	v.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: v.name + "-"},
		Spec: corev1.PodSpec{NodeName: v.Name, HostNetwork: true, AutomountServiceAccountToken: ptr.To(false),
			EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{Name: "main", Image: busybox, ImagePullPolicy: corev1.PullNever,
				Command:      []string{"/bin/busybox", "sh", "-c", script},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver,
					VolumeAttributes: map[string]string{volumesv1alpha1.AttributeIntent: v.name}}}}}}}
	v.ok(lab.sys.Client.Create(v.limited(), pod))
	return pod
}

func (n *node) awaitPod(name string, done func(*corev1.Pod) bool) {
	n.t.Helper()
	_, err := system.Await(n.limited(), lab.sys, &corev1.PodList{}, client.ObjectKey{Namespace: namespace, Name: name},
		done)
	n.okOfKubelet(err)
}
