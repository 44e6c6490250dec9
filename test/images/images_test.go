/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

const (
	// The manager and the agent run on node-a, the operator on node-b: testdata/network.yaml.
	nodeA, nodeB = "node-a", "node-b"
	class        = "loop"
	hawser       = volumesv1alpha1.InstallNamespace
	patience     = 3 * time.Minute

	// enableVariable enables the test, dirVariable names the directory of the cluster.
	enableVariable = "HAWSER_TEST_E2E"
	dirVariable    = "HAWSER_TEST_E2E_DIR"
)

// suite is a cluster without anything of Hawser.
type suite struct {
	*system.System
}

// TestHawserRunsFromItsImages installs as docs/install.md does: operator, manager and agent come up from their images,
// an intent becomes Ready, and pods get their volumes in mode Replace, by a claim and by an inline volume.
func TestHawserRunsFromItsImages(t *testing.T) {
	s := newSuite(t)
	s.importImages(t)
	s.playNetwork(t)
	s.install(t)
	s.awaitAvailable(t)
	s.testIntent(t)
	s.testPod(t, corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.claim(t, "of-a-pod")}})
	s.testPod(t, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver,
		VolumeAttributes: map[string]string{volumesv1alpha1.AttributeClaim: s.claim(t, "inline")}}})
}

func newSuite(t *testing.T) suite {
	t.Helper()
	if os.Getenv(enableVariable) == "" {
		t.Skip("not asked for: make test-e2e runs this test")
	}
	ctrl.SetLogger(logr.Discard())
	// The local cluster has accounts and pods of its own, which are not those of this installation.
	t.Setenv("POD_NAMESPACE", "localcluster")
	ctx := limited(t)
	bin, err := system.BuildRace(ctx)
	check(t, err)
	program, err := system.BuildStatic(ctx, "./test/kubelet/cmd/program")
	check(t, err)
	options := system.Options{Dir: os.Getenv(dirVariable), Bin: bin, Nodes: []string{nodeA, nodeB}, Out: os.Stdout,
		ContainerProgram: program, OnlyUpstream: true}
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

// importImages imports the archives into the containerd of each node.
func (s suite) importImages(t *testing.T) {
	t.Helper()
	cache := filepath.Join(apiserver.Root(), ".cache")
	for _, node := range s.Nodes {
		for _, name := range []string{"operator", "manager", "agent"} {
			out, err := exec.CommandContext(limited(t), "nsenter", "--target", s.machine(t, node), "--mount", "--net",
				filepath.Join(cache, "bin", "ctr"), "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io",
				"images", "import", "--local", "--snapshotter", "native",
				filepath.Join(cache, "images", name+".tar")).CombinedOutput()
			if err != nil {
				t.Fatalf("node %s: importing the image of the %s, which make images writes: %v\n%s", node, name, err, out)
			}
		}
	}
}

// machine is the process ID of a node's first process.
func (s suite) machine(t *testing.T, node string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Dir, "run", system.Machine(node)+".json"))
	check(t, err)
	var record struct {
		PID int `json:"pid"`
	}
	check(t, json.Unmarshal(data, &record))
	return strconv.Itoa(record.PID)
}

// playNetwork applies what stands in for scheduler and pod network.
func (s suite) playNetwork(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	check(t, err)
	server, err := url.Parse(config.Host)
	check(t, err)
	text, err := os.ReadFile(filepath.Join("testdata", "network.yaml"))
	check(t, err)
	file := filepath.Join(t.TempDir(), "network.yaml")
	check(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "API_PORT", server.Port())), 0o600))
	s.kubectl(t, "apply", "-f", file)
	s.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hawser}})
	// No event signals that the API server has begun to apply a policy.
	check(t, wait.PollUntilContextTimeout(limited(t), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: hawser, Name: "probe"},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: system.Image}}}}
			err := s.Client.Create(ctx, pod, client.DryRunAll)
			return err == nil && pod.Spec.NodeName == nodeA && pod.Spec.HostNetwork, nil
		}))
}

// install applies a VolumeManager and the operator. The kubelet directories of the nodes differ here, so only one of
// them gets an agent.
func (s suite) install(t *testing.T) {
	t.Helper()
	config := filepath.Join(apiserver.Root(), "config")
	s.kubectl(t, "apply", "--server-side", "-k", filepath.Join(config, "crd"))
	s.kubectl(t, "wait", "--for=condition=Established", "crd", "--all")
	s.create(t, &volumesv1alpha1.VolumeManager{
		ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName},
		Spec: volumesv1alpha1.VolumeManagerSpec{
			AttachMode:   volumesv1alpha1.AttachReplace,
			NodeSelector: map[string]string{corev1.LabelHostname: nodeA},
			KubeletRoot:  s.KubeletDir(nodeA),
			Manager:      volumesv1alpha1.ManagerWorkload{Replicas: ptr.To[int32](1)},
		},
	})
	s.kubectl(t, "apply", "--server-side", "-k", filepath.Join(config, "operator"))
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
	files, _ := filepath.Glob(filepath.Join(s.Dir, "nodes", "*", "podlogs", hawser+"_*", "*", "*.log"))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		t.Logf("%s:\n%s", file, data[max(0, len(data)-4000):])
	}
	t.Fatal(err)
}

func (s suite) claim(t *testing.T, name string) string {
	t.Helper()
	s.create(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("32Mi")}}}})
	return name
}

// testIntent creates an intent, and finds its volume mounted in the node's own mounts. Then it lets the volume go.
func (s suite) testIntent(t *testing.T) {
	t.Helper()
	s.claim(t, "data")
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-on-node-a"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: nodeA, Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}}},
	}
	s.create(t, intent)
	ready, err := s.AwaitReady(limited(t), intent.Namespace, intent.Name)
	s.explain(t, err)
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%s/mountinfo", s.machine(t, nodeA)))
	check(t, err)
	if !strings.Contains(string(mounts), " "+ready.Status.Path+" ") {
		t.Errorf("node %s has no mount at %s, the path of the intent", nodeA, ready.Status.Path)
	}
	check(t, s.Client.Delete(limited(t), intent))
	s.explain(t, s.AwaitGone(limited(t), intent.Namespace, intent.Name))
}

// testPod runs a pod that writes to its volume and reads it. Nothing but Hawser attaches in this cluster.
func (s suite) testPod(t *testing.T, volume corev1.VolumeSource) {
	t.Helper()
	container := func(name string, args ...string) corev1.Container {
		return corev1.Container{Name: name, Image: system.Image, ImagePullPolicy: corev1.PullNever, Args: args,
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "writer"}, Spec: corev1.PodSpec{
		NodeName: nodeA, HostNetwork: true, AutomountServiceAccountToken: ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		InitContainers: []corev1.Container{container("write", "write", "/data/file", "text"),
			container("read", "read", "/data/file", "text")},
		Containers: []corev1.Container{container("pause", "pause")},
		Volumes:    []corev1.Volume{{Name: "data", VolumeSource: volume}},
	}}
	s.create(t, pod)
	await := func(done func(*corev1.Pod) bool) {
		_, err := system.Await(limited(t), s.System, &corev1.PodList{}, client.ObjectKeyFromObject(pod), done)
		s.explain(t, err)
	}
	await(func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning })
	check(t, s.Client.Delete(limited(t), pod))
	await(func(p *corev1.Pod) bool { return p == nil })
	var attachments storagev1.VolumeAttachmentList
	check(t, s.Client.List(limited(t), &attachments))
	for _, attachment := range attachments.Items {
		s.explain(t, s.AwaitAttachmentGone(limited(t), attachment.Name))
	}
}
