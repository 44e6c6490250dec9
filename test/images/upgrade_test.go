/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

const (
	// fromVariable names the directory of the earlier release, with its source and its images. It enables the test.
	fromVariable = "HAWSER_TEST_UPGRADE"
	// brokenImage is an image that every node has and that is no agent: it ends at once with an error.
	brokenImage = system.Image
	// reportGrace is how long an agent that runs again may take to report, on a machine that is busy.
	reportGrace = 5 * time.Second
)

// release is one version of Hawser. hack/upgrade.sh makes two.
type release struct {
	// tag of its images, version of its programs.
	tag, version string
	// config and images are the directories of its manifests and its archives.
	config, images string
}

// base is the directory with the operator and its namespace. Before there was config/standalone, config/default had its
// content.
func (r release) base() string {
	if _, err := os.Stat(filepath.Join(r.config, "standalone")); err != nil {
		return filepath.Join(r.config, "operator")
	}
	return filepath.Join(r.config, "default")
}

// hasPlugin reports whether its agents serve inline volumes.
func (r release) hasPlugin() bool {
	_, err := os.Stat(filepath.Join(r.config, "csidriver"))
	return err == nil
}

// upgrade is a cluster whose nodes have the images of two releases.
type upgrade struct {
	suite
	from, to release
	load     *load
	// earlier are the objects that the operator of the earlier release applied.
	earlier []string
}

// TestUpgradeAndRollbackUnderLoad installs an earlier release, uses volumes, upgrades to the present one and goes back.
// In between it stays with a manager and agents of different releases, and with agents that do not become ready.
// Nothing may happen to the volumes meanwhile.
func TestUpgradeAndRollbackUnderLoad(t *testing.T) {
	u := newUpgrade(t)
	u.step(t, "the earlier release is installed", func(t *testing.T) {
		u.installRelease(t)
		u.load = u.putLoad(t, u.from.hasPlugin())
	})
	before, recorder := u.load.state(t), u.record(t, brokenImage)
	want := loadIntents + u.load.inlinePods()
	if got := recorder.watches(volumesv1alpha1.ConditionPublished); got != want {
		t.Fatalf("%d intents are Published, want %d", got, want)
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a new manager works with the old agents", u.newManager},
		{"the new agents take over", u.newAgents},
		{"agents that do not become ready stop the rollout", u.brokenAgents},
		{"the old manager works with the new agents", u.oldManager},
		{"the old agents take over again", u.oldAgents},
	} {
		u.step(t, step.name, func(t *testing.T) {
			step.run(t)
			u.load.unchanged(t, before)
		})
	}
	recorder.report(t, reportGrace)
}

// step logs how long it took. The next ones need it.
func (u *upgrade) step(t *testing.T, name string, run func(*testing.T)) {
	t.Helper()
	begin := time.Now()
	if !t.Run(name, run) {
		t.FailNow()
	}
	t.Logf("%s: %s", name, time.Since(begin).Round(time.Second))
}

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	earlier := os.Getenv(fromVariable)
	if earlier == "" {
		t.Skip("not asked for: make test-upgrade runs this test")
	}
	top := apiserver.Root()
	u := &upgrade{
		suite: newSuite(t),
		from: release{tag: "from", version: "v0.0.0-from", config: filepath.Join(earlier, "config"),
			images: filepath.Join(earlier, ".cache", "images")},
		to: release{tag: "to", version: "v0.0.0-to", config: filepath.Join(top, "config"),
			images: filepath.Join(top, ".cache", "upgrade", "images")},
	}
	for _, node := range u.Nodes {
		for _, release := range []release{u.from, u.to} {
			check(t, u.ImportImages(limited(t), node, release.images))
		}
	}
	for _, node := range []string{nodeB, goneNode} {
		check(t, u.ShareKubeletDir(limited(t), node, nodeA))
	}
	check(t, u.PlayNetwork(limited(t), true))
	u.kubectl(t, "apply", "-f", filepath.Join("testdata", "recreate.yaml"))
	u.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: growing}, Provisioner: system.DriverName,
		Parameters: map[string]string{"csi.storage.k8s.io/fstype": "xfs"}, AllowVolumeExpansion: ptr.To(true)})
	return u
}

// installRelease installs the earlier release.
func (u *upgrade) installRelease(t *testing.T) {
	t.Helper()
	u.applyKinds(t, u.from)
	u.create(t, &volumesv1alpha1.VolumeManager{
		ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName},
		Spec: volumesv1alpha1.VolumeManagerSpec{
			AttachMode:  volumesv1alpha1.AttachReplace,
			KubeletRoot: u.KubeletDir(nodeA),
			Manager:     volumesv1alpha1.ManagerWorkload{Replicas: ptr.To[int32](1)},
			// The earlier release compares with the driver; the later one accepts the fields, and warns.
			Verification: &volumesv1alpha1.Verification{Period: "1m",
				Endpoints: []volumesv1alpha1.VerificationEndpoint{{Driver: system.DriverName, Socket: u.ControllerSocket()}}},
		},
	})
	u.applyOperator(t, u.from)
	u.awaitRelease(t, u.from, u.from)
	u.earlier = u.applied(t)
}

func (u *upgrade) applyKinds(t *testing.T, r release) {
	t.Helper()
	u.kubectl(t, "apply", "--server-side", "-k", filepath.Join(r.config, "crd"))
	u.kubectl(t, "wait", "--for=condition=Established", "crd", "--all")
}

// applyOperator applies a release as its documentation has it, with its images under their tag.
func (u *upgrade) applyOperator(t *testing.T, r release) {
	t.Helper()
	text, err := u.Kubectl(limited(t), "kustomize", r.base())
	check(t, err)
	for _, program := range []string{"operator", "manager", "agent"} {
		image := "hawser/" + program + ":"
		text = strings.ReplaceAll(text, image+"dev", image+r.tag)
	}
	file := filepath.Join(t.TempDir(), "operator.yaml")
	check(t, os.WriteFile(file, []byte(text), 0o600))
	u.kubectl(t, "apply", "--server-side", "-f", file)
}

// agentImage lets the VolumeManager name the image of the agents; "" is that of the operator's release.
func (u *upgrade) agentImage(t *testing.T, image string) {
	t.Helper()
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName}}
	value := "null"
	if image != "" {
		value = fmt.Sprintf("%q", image)
	}
	check(t, u.Client.Patch(limited(t), vm, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"images":{"agent":`+value+`}}}`))))
}

// awaitRelease waits until operator and manager are of one release and the agents of another, and nothing is rolling
// out. The programs themselves report it.
func (u *upgrade) awaitRelease(t *testing.T, manager, agents release) {
	t.Helper()
	u.awaitManager(t, func(vm *volumesv1alpha1.VolumeManager) bool { return isRolledOut(vm, manager.version) })
	for component, r := range map[string]release{"operator": manager, "manager": manager, "agent": agents} {
		for _, pod := range u.pods(t, component) {
			want := "hawser/" + component + ":" + r.tag
			if got := pod.Spec.Containers[0].Image; got != want {
				t.Errorf("pod %s runs %s, want %s", pod.Name, got, want)
			}
		}
	}
	for _, node := range u.Nodes {
		_, err := u.AwaitNode(limited(t), node, func(state *volumesv1alpha1.NodeVolumeState) bool {
			return state != nil && state.Status.AgentVersion == agents.version
		})
		u.explain(t, err)
	}
}

// isRolledOut reports whether an operator of the version has rolled out what the VolumeManager asks for.
func isRolledOut(vm *volumesv1alpha1.VolumeManager, version string) bool {
	conditions := vm.Status.Conditions
	return vm.Status.Version == version && vm.Status.ObservedGeneration == vm.Generation &&
		meta.IsStatusConditionTrue(conditions, volumesv1alpha1.ConditionAvailable) &&
		meta.IsStatusConditionFalse(conditions, volumesv1alpha1.ConditionProgressing) &&
		meta.IsStatusConditionFalse(conditions, volumesv1alpha1.ConditionDegraded)
}

func (s suite) awaitManager(t *testing.T, done func(*volumesv1alpha1.VolumeManager) bool,
) *volumesv1alpha1.VolumeManager {
	t.Helper()
	vm, err := system.Await(limited(t), s.System, &volumesv1alpha1.VolumeManagerList{},
		client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName}, func(vm *volumesv1alpha1.VolumeManager) bool {
			return vm != nil && done(vm)
		})
	s.explain(t, err)
	return vm
}

// pods of one component that are not being deleted.
func (u *upgrade) pods(t *testing.T, component string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	check(t, u.Client.List(limited(t), &list, client.InNamespace(hawser),
		client.MatchingLabels{"app.kubernetes.io/component": component}))
	var found []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no pod has the label of component %s", component)
	}
	return found
}

// newManager upgrades all but the agents, which the VolumeManager holds at their image.
func (u *upgrade) newManager(t *testing.T) {
	u.agentImage(t, "hawser/agent:"+u.from.tag)
	u.applyKinds(t, u.to)
	u.applyOperator(t, u.to)
	u.awaitRelease(t, u.to, u.from)
	u.explain(t, u.AwaitEvent(limited(t), "default", volumesv1alpha1.VolumeManagerName, "FieldWithoutEffect"))
	u.exercise(t, "new-old")
}

func (u *upgrade) newAgents(t *testing.T) {
	u.agentImage(t, "")
	u.awaitRelease(t, u.to, u.to)
	u.exercise(t, "new-new")
}

// brokenAgents rolls out agents that end at once. One node gets such an agent; the other keeps the one before. When the
// image is taken back, the node has its agent again.
func (u *upgrade) brokenAgents(t *testing.T) {
	earlier := map[types.UID]bool{}
	for _, pod := range u.pods(t, "agent") {
		earlier[pod.UID] = true
	}
	u.agentImage(t, brokenImage)
	vm := u.awaitManager(t, func(vm *volumesv1alpha1.VolumeManager) bool {
		return vm.Status.ObservedGeneration == vm.Generation &&
			meta.IsStatusConditionTrue(vm.Status.Conditions, volumesv1alpha1.ConditionDegraded)
	})
	var broken, kept []corev1.Pod
	for _, pod := range u.pods(t, "agent") {
		if earlier[pod.UID] {
			kept = append(kept, pod)
		} else {
			broken = append(broken, pod)
		}
	}
	if len(broken) != 1 || len(kept) != len(u.Nodes)-1 {
		t.Fatalf("the rollout has replaced %d agent(s) and kept %d, want 1 and %d", len(broken), len(kept), len(u.Nodes)-1)
	}
	degraded := meta.FindStatusCondition(vm.Status.Conditions, volumesv1alpha1.ConditionDegraded)
	want := broken[0].Name + " on node " + broken[0].Spec.NodeName
	if degraded.Reason != volumesv1alpha1.ReasonPodsFailing || !strings.Contains(degraded.Message, want) {
		t.Errorf("Degraded is %s: %s; want %s and the failing pod, %s", degraded.Reason, degraded.Message,
			volumesv1alpha1.ReasonPodsFailing, want)
	}
	progressing := meta.FindStatusCondition(vm.Status.Conditions, volumesv1alpha1.ConditionProgressing)
	if progressing.Status != metav1.ConditionTrue || !strings.Contains(progressing.Message, "agents: ") {
		t.Errorf("Progressing is %s: %s; want True, awaiting the agents", progressing.Status, progressing.Message)
	}
	t.Logf("Degraded: %s: %s; Progressing: %s", degraded.Reason, degraded.Message, progressing.Message)
	u.agentImage(t, "")
	u.awaitRelease(t, u.to, u.to)
	for _, was := range kept {
		if !slices.ContainsFunc(u.pods(t, "agent"), func(pod corev1.Pod) bool { return pod.UID == was.UID }) {
			t.Errorf("the rollout has replaced %s on node %s too, want it to stop at %s", was.Name, was.Spec.NodeName, want)
		}
	}
}

// oldManager goes back with all but the agents.
func (u *upgrade) oldManager(t *testing.T) {
	u.agentImage(t, "hawser/agent:"+u.to.tag)
	u.applyOperator(t, u.from)
	u.deleteLater(t)
	u.awaitRelease(t, u.from, u.to)
	u.exercise(t, "old-new")
}

func (u *upgrade) oldAgents(t *testing.T) {
	u.agentImage(t, "")
	u.awaitRelease(t, u.from, u.from)
	u.exercise(t, "old-old")
	differ(t, "objects that the operator applied", u.earlier, u.applied(t))
}

// applied are the objects that the operator has applied, beside the namespace.
func (u *upgrade) applied(t *testing.T) []string {
	t.Helper()
	out, err := u.Kubectl(limited(t), "get", "--all-namespaces", "-l", "app.kubernetes.io/managed-by=hawser-operator",
		"-o", `jsonpath={range .items[*]}{.kind}{" "}{.metadata.name}{" "}{.metadata.namespace}{"\n"}{end}`,
		"clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,services,deployments,daemonsets,"+
			"poddisruptionbudgets,networkpolicies,flowschemas,prioritylevelconfigurations,"+
			"validatingadmissionpolicies,validatingadmissionpolicybindings,"+
			"mutatingadmissionpolicies,mutatingadmissionpolicybindings")
	check(t, err)
	return strings.Split(strings.TrimSpace(out), "\n")
}

// deleteLater deletes what only the later release applied, as docs/upgrade.md asks for: the operator of the earlier one
// may not know the names.
func (u *upgrade) deleteLater(t *testing.T) {
	t.Helper()
	u.awaitManager(t, func(vm *volumesv1alpha1.VolumeManager) bool { return vm.Status.Version == u.from.version })
	for _, object := range u.applied(t) {
		if slices.Contains(u.earlier, object) {
			continue
		}
		t.Logf("only the later release has %s", object)
		args := []string{"delete", "--ignore-not-found"}
		parts := strings.Fields(object)
		if len(parts) == 3 {
			args = append(args, "--namespace", parts[2])
		}
		u.kubectl(t, append(args, parts[0], parts[1])...)
	}
}
