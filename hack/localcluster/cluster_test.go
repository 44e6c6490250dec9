/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/hack/localcluster/internal/cluster"
)

// programs is the directory of hack/build-control-plane.sh's results.
const programs = "../../.cache/bin"

// world is a running cluster of two nodes with the small driver.
type world struct {
	*testing.T
	launcher string
	layout   cluster.Layout
	client   *kubernetes.Clientset
	driver   *driver
	trap     *trap
}

// newWorld starts a cluster with the real launcher, built for this test.
func newWorld(t *testing.T) *world {
	t.Helper()
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "csi-attacher", "csi-provisioner", "csi-resizer",
	} {
		if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
			t.Skipf("LEFT OUT (needs %s, which hack/build-control-plane.sh builds)", name)
		}
	}
	// Not t.TempDir: its name is too long for sockets, and its deletion would follow mounts.
	dir, err := os.MkdirTemp("", "lc")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, launcher: filepath.Join(dir, "localcluster"), driver: newDriver()}
	if w.layout, err = cluster.NewLayout(filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("go", "build", "-o", w.launcher, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the launcher: %v\n%s", err, output)
	}
	t.Cleanup(func() {
		w.run("down", "--purge")
		if err := os.RemoveAll(dir); err != nil { // contains only the launcher now
			t.Error(err)
		}
	})
	w.trap = poison(t)
	controller := filepath.Join(dir, "controller.sock")
	w.driver.serveController(t, controller)
	w.run("up", "--nodes", "node-a,node-b", "--bin", programs,
		"--controller-socket", driverName+"="+controller, "--attacher-socket", controller,
		"--apply", "../../config/namespace/namespace.yaml")
	if w.client, err = cluster.Client(w.layout.AdminKubeconfig()); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a command of the launcher.
func (w *world) run(command string, args ...string) string {
	w.Helper()
	output, err := exec.Command(w.launcher, append([]string{command, "--dir", w.layout.Root}, args...)...).CombinedOutput()
	if err != nil {
		w.Errorf("localcluster %s %v: %v\n%s", command, args, err, output)
	}
	return string(output)
}

func (w *world) showLogs() {
	for _, name := range []string{
		"node-parts", "csi-attacher", "csi-provisioner-" + driverName, "csi-resizer-" + driverName,
	} {
		data, err := os.ReadFile(w.layout.Log(name))
		w.Logf("log of %s (%v):\n%s", name, err, data)
	}
}

// eventually waits until the condition holds in the API.
func (w *world) eventually(what string, holds func(context.Context) (bool, error)) {
	w.Helper()
	if err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, 60*time.Second, true, holds); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

func TestTheLifeOfALocalCluster(t *testing.T) {
	w := newWorld(t)
	t.Run("its nodes are Ready and send heartbeats", w.sub((*world).nodesAreReady))
	t.Run("an agent's token carries its node's name", w.sub((*world).agentTokensCarryTheNode))
	registered := w.driver.serveNode(t, "node-a", w.layout.KubeletDir("node-a"))
	w.driver.serveNode(t, "node-b", w.layout.KubeletDir("node-b"))
	t.Run("a driver that registers is listed with its topology", w.sub((*world).driversAreListed))
	t.Run("a volume is provisioned, attached, grown, detached and deleted", w.sub((*world).volumeLives))
	t.Run("a block volume is grown without the node", w.sub((*world).blockVolumeGrows))
	registered.Stop()
	t.Run("a driver whose socket vanishes is not listed any more", w.sub((*world).driverIsUnlisted))
	t.Run("the audit log has every request with its user", w.sub((*world).auditLogNamesUsers))
	t.Run("a part can be stopped and started again", w.sub((*world).apiServerComesBack))
	t.Run("a silent node sends no heartbeat until it wakes", w.sub((*world).nodeFallsSilent))
	t.Run("a guest program runs next to it", w.sub((*world).guestRuns))
	t.Run("no process is left behind", w.sub((*world).nothingIsLeft))
	t.Run("nobody looked for the cluster of the launcher's caller", w.trap.check)
}

// sub returns the subtest of a step.
func (w *world) sub(step func(*world)) func(*testing.T) {
	return func(t *testing.T) {
		inner := *w
		inner.T = t
		defer func() {
			if t.Failed() {
				inner.showLogs()
			}
		}()
		step(&inner)
	}
}

func (w *world) nodesAreReady() {
	for _, name := range []string{"node-a", "node-b"} {
		node, err := w.client.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if node.Labels[corev1.LabelHostname] != name || node.Status.NodeInfo.BootID == "" ||
			node.Status.NodeInfo.KubeletVersion != "v1.37.1" {
			w.Errorf("%s: labels %v, node info %+v", name, node.Labels, node.Status.NodeInfo)
		}
		w.eventually("lease of "+name, func(ctx context.Context) (bool, error) {
			lease, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil && lease.Spec.RenewTime != nil && len(lease.OwnerReferences) == 1, err
		})
	}
}

func (w *world) agentTokensCarryTheNode() {
	for _, node := range []string{"node-a", "node-b"} {
		client, err := cluster.Client(w.layout.AgentKubeconfig(node))
		if err != nil {
			w.Fatal(err)
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().
			Create(w.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			w.Fatal(err)
		}
		who := review.Status.UserInfo
		if who.Username != "system:serviceaccount:hawser-system:hawser-agent" {
			w.Errorf("the agent of %s is %s", node, who.Username)
		}
		if got := who.Extra["authentication.kubernetes.io/node-name"]; len(got) != 1 || got[0] != node {
			w.Errorf("the token of the agent on %s names the node %v", node, got)
		}
	}
}

func (w *world) driversAreListed() {
	for _, name := range []string{"node-a", "node-b"} {
		want := storagev1.CSINodeDriver{
			Name: driverName, NodeID: "id-of-" + name, TopologyKeys: []string{topologyKey},
			Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(7))},
		}
		w.eventually("CSINode of "+name, func(ctx context.Context) (bool, error) {
			node, err := w.client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
			return err == nil && len(node.Spec.Drivers) == 1 && asJSON(w, node.Spec.Drivers[0]) == asJSON(w, want), err
		})
		node, err := w.client.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if node.Labels[topologyKey] != name {
			w.Errorf("%s has no topology label: %v", name, node.Labels)
		}
		if outcome := <-w.driver.outcomes; !outcome.GetPluginRegistered() {
			w.Errorf("the registrar reports the driver as not registered: %s", outcome.GetError())
		}
	}
}

func asJSON(t testing.TB, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (w *world) driverIsUnlisted() {
	w.eventually("driver off the list", func(ctx context.Context) (bool, error) {
		node, err := w.client.StorageV1().CSINodes().Get(ctx, "node-a", metav1.GetOptions{})
		return err == nil && len(node.Spec.Drivers) == 0, err
	})
	other, err := w.client.StorageV1().CSINodes().Get(w.Context(), "node-b", metav1.GetOptions{})
	if err != nil || len(other.Spec.Drivers) != 1 {
		w.Errorf("the other node lost its driver: %v %v", other.Spec.Drivers, err)
	}
}

func (w *world) auditLogNamesUsers() {
	data, err := os.ReadFile(w.layout.AuditLog())
	if err != nil {
		w.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range bytes.Lines(data) {
		var event struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        struct{ Resource, Name string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			w.Fatalf("a torn line: %v", err)
		}
		seen[event.User.Username+" "+event.Verb+" "+event.ObjectRef.Resource] = true
	}
	for _, want := range []string{
		"system:node:node-a update csinodes",
		"system:serviceaccount:hawser-system:csi-attacher patch volumeattachments",
		"system:serviceaccount:hawser-system:hawser-agent create selfsubjectreviews",
		"system:serviceaccount:hawser-system:csi-provisioner create persistentvolumes",
		"system:serviceaccount:hawser-system:csi-resizer patch persistentvolumes",
	} {
		if !seen[want] {
			w.Errorf("the audit log lacks %q", want)
		}
	}
}

func (w *world) apiServerComesBack() {
	w.run("stop", "kube-apiserver")
	if _, err := w.client.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{}); err == nil {
		w.Error("the API server still answers")
	}
	w.run("start", "kube-apiserver")
	if _, err := w.client.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{}); err != nil {
		w.Errorf("the API server does not answer: %v", err)
	}
	if status := w.run("status"); strings.Contains(status, "stopped") {
		w.Errorf("not everything runs:\n%s", status)
	}
}

// nodeFallsSilent sets the node's Ready condition to Unknown, as the node lifecycle controller does after a
// while. A node with heartbeats corrects that at once, a silent one only when it wakes.
func (w *world) nodeFallsSilent() {
	ready := func(ctx context.Context) (bool, error) {
		node, err := w.client.CoreV1().Nodes().Get(ctx, "node-b", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), nil
	}
	doubt := func() {
		patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`)
		_, err := w.client.CoreV1().Nodes().
			Patch(w.Context(), "node-b", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			w.Fatal(err)
		}
	}
	doubt()
	w.eventually("a doubted node reports Ready", ready)

	w.run("silence", "node-b")
	w.eventually("the silence is noticed", func(context.Context) (bool, error) {
		log, err := os.ReadFile(w.layout.Log("node-parts"))
		return bytes.Contains(log, []byte("the node falls silent")), err
	})
	doubt()
	// The answers above took milliseconds.
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, time.Second, true, ready)
	if err == nil {
		w.Error("a silent node reported Ready")
	}
	w.run("wake", "node-b")
	w.eventually("a node that woke reports Ready", ready)
}

func (w *world) guestRuns() {
	w.run("run", "--name", "guest", "--", "tail", "-f", w.layout.AdminKubeconfig())
	running := func() bool {
		return slices.ContainsFunc(w.processes(),
			func(p string) bool { return strings.HasPrefix(p, "tail -f") || strings.Contains(p, "/tail -f") })
	}
	w.eventually("the guest runs", func(context.Context) (bool, error) { return running(), nil })
	w.run("stop", "guest")
	if running() {
		w.Error("the guest still runs")
	}
	w.run("start", "guest")
	w.eventually("the guest runs again", func(context.Context) (bool, error) { return running(), nil })
}

func (w *world) nothingIsLeft() {
	if left := w.processes(); len(left) < 11 { // four, three sidecars with a supervisor each, the guest
		w.Fatalf("processes are not found by their arguments: %v", left)
	}
	w.run("down")
	if left := w.processes(); len(left) != 0 {
		w.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(w.layout.AdminKubeconfig()); err != nil {
		w.Errorf("down deleted files without --purge: %v", err)
	}
	w.run("down", "--purge")
	if _, err := os.Stat(w.layout.Root); !os.IsNotExist(err) {
		w.Errorf("the directory is still there: %v", err)
	}
}

// processes lists the processes with the cluster's directory in their arguments.
func (w *world) processes() []string {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		w.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte(w.layout.Root)) {
			found = append(found, string(bytes.ReplaceAll(data, []byte{0}, []byte{' '})))
		}
	}
	return found
}
