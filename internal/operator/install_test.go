/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/record"
)

var (
	deployment  = appsv1.SchemeGroupVersion.WithKind("Deployment")
	daemonSet   = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	clusterRole = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
	binding     = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "ValidatingAdmissionPolicyBinding"}
	event = schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}

	clusterRoleBinding = clusterRole.GroupVersion().WithKind("ClusterRoleBinding")

	serviceAccount = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	secret         = corev1.SchemeGroupVersion.WithKind("Secret")
)

// scraper is the name of the account that reads the metrics, and of the Secret with its token.
const scraper = "hawser-metrics-scraper"

// deadline is short, so that a pod that does not become ready exceeds it.
const deadline = 3 * time.Second

// released are the images of the manifests, so that the result can be compared with these.
var released = volumesv1alpha1.Images{Manager: "hawser/manager:dev", Agent: "hawser/agent:dev"}

// TestTheOperatorOnARealAPIServer runs the operator under its own account with its own roles. The test plays the
// controllers of Deployments and DaemonSets.
func TestTheOperatorOnARealAPIServer(t *testing.T) {
	s := newServer(t)
	s.kubectl(t, "apply", "-k", "default")
	s.kubectl(t, "-n", namespace, "delete", "resourcequota", "hawser-critical-pods") // a namespace of OLM has none
	s.earlierDriver(t)
	versions := record.Start(t, s.admin, &volumesv1alpha1.VolumeManagerList{})
	s.operate = func() func() {
		return s.run(t, operator.Options{Images: released, Deadline: deadline, Recount: time.Millisecond,
			FenceRecheck: 100 * time.Millisecond})
	}
	stop := s.operate()
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"at its first start it installs what config/standalone contains", s.testFirstStart},
		{"conditions follow the workloads", s.testConditions},
		{"what another client changes is put back and said", s.testDrift},
		{"what admission changes of an object is said once and left so", s.testAdmission},
		{"the CSIDriver keeps an administrator's profile and is created again where it cannot change", s.testCSIDriver},
		{"new images are rolled out", s.testImages},
		{"a field without effect is named, and changes nothing", s.testFieldWithoutEffect},
		{"Replace has a right that Coexist has not", s.testModes},
		{"what a later release left is named, if it cannot be deleted", s.testLaterRelease},
		{"a node selector is not narrowed while volumes are in use", s.testNarrowing},
		{"a pod that fails is named with its node", s.testFailingPod},
		{"what refuses the pods of the agents is quoted", s.testPodsRefused},
		{"a rollout that a dead node holds up names pod and node", s.testDeadNode},
		{"what the API server refuses is said, and the workload stays in view", s.testRefused},
		{"monitors come with their kinds", s.testMonitors},
		{"fence sources that cannot be used are named, and the others reach the manager", s.testFenceSources},
		{"what is needed to release volumes is not deleted while they are in use", s.testGuarded},
		{"it starts and mends drift while the kind of node states is missing", func(t *testing.T) {
			stop()
			s.testMissingKind(t)
		}},
		{"what a VolumeManager may leave out goes", s.testLeftOut},
		{"labels of Nodes go with their option", s.testNodeLabels},
		{"the right to remove a taint stays as long as a Node carries it", s.testTaint},
		{"a VolumeManager that is deleted with Drain releases everything and leaves no trace", s.testDrain},
		{"every right of its roles was needed", s.testRights},
		{"a new VolumeManager is installed", s.testInstalledAgain},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
	record.Keep(t, "volumemanager", versions())
}

func (s server) testFirstStart(t *testing.T) {
	s.await(t, volumeManager, "", "cluster", "the operator makes it", there)
	rendered := s.kubectl(t, "kustomize", "standalone")
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		want := &unstructured.Unstructured{}
		check(t, yaml.Unmarshal([]byte(document), &want.Object))
		mutating := strings.HasPrefix(want.GetKind(), "MutatingAdmissionPolicy")
		if want.GetKind() == "CustomResourceDefinition" || mutating && !apiserver.MutatingPolicies(t) {
			continue
		}
		have := s.await(t, want.GroupVersionKind(), want.GetNamespace(), want.GetName(), "it is applied", there)
		if have.GetKind() == "Namespace" {
			continue
		}
		if label := have.GetLabels()["app.kubernetes.io/managed-by"]; label != "hawser-operator" {
			t.Errorf("%s %s is managed by %q", have.GetKind(), have.GetName(), label)
		}
	}
	s.awaitCondition(t, "Available", "False", "ManagerNotReady", "manager: 0 of 2 ready; agents: ready on 0 of 0 nodes")
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
	s.awaitCondition(t, "Monitored", "False", "KindsMissing", "")
}

// play writes the status of a workload, as its controller does.
func (s server) play(t *testing.T, kind schema.GroupVersionKind, name, status string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object))
	patch := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,%s}}`, object.GetGeneration(), status)
	check(t, s.admin.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch)))
}

// playManager has so many replicas, of which so many have the present template and are ready.
func (s server) playManager(t *testing.T, replicas, updated, ready int) {
	t.Helper()
	s.play(t, deployment, "hawser-manager", fmt.Sprintf(
		`"replicas":%d,"updatedReplicas":%d,"readyReplicas":%d`, replicas, updated, ready))
}

func (s server) playAgents(t *testing.T, desired, updated, ready int) {
	t.Helper()
	s.play(t, daemonSet, "hawser-agent", fmt.Sprintf(
		`"desiredNumberScheduled":%d,"currentNumberScheduled":%d,"numberMisscheduled":0,"updatedNumberScheduled":%d,`+
			`"numberReady":%d`, desired, desired, updated, ready))
}

// settle plays a rollout that is done.
func (s server) settle(t *testing.T) {
	t.Helper()
	s.playManager(t, 2, 2, 2)
	s.playAgents(t, 5, 5, 5)
	s.awaitCondition(t, "Progressing", "False", "AsExpected", "")
}

// settleManager plays a rollout of the manager that is done, while the node of one agent is not Ready.
func (s server) settleManager(t *testing.T) {
	t.Helper()
	s.playManager(t, 2, 2, 2)
	s.playAgents(t, 5, 5, 4)
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "agents: 4 of 5 ready, awaiting 1 node(s)")
}

func (s server) testConditions(t *testing.T) {
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "agents: the last change is not observed yet")
	s.playManager(t, 2, 2, 2)
	s.playAgents(t, 5, 5, 3)
	s.awaitCondition(t, "Available", "False", "AgentsNotReady", "manager: 2 of 2 ready; agents: ready on 3 of 5 nodes")
	s.playAgents(t, 5, 5, 4)
	s.awaitCondition(t, "Available", "True", "AsExpected", "agents: ready on 4 of 5 nodes")
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "agents: 4 of 5 ready, awaiting 1 node(s)")
	s.settle(t)
	vm := asVolumeManager(t, s.await(t, volumeManager, "", "cluster", "its counts are written",
		func(o *unstructured.Unstructured) bool { return asVolumeManager(t, o).Status.Agents.Ready == 5 }))
	if vm.Status.Version != "v1.2.3" || vm.Status.Namespace != volumesv1alpha1.InstallNamespace ||
		*vm.Status.Manager != (volumesv1alpha1.WorkloadStatus{Desired: 2, Updated: 2, Ready: 2}) {
		t.Errorf("status: %+v", vm.Status)
	}
}

func (s server) testDrift(t *testing.T) {
	lost := s.await(t, binding, "", "hawser-hold", "it is there", there)
	check(t, s.admin.Delete(t.Context(), lost.DeepCopy()))
	s.await(t, binding, "", "hawser-hold", "the operator makes the binding again",
		func(o *unstructured.Unstructured) bool {
			return o.GetUID() != lost.GetUID()
		})
	s.awaitEvent(t, "DriftMended", "ValidatingAdmissionPolicyBinding hawser-hold (deleted)")

	s.kubectl(t, "-n", namespace, "scale", "deployment", "hawser-manager", "--replicas=7")
	s.await(t, deployment, namespace, "hawser-manager", "the replicas are put back",
		func(o *unstructured.Unstructured) bool {
			replicas, _, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
			return err == nil && replicas == 2
		})
	s.awaitEvent(t, "DriftMended", "Deployment hawser-system/hawser-manager (.spec.replicas)")

	s.kubectl(t, "label", "clusterrole", "hawser-manager", "app.kubernetes.io/managed-by-")
	s.await(t, clusterRole, "", "hawser-manager", "the label is put back", func(o *unstructured.Unstructured) bool {
		return o.GetLabels()["app.kubernetes.io/managed-by"] == "hawser-operator"
	})
	s.awaitEvent(t, "DriftMended", "ClusterRole hawser-manager (.metadata.labels")
	s.settle(t)
}

// awaitEvent waits until an event of the VolumeManager has the reason and the text.
func (s server) awaitEvent(t *testing.T, reason, text string) {
	t.Helper()
	s.awaitAny(t, event, "default", "an event "+reason+" contains "+text, func(o *unstructured.Unstructured) bool {
		note, _, err := unstructured.NestedString(o.Object, "note")
		return err == nil && o.Object["reason"] == reason && strings.Contains(note, text)
	})
}

func (s server) testImages(t *testing.T) {
	s.change(t, `{"images":{"agent":"example.com/agent:v2"}}`)
	s.await(t, daemonSet, namespace, "hawser-agent", "it has the new image", func(o *unstructured.Unstructured) bool {
		return strings.Contains(fmt.Sprint(o.Object["spec"]), "image:example.com/agent:v2")
	})
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "agents: the last change is not observed yet")
	s.playAgents(t, 5, 2, 4)
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "agents: 2 of 5 updated, awaiting 3 node(s)")
	s.settle(t)
	s.change(t, `{"images":null}`)
	s.await(t, daemonSet, namespace, "hawser-agent", "it has the image of the release",
		func(o *unstructured.Unstructured) bool {
			return strings.Contains(fmt.Sprint(o.Object["spec"]), "image:hawser/agent:dev")
		})
	s.settle(t)
}

// testFieldWithoutEffect has a spec in Git that still sets the field of an earlier release.
func (s server) testFieldWithoutEffect(t *testing.T) {
	before := s.await(t, deployment, namespace, "hawser-manager", "it is there", there)
	s.change(t, `{"verification":{"period":"1m","endpoints":[{"driver":"a.example","socket":"/run/a/csi.sock"}]}}`)
	s.awaitEvent(t, "FieldWithoutEffect", "spec.verification")
	after := s.await(t, deployment, namespace, "hawser-manager", "it is there", there)
	if after.GetGeneration() != before.GetGeneration() {
		t.Errorf("Deployment hawser-manager with spec.verification: generation %d, want %d as without", after.GetGeneration(),
			before.GetGeneration())
	}
	s.change(t, `{"verification":null}`)
}

func (s server) args(t *testing.T, kind schema.GroupVersionKind, name, what string, holds func([]string) bool) {
	t.Helper()
	s.await(t, kind, namespace, name, what, func(o *unstructured.Unstructured) bool {
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		check(t, err)
		args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		check(t, err)
		return holds(args)
	})
}

func (s server) testModes(t *testing.T) {
	inReplace := func(args []string) bool { return slices.Contains(args, "--attach-mode=Replace") }
	s.change(t, `{"attachMode":"Replace"}`)
	s.await(t, clusterRole, "", "hawser-replace", "the role of Replace comes", there)
	s.args(t, deployment, "hawser-manager", "it runs in Replace", inReplace)
	s.settle(t)

	s.change(t, `{"attachMode":"Coexist"}`)
	s.args(t, deployment, "hawser-manager", "it runs in Coexist", func(args []string) bool { return !inReplace(args) })
	s.playManager(t, 3, 2, 2)
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "manager: 1 old replica(s) still run")
	// The manager that still runs in Replace keeps its right.
	s.await(t, clusterRole, "", "hawser-replace", "the role stays while an old manager runs", there)
	s.settleManager(t)
	s.awaitGone(t, clusterRole, "", "hawser-replace", "the role of Replace goes, whatever the agents are about")
	s.awaitEvent(t, "Pruned", "ClusterRole hawser-replace")
	s.settle(t)
}

// testLaterRelease leaves two objects of a release that was taken back. The operator has no right to delete the one
// whose name it does not know.
func (s server) testLaterRelease(t *testing.T) {
	for _, name := range []string{"hawser-a-later-one", "hawser-forget-gone-nodes"} {
		role := &unstructured.Unstructured{}
		role.SetGroupVersionKind(clusterRole)
		role.SetName(name)
		role.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "hawser-operator"})
		check(t, s.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(role),
			client.FieldOwner("hawser-operator")))
	}
	s.awaitCondition(t, "Degraded", "True", "ApplyFailed", "deleting ClusterRole hawser-a-later-one: ")
	s.awaitCondition(t, "Available", "True", "AsExpected", "")
	s.awaitGone(t, clusterRole, "", "hawser-forget-gone-nodes", "the other object goes all the same")
	s.kubectl(t, "delete", "clusterrole", "hawser-a-later-one")
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
}

func (s server) testNarrowing(t *testing.T) {
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		node := &corev1.Node{}
		node.Name, node.Labels = name, map[string]string{"kubernetes.io/os": "linux", "pool": name}
		check(t, s.admin.Create(t.Context(), node))
		state := &volumesv1alpha1.NodeVolumeState{}
		state.Name = name
		if name != "node-c" {
			state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "kubernetes.io/csi/d^" + name,
				Driver: "d", VolumeHandle: name, AttachmentUID: "1", AttachmentName: "csi-1", State: "Attached"}}
		}
		check(t, s.admin.Create(t.Context(), state))
	}
	selector := func(o *unstructured.Unstructured) string {
		value, _, err := unstructured.NestedString(o.Object, "spec", "template", "spec", "nodeSelector", "pool")
		check(t, err)
		return value
	}
	s.change(t, `{"nodeSelector":{"pool":"node-b"},"logLevel":"Debug"}`)
	s.awaitCondition(t, "Degraded", "True", "PlacementHeldBack", "from 1 node(s) with volumes in use: node-a (1). ")
	s.args(t, daemonSet, "hawser-agent", "other changes are rolled out", func(args []string) bool {
		return slices.Contains(args, "--zap-log-level=debug")
	})
	if got := selector(s.await(t, daemonSet, namespace, "hawser-agent", "it is there", there)); got != "" {
		t.Errorf("the DaemonSet selects %q while volumes are in use on node-a", got)
	}
	state := &volumesv1alpha1.NodeVolumeState{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Name: "node-a"}, state))
	state.Spec.Attachments = nil
	check(t, s.admin.Update(t.Context(), state))
	s.await(t, daemonSet, namespace, "hawser-agent", "it selects less once the volume is released",
		func(o *unstructured.Unstructured) bool { return selector(o) == "node-b" })
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
	s.change(t, `{"nodeSelector":null,"logLevel":"Info"}`)
	s.await(t, daemonSet, namespace, "hawser-agent", "it selects every node again",
		func(o *unstructured.Unstructured) bool { return selector(o) == "" })
	s.settle(t)
}

func (s server) testFailingPod(t *testing.T) {
	node := &corev1.Node{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Name: "node-a"}, node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	check(t, s.admin.Status().Update(t.Context(), node))
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "agent",
		Image: "agent"}}}}
	pod.Namespace, pod.Name = namespace, "hawser-agent-x"
	pod.Labels = map[string]string{"app.kubernetes.io/name": "hawser", "app.kubernetes.io/component": "agent"}
	check(t, s.admin.Create(t.Context(), pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", RestartCount: 4,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2,
			Message: "starting\nagent ended: listen tcp :9843: bind: address already in use\n"}}}}
	check(t, s.admin.Status().Update(t.Context(), pod))
	s.awaitCondition(t, "Degraded", "True", "PodsFailing",
		"1 pod(s) fail: hawser-agent-x on node node-a: CrashLoopBackOff, 4 restart(s), last exit code 2: "+
			"agent ended: listen tcp :9843: bind: address already in use")
	s.awaitEvent(t, "PodsFailing", "hawser-agent-x on node node-a")
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	check(t, s.admin.Status().Update(t.Context(), pod))
	s.awaitCondition(t, "Degraded", "True", "RolloutStuck",
		"1 pod(s) have not become ready within 3s: hawser-agent-x on node node-a")
	check(t, s.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")

	// A pod as the controller of the DaemonSet makes it, which the scheduler binds to no node.
	pending := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.
			NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-b"}}}}}}}}}}
	pending.Namespace, pending.Name, pending.Labels = namespace, "hawser-agent-y", pod.Labels
	check(t, s.admin.Create(t.Context(), pending))
	s.awaitCondition(t, "Degraded", "True", "RolloutStuck",
		"hawser-agent-y, which is not scheduled to node node-b. If a node can run no agent, "+
			"leave it out by spec.nodeAffinity")
	check(t, s.admin.Delete(t.Context(), pending, client.GracePeriodSeconds(0)))
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
}

// testPodsRefused plays the controller of DaemonSets where a quota refuses its pods.
func (s server) testPodsRefused(t *testing.T) {
	set := s.daemonSet(t)
	for i, message := range []string{"an earlier cause", "Error creating: insufficient quota to match these scopes"} {
		refusal := &corev1.Event{Reason: "FailedCreate", Message: message, Type: corev1.EventTypeWarning,
			InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: namespace, Name: set.Name, UID: set.UID},
			LastTimestamp:  metav1.NewTime(time.Now().Add(time.Duration(i) * time.Second))}
		refusal.Namespace, refusal.Name = namespace, fmt.Sprintf("refusal-%d", i)
		check(t, s.admin.Create(t.Context(), refusal))
	}
	s.playAgents(t, 5, 3, 3)
	s.play(t, daemonSet, "hawser-agent", `"currentNumberScheduled":3`)
	s.awaitCondition(t, "Degraded", "True", "RolloutStuck",
		"agents: 2 of 5 nodes have no pod: Error creating: insufficient quota to match these scopes")
	s.settle(t)
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
}

// testDeadNode deletes the pod of an agent on a node without a kubelet, which would end it.
func (s server) testDeadNode(t *testing.T) {
	pod := s.agentPod(t)
	node := &corev1.Node{}
	check(t, s.admin.Get(t.Context(), types.NamespacedName{Name: "node-a"}, node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	check(t, s.admin.Status().Update(t.Context(), node))
	s.playAgents(t, 5, 2, 4)
	check(t, s.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(1)))
	s.awaitCondition(t, "Degraded", "True", "RolloutStuck", "agents: 2 of 5 updated, and for more than 3s 1 pod(s) hold "+
		"up the rest: hawser-agent-x on node node-a, which is not Ready (terminating). Let the node return")
	s.awaitCondition(t, "Progressing", "True", "RollingOut", "agents: 2 of 5 updated, awaiting 3 node(s)")
	check(t, s.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
	s.settle(t)
}

// testRefused asks for a toleration that the API of VolumeManager does not check.
func (s server) testRefused(t *testing.T) {
	s.change(t, `{"tolerations":[{"key":"a","operator":"Sometimes"}],"logLevel":"Error"}`)
	s.awaitCondition(t, "Degraded", "True", "ApplyFailed", "applying DaemonSet hawser-system/hawser-agent: ")
	s.awaitCondition(t, "Available", "True", "AsExpected", "agents: ready on 5 of 5 nodes")
	s.args(t, deployment, "hawser-manager", "the other workload gets its change", func(args []string) bool {
		return slices.Contains(args, "--zap-log-level=error")
	})
	s.change(t, `{"tolerations":null,"logLevel":"Info"}`)
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
	s.settle(t)
}

func (s server) testMonitors(t *testing.T) {
	for _, kind := range []string{"PrometheusRule", "ServiceMonitor", "PodMonitor"} {
		s.define(t, kind)
	}
	rule := schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}
	monitor := schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}
	s.awaitCondition(t, "Monitored", "True", "AsExpected", "")
	s.await(t, monitor, namespace, "hawser-agent", "the monitor comes with its kind", there)
	s.await(t, monitor, namespace, "hawser-operator", "so does that of the operator itself", there)
	s.await(t, rule, namespace, "hawser", "the alerts come with their kind", there)
	s.playAgents(t, 5, 2, 5)
	s.change(t, `{"monitoring":"None"}`)
	s.awaitGone(t, monitor, namespace, "hawser-operator", "the monitor of the operator is not wanted any more")
	s.awaitGone(t, rule, namespace, "hawser", "neither are the alerts")
	s.await(t, monitor, namespace, "hawser-agent", "what is the agents' own stays while an old agent runs", there)
	s.settle(t)
	s.awaitGone(t, monitor, namespace, "hawser-agent", "it goes with the last old agent")
	s.awaitGone(t, serviceAccount, namespace, scraper, "neither is the account")
	s.testToken(t)
}

// testToken plays the controller of tokens in kube-controller-manager, which deletes a token once its account is gone.
func (s server) testToken(t *testing.T) {
	token := &corev1.Secret{}
	token.Namespace, token.Name = namespace, scraper
	check(t, s.admin.Delete(t.Context(), token))
	s.change(t, `{"monitoring":"Managed"}`)
	first := s.await(t, secret, namespace, scraper, "the token comes back with its account", there)
	account := s.await(t, serviceAccount, namespace, scraper, "it is there", there)
	// That controller is late: the token of the earlier account is still there when the operator makes the next account.
	check(t, s.admin.Delete(t.Context(), account.DeepCopy()))
	another := func(earlier *unstructured.Unstructured) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return o.GetUID() != earlier.GetUID() }
	}
	s.await(t, serviceAccount, namespace, scraper, "the account comes back", another(account))
	s.await(t, secret, namespace, scraper, "it has another token", another(first))
	s.change(t, `{"monitoring":"None"}`)
	s.awaitGone(t, serviceAccount, namespace, scraper, "the account is not wanted any more")
	s.settle(t)
}

func (s server) testLeftOut(t *testing.T) {
	policy := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	s.await(t, policy, namespace, "hawser", "it is there", there)
	s.change(t, `{"networkPolicy":"None","detach":{"forgetGoneNodesAfter":"24h"}}`)
	s.await(t, clusterRole, "", "hawser-forget-gone-nodes", "the flag has its role", there)
	s.args(t, deployment, "hawser-manager", "the flag is set", func(args []string) bool {
		return slices.Contains(args, "--forget-gone-nodes-after=24h0m0s")
	})
	s.settle(t)
	s.awaitGone(t, policy, namespace, "hawser", "the policy is not wanted any more")
	s.change(t, `{"detach":null}`)
	s.args(t, deployment, "hawser-manager", "the flag is not set any more", func(args []string) bool {
		return !slices.Contains(args, "--forget-gone-nodes-after=24h0m0s")
	})
	s.settle(t)
	s.awaitGone(t, clusterRole, "", "hawser-forget-gone-nodes", "neither is the role wanted any more")
}

// testNodeLabels has the option of labels set and taken away.
func (s server) testNodeLabels(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{
		volumesv1alpha1.ReadyLabelPrefix + "ns.set": "true", "other": "kept"}}}
	s.change(t, `{"nodeLabels":true}`)
	s.await(t, clusterRole, "", "hawser-node-writes", "the option has its role", there)
	s.args(t, deployment, "hawser-manager", "the flag is set", func(args []string) bool {
		return slices.Contains(args, "--label-nodes=true")
	})
	s.settle(t)
	check(t, s.admin.Create(t.Context(), node))
	s.change(t, `{"nodeLabels":null}`)
	s.args(t, deployment, "hawser-manager", "the flag is not set any more", func(args []string) bool {
		return !slices.Contains(args, "--label-nodes=true")
	})
	s.settleManager(t)
	s.awaitGone(t, clusterRole, "", "hawser-node-writes", "neither is the role wanted any more")
	s.await(t, corev1.SchemeGroupVersion.WithKind("Node"), "", node.Name, "it has lost the labels of sets alone",
		func(o *unstructured.Unstructured) bool {
			_, has := o.GetLabels()[volumesv1alpha1.ReadyLabelPrefix+"ns.set"]
			return !has && o.GetLabels()["other"] == "kept"
		})
	check(t, s.admin.Delete(t.Context(), node))
	s.settle(t)
}

// testTaint has the option of the taint taken away while a Node carries it.
func (s server) testTaint(t *testing.T) {
	role := func(what string) { s.await(t, clusterRole, "", "hawser-node-writes", what, there) }
	flag := func(args []string) bool { return slices.Contains(args, "--manage-out-of-service-taint=true") }
	s.change(t, `{"fencing":{"manageOutOfServiceTaint":true}}`)
	role("the option has its role")
	s.args(t, deployment, "hawser-manager", "the flag is set", flag)
	s.settle(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fenced"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: corev1.TaintNodeOutOfService, Value: volumesv1alpha1.OutOfServiceTaintValue,
			Effect: corev1.TaintEffectNoExecute}}}}
	check(t, s.admin.Create(t.Context(), node))
	s.change(t, `{"fencing":null}`)
	s.args(t, deployment, "hawser-manager", "the flag is not set any more", func(args []string) bool {
		return !flag(args)
	})
	s.settle(t)
	role("the manager has to remove the taint")
	s.kubectl(t, "taint", "node", node.Name, corev1.TaintNodeOutOfService+"-")
	s.awaitGone(t, clusterRole, "", "hawser-node-writes", "no Node carries the taint any more")
	check(t, s.admin.Delete(t.Context(), node))
}

// define installs a kind of the Prometheus operator with no more than its name.
func (s server) define(t *testing.T, kind string) {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	crd := &unstructured.Unstructured{}
	check(t, yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, kind, plural), &crd.Object))
	check(t, s.admin.Create(t.Context(), crd))
}

// testMissingKind overrides the protection while no operator runs that would put it back.
func (s server) testMissingKind(t *testing.T) {
	s.kubectl(t, "delete", "nvs", "--all")
	s.kubectl(t, "label", "crd", "nodevolumestates.volumes.hawser.io", volumesv1alpha1.InUseLabel+"-")
	s.kubectl(t, "delete", "crd", "nodevolumestates.volumes.hawser.io")
	s.operate()
	s.awaitMark(t, volumeManager, "", "cluster", volumesv1alpha1.InUseUnknown)
	lost := s.await(t, binding, "", "hawser-declared", "it is there", there)
	check(t, s.admin.Delete(t.Context(), lost.DeepCopy()))
	s.await(t, binding, "", "hawser-declared", "the binding comes back", func(o *unstructured.Unstructured) bool {
		return o.GetUID() != lost.GetUID()
	})
	// What is not known counts as in use.
	s.change(t, `{"nodeSelector":{"pool":"node-c"}}`)
	s.awaitCondition(t, "Degraded", "True", "PlacementHeldBack", "node-a (unknown)")
	s.change(t, `{"nodeSelector":null}`)
	s.kubectl(t, "apply", "-k", "crd")
	s.awaitCondition(t, "Degraded", "False", "AsExpected", "")
}
