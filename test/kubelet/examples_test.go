/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// smallClaims has the claims of the examples take the only class here, and little of the disk.
const smallClaims = `- target: {kind: PersistentVolumeClaim}
  patch: |-
    - {op: add, path: /spec/storageClassName, value: ` + class + `}
    - {op: replace, path: /spec/resources/requests/storage, value: 32Mi}
`

// gpuLabel is what examples/gpu-nodes selects nodes by.
const gpuLabel = "nvidia.com/gpu.present"

// TestTheExamplesRun has every example on real kubelets. What they take beside Kubernetes (systemd, libvirt, a GPU) is
// not here.
func TestTheExamplesRun(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	kubectl(t, "label", "node", nodeA, gpuLabel+"=true")
	t.Cleanup(func() { kubectl(t, "label", "node", nodeA, gpuLabel+"-") })
	var names, namespaces []string
	for name, namespace := range map[string]string{"systemd-unit": "host-services", "static-pod": "edge",
		"virtual-machine": "machines", "statefulset": "cache", "gpu-nodes": "models", "database-disks": "bank",
		"gitops-waves": "fleet", "ci-waits": "preview"} {
		names, namespaces = append(names, "examples/"+name), append(namespaces, namespace)
	}
	// What is counted by a quota is refused until Kubernetes has counted it for the first time.
	kubectl(t, "create", "namespace", "fleet")
	kubectl(t, "apply", "-n", "fleet", "-f", filepath.Join(apiserver.Root(), "examples", "gitops-waves", "quota.yaml"))
	kubectl(t, "wait", "-n", "fleet", "resourcequota", "volumes", "--for=jsonpath={.status.used}", "--timeout=1m")
	theWeightsAreFilled(t)
	applied(t, "examples", names, localPods+smallClaims, namespaces)
	var intents volumesv1alpha1.VolumeAttachmentIntentList
	if err := sys.Client.List(limited(t), &intents); err != nil {
		t.Fatal(err)
	}
	for _, intent := range intents.Items {
		if _, err := sys.AwaitReady(limited(t), intent.Namespace, intent.Name); err != nil {
			dump(t)
			t.Errorf("intent %s/%s of the examples: %v", intent.Namespace, intent.Name, err)
		}
	}
	kubectl(t, "wait", "-n", "models", "vais/weights", "--for=condition=Ready", "--timeout=1m")
	kubectl(t, "rollout", "status", "-n", "cache", "statefulset/cache", "--timeout=1m")
	kubectl(t, "rollout", "status", "-n", "models", "daemonset/inference", "--timeout=1m")
	kubectl(t, "rollout", "status", "-n", "fleet", "deployment/search", "--timeout=1m")
	theDatabaseGetsADisk(t)
	theStaticPodStarts(t)
}

// theWeightsAreFilled before they are read-only on every node: nothing could format the volume later.
func theWeightsAreFilled(t *testing.T) {
	t.Helper()
	applied(t, "weights", []string{"examples/gpu-nodes/namespace.yaml", "examples/gpu-nodes/claim.yaml"},
		"namespace: models\n"+localPods+smallClaims, nil)
	claim, err := sys.AwaitClaim(limited(t), "models", "weights", func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	if err != nil {
		t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{}
	if err := sys.Client.Get(limited(t), client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(sys.BackingDir(), "volumes", pv.Spec.CSI.VolumeHandle+".img")
	if out, err := exec.CommandContext(limited(t), "mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("making a filesystem in %s: %v: %s", image, err, out)
	}
}

// theDatabaseGetsADisk while it runs.
func theDatabaseGetsADisk(t *testing.T) {
	t.Helper()
	database := awaitReadyPod(t, "bank", "db-0")
	applied(t, "disk-2", []string{"examples/database-disks/disk-2.yaml"}, "namespace: bank\n"+localPods+smallClaims, nil)
	pid, err := system.ContainerProcess(database, "/disks")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sys.AwaitReady(limited(t), "bank", "disk-2"); err != nil {
		t.Fatal(err)
	}
	v := &volume{t: t}
	v.eventually("both disks in the database", func() (bool, error) {
		entries, err := os.ReadDir(inContainer(pid, "/disks"))
		return len(entries) == 2, err
	})
}

// theStaticPodStarts once its directory is in the volume.
func theStaticPodStarts(t *testing.T) {
	t.Helper()
	published := sys.PublishedPath(nodeA, "edge", "registry-on-node-a")
	manifest, err := os.ReadFile(filepath.Join(apiserver.Root(), "examples", "static-pod", "registry.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("/var/lib/hawser/published/edge/registry-on-node-a", published,
		"image: registry.example.com/registry:3", "image: "+system.Image+"\n    imagePullPolicy: Never").
		Replace(string(manifest))
	file := filepath.Join(sys.StaticPods(nodeA), "registry.yaml")
	if err := os.WriteFile(file, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
		if _, err := system.Await(limited(t), sys, &corev1.PodList{}, client.ObjectKey{Namespace: "edge",
			Name: "registry-" + nodeA}, func(p *corev1.Pod) bool { return p == nil }); err != nil {
			t.Error(err)
		}
	})
	pid, err := sys.MachinePID(nodeA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join("/proc", pid, "root", published, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	awaitReadyPod(t, "edge", "registry-"+nodeA)
}

func awaitReadyPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := system.Await(limited(t), sys, &corev1.PodList{}, client.ObjectKey{Namespace: namespace, Name: name},
		func(p *corev1.Pod) bool { return p != nil && isReady(p) })
	if err != nil {
		dump(t)
		t.Fatalf("pod %s/%s does not run: %v", namespace, name, err)
	}
	return pod
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := sys.Kubectl(limited(t), args...); err != nil {
		dump(t)
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
