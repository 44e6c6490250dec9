/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

const (
	// The claims, and what uses each of them.
	ofIntent, ofPod, ofInline, ofGoneNode, ofRestarts, ofDeletedNode = "of-an-intent", "of-a-pod", "of-inline",
		"of-a-gone-node", "of-restarts", "of-a-deleted-node"
	// The manager runs on node-a, the operator on node-b (testdata/network.yaml), and agents on node-a and on the node
	// that will be gone.
	nodeA, nodeB, goneNode = "node-a", "node-b", "node-c"
	agentLabel             = "images.test/agent"
	class                  = "loop"
	hawser                 = volumesv1alpha1.InstallNamespace
	patience               = 3 * time.Minute

	// enableVariable enables the test, dirVariable names the directory of the cluster.
	enableVariable = "HAWSER_TEST_E2E"
	dirVariable    = "HAWSER_TEST_E2E_DIR"
)

// suite is a cluster without anything of Hawser.
type suite struct {
	*system.System
}

// TestHawserRunsFromItsImages goes through the whole life of an installation, once by kubectl and once as OLM installs.
// Operator, manager and agent run from their images. In the end everything is as it was before.
func TestHawserRunsFromItsImages(t *testing.T) {
	s := newSuite(t)
	s.importImages(t)
	check(t, s.PlayNetwork(limited(t), true))
	for _, name := range []string{ofIntent, ofPod, ofInline, ofGoneNode, ofRestarts, ofDeletedNode} {
		s.claim(t, name)
	}
	s.awaitDrivers(t)
	s.labelNodes(t)
	before, err := s.inventory(t)
	check(t, err)
	if !t.Run("installed by kubectl, in Replace", func(t *testing.T) { s.testKubectl(t, before) }) {
		return
	}
	t.Run("installed as OLM does, in another namespace", func(t *testing.T) { s.testBundle(t, before) })
}

func newSuite(t *testing.T) suite {
	t.Helper()
	if os.Getenv(enableVariable) == "" {
		t.Skip("not asked for: make test-e2e runs this test")
	}
	ctrl.SetLogger(logr.Discard())
	// The local cluster has accounts and pods of its own, which are not those of this installation.
	t.Setenv("POD_NAMESPACE", "localcluster")
	// A compilation without a cache takes longer than anything that the cluster is waited for.
	bin, err := system.BuildRace(t.Context())
	check(t, err)
	program, err := system.BuildStatic(t.Context(), "./test/kubelet/cmd/program")
	check(t, err)
	ctx := limited(t)
	options := system.Options{Dir: os.Getenv(dirVariable), Bin: bin, Nodes: []string{nodeA, nodeB, goneNode},
		Out: os.Stdout, ContainerProgram: program, OnlyUpstream: true}
	if options.Dir == "" {
		options.Dir = "/tmp/hawser-test-images"
	}
	check(t, system.Open(options).Down(ctx))
	sys, err := system.Up(ctx, options)
	check(t, err)
	t.Cleanup(func() { check(t, sys.Down(context.Background())) })
	s := suite{sys}
	s.create(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
		Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}})
	s.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: system.DriverName})
	return s
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s suite) create(t *testing.T, object client.Object) {
	t.Helper()
	check(t, s.Client.Create(limited(t), object))
}

func (s suite) kubectl(t *testing.T, args ...string) {
	t.Helper()
	_, err := s.Kubectl(limited(t), args...)
	check(t, err)
}

// importImages imports the archives that make images writes.
func (s suite) importImages(t *testing.T) {
	t.Helper()
	for _, node := range s.Nodes {
		check(t, s.ImportImages(limited(t), node, filepath.Join(apiserver.Root(), ".cache", "images")))
	}
}

// machine is the process ID of a node's first process.
func (s suite) machine(t *testing.T, node string) string {
	t.Helper()
	pid, err := s.MachinePID(node)
	check(t, err)
	return pid
}

// labelNodes selects the nodes that get an agent.
func (s suite) labelNodes(t *testing.T) {
	t.Helper()
	s.kubectl(t, "label", "node", nodeA, goneNode, agentLabel+"=true")
	check(t, s.ShareKubeletDir(limited(t), goneNode, nodeA))
}

// initialSpec is what differs here from a cluster.
func (s suite) initialSpec(t *testing.T, mode volumesv1alpha1.AttachMode) string {
	t.Helper()
	spec, err := json.Marshal(volumesv1alpha1.VolumeManagerSpec{
		AttachMode:   mode,
		NodeSelector: map[string]string{agentLabel: "true"},
		KubeletRoot:  s.KubeletDir(nodeA),
		Manager:      volumesv1alpha1.ManagerWorkload{Replicas: ptr.To[int32](1)},
	})
	check(t, err)
	return string(spec)
}

// overlay returns a directory with config/default and an initial spec.
func (s suite) overlay(t *testing.T, spec string) string {
	t.Helper()
	dir := t.TempDir()
	check(t, system.Overlay(dir, spec))
	return dir
}

func inConfig(name string) string { return filepath.Join(apiserver.Root(), "config", name) }

// awaitInstalled waits as docs/install.md does.
func (s suite) awaitInstalled(t *testing.T) {
	t.Helper()
	s.kubectl(t, "wait", "crd/volumemanagers.volumes.hawser.io", "--for=condition=Established", "--timeout=1m")
	s.kubectl(t, "wait", "hvm/cluster", "--for=create", "--timeout=2m")
	s.awaitAvailable(t)
}

func (s suite) awaitAvailable(t *testing.T) {
	t.Helper()
	_, err := system.Await(limited(t), s.System, &volumesv1alpha1.VolumeManagerList{},
		client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName}, func(vm *volumesv1alpha1.VolumeManager) bool {
			return vm != nil && meta.IsStatusConditionTrue(vm.Status.Conditions, volumesv1alpha1.ConditionAvailable) &&
				meta.IsStatusConditionFalse(vm.Status.Conditions, volumesv1alpha1.ConditionDegraded) &&
				meta.IsStatusConditionFalse(vm.Status.Conditions, volumesv1alpha1.ConditionProgressing)
		})
	s.explain(t, err)
}

// explain fails the test with the state of the cluster.
func (s suite) explain(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, args := range [][]string{
		{"get", "nodes,pods,pvc,volumeattachments,vai,nvs,hvm", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"get", "hvm", "-o", "yaml"},
	} {
		out, failed := s.Kubectl(limited(t), args...)
		t.Logf("kubectl %v (%v):\n%s", args, failed, out)
	}
	// No client reaches a kubelet here, so the logs come from the nodes' disks.
	files, _ := filepath.Glob(filepath.Join(s.Dir, "nodes", "*", "podlogs", "*_hawser-*", "*", "*.log"))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		t.Logf("%s:\n%s", file, data[max(0, len(data)-4000):])
	}
	t.Fatal(err)
}

func (s suite) claim(t *testing.T, name string) {
	t.Helper()
	s.create(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("32Mi")}}}})
	_, err := s.AwaitClaim(limited(t), "default", name, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim != nil && claim.Status.Phase == corev1.ClaimBound
	})
	s.explain(t, err)
}

// publishIntent creates an intent, and finds its volume mounted in the node's own mounts.
func (s suite) publishIntent(t *testing.T) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	intent := newIntent(ofIntent, nodeA)
	s.create(t, intent)
	ready, err := s.AwaitReady(limited(t), intent.Namespace, intent.Name)
	s.explain(t, err)
	if !slices.Contains(s.mountPoints(t, nodeA), ready.Status.Path) {
		t.Errorf("node %s has no mount at %s, the path of the intent", nodeA, ready.Status.Path)
	}
	return intent
}

// newIntent is named like its claim.
func newIntent(claim, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: node, Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}}},
	}
}

// runPod runs a pod that writes to its volume and reads it, and then stays. Nothing but Hawser attaches here.
func (s suite) runPod(t *testing.T, name string, volume corev1.VolumeSource) *corev1.Pod {
	t.Helper()
	container := func(name string, args ...string) corev1.Container {
		return corev1.Container{Name: name, Image: system.Image, ImagePullPolicy: corev1.PullNever, Args: args,
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		NodeName: nodeA, HostNetwork: true, AutomountServiceAccountToken: ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		InitContainers: []corev1.Container{container("write", "write", "/data/file", "text"),
			container("read", "read", "/data/file", "text")},
		Containers: []corev1.Container{container("pause", "pause")},
		Volumes:    []corev1.Volume{{Name: "data", VolumeSource: volume}},
	}}
	s.create(t, pod)
	return s.awaitPod(t, pod, isRunning)
}

func (s suite) awaitPod(t *testing.T, pod *corev1.Pod, done func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	found, err := system.Await(limited(t), s.System, &corev1.PodList{}, client.ObjectKeyFromObject(pod), done)
	s.explain(t, err)
	return found
}
