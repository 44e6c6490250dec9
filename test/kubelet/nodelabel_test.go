/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/intentset"
	"github.com/hawser-io/hawser/test/record"
	"github.com/hawser-io/hawser/test/system"
)

// poolLabel is what the set of this test selects nodes by.
const poolLabel = "example.com/pool"

// TestPodsAreScheduledOnlyWhereASetHasMountedTheirData has a volume that one node can have at a time. The set is not
// ready on its node as long as a pod on the other one has the volume.
func TestPodsAreScheduledOnlyWhereASetHasMountedTheirData(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	writer := v.inline(nodeB, v.claimed(), nil, v.write("weights"))
	runs(t, writer)
	s := v.set(nodeA)
	if _, err := sys.AwaitIntent(limited(t), namespace, s.intent,
		system.HasReason(volumesv1alpha1.ConditionReady, volumesv1alpha1.ReasonVolumeInUse)); err != nil {
		dump(t)
		t.Fatal(err)
	}
	first := s.pod()
	unschedulable(t, first)
	s.gets(first, func() { remove(t, writer) })

	s.loses(first, s.leaves)
	second := s.pod()
	unschedulable(t, second)
	remove(t, first)
	if err := sys.AwaitGone(limited(t), namespace, s.intent); err != nil {
		dump(t)
		t.Fatal(err)
	}
	unschedulable(t, second)
	s.gets(second, s.joins)

	// The set selects the node as before, so the label is removed only because the intent is to be deleted.
	s.loses(second, s.changes)
	remove(t, second)
	s.awaitLabel(true)
	if err := sys.Client.Delete(limited(t), s.object); err != nil {
		t.Fatal(err)
	}
	s.awaitLabel(false)
	v.leavesNothing(sys.Nodes...)
}

// labellingSet is a set for the volume.
type labellingSet struct {
	*volume
	object *volumesv1alpha1.VolumeAttachmentIntentSet
	// node that it selects, and the name of its intent there.
	node, intent string
	// label of the node while the set is ready there.
	label string
}

// set creates a set that selects the node. It has the name of the claim.
func (v *volume) set(node string) *labellingSet {
	v.t.Helper()
	object := &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.claim},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{poolLabel: v.claim}},
			Template: volumesv1alpha1.IntentTemplate{
				Metadata: volumesv1alpha1.TemplateMetadata{Labels: map[string]string{app: v.claim}},
				Spec: volumesv1alpha1.IntentTemplateSpec{Volume: &volumesv1alpha1.TemplateVolumeSource{
					PersistentVolumeClaim: volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: v.claim}}},
			},
		},
	}
	s := &labellingSet{volume: v, object: object, node: node, intent: intentset.IntentName(object.Name, node),
		label: volumesv1alpha1.ReadyLabelPrefix + namespace + "." + object.Name}
	s.joins()
	v.t.Cleanup(s.leaves)
	create(v.t, object)
	v.t.Cleanup(func() {
		if err := client.IgnoreNotFound(sys.Client.Delete(limited(v.t), object)); err != nil {
			v.t.Error(err)
		}
	})
	return s
}

// joins has the set select the node.
func (s *labellingSet) joins() {
	s.t.Helper()
	kubectl(s.t, "label", "node", s.node, poolLabel+"="+s.claim)
}

// leaves has the set select no node. It succeeds if it selects none.
func (s *labellingSet) leaves() {
	s.t.Helper()
	kubectl(s.t, "label", "node", s.node, poolLabel+"-")
}

// changes the template of the set, so that its intents are created again.
func (s *labellingSet) changes() {
	s.t.Helper()
	before := s.object.DeepCopy()
	s.object.Spec.Template.Metadata.Annotations = map[string]string{"example.com/changed": "true"}
	if err := sys.Client.Patch(limited(s.t), s.object, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// pod for the scheduler, with the directory of the set's intents. It may run only where the set is ready, fails unless
// the data is there when it starts, and has a file open as long as it runs, so that its volume stays.
func (s *labellingSet) pod() *corev1.Pod {
	s.t.Helper()
	file := "/data/" + s.intent + "/file"
	s.meanwhile = []string{"hold", file}
	return s.inline("", selecting(s.claim), func(pod *corev1.Pod) {
		receives(pod)
		readOnly(pod)
		pod.Spec.NodeSelector = map[string]string{s.label: "true"}
	}, []string{"read", file, "weights"})
}

// gets checks that the intent becomes Ready, then the label is set, and the scheduler places the waiting pod there.
func (s *labellingSet) gets(pod *corev1.Pod, begin func()) {
	s.t.Helper()
	recorded, began := s.record(), time.Now()
	begin()
	if node := nodeOf(s.t, pod); node != s.node {
		s.t.Errorf("pod %s runs on %s, want %s, where its data is mounted", pod.Name, node, s.node)
	}
	s.t.Logf("the node may have the volume -> pod scheduled and running %.1f s", time.Since(began).Seconds())
	pid := processOf(s.t, pod)
	s.eventually("the file open", func() (bool, error) { return hasOpen(pid, "/file") })
	nodes, intents := recorded()
	inOrder(s.t, firstOf(s.t, "the intent of the set is Ready", intents, system.Ready),
		firstOf(s.t, "the Node has the label", nodes, s.labelled(true)))
}

// loses checks that the label is removed first, then the intent is deleted, and the pod runs on with its data.
func (s *labellingSet) loses(pod *corev1.Pod, begin func()) {
	s.t.Helper()
	recorded, pid := s.record(), processOf(s.t, pod)
	begin()
	s.awaitLabel(false)
	s.namesPods(&volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.intent}}, pod)
	s.awaitScheduler()
	nodes, intents := recorded()
	inOrder(s.t, firstOf(s.t, "the Node does not have the label", nodes, s.labelled(false)),
		firstOf(s.t, "the intent of the set is being deleted", intents, isDeleted),
		firstOf(s.t, "the volume is being released", intents,
			system.HasReason(volumesv1alpha1.ConditionPublished, volumesv1alpha1.ReasonUsedByPods)))
	s.sees(pid, map[string]string{s.intent: "weights"})
	runs(s.t, pod)
	if processOf(s.t, pod) != pid {
		s.t.Errorf("pod %s has another process than before, want that it ran through", pod.Name)
	}
}

// labelled is whether a Node has the label of the set, or does not have it.
func (s *labellingSet) labelled(want bool) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool { return n != nil && (n.Labels[s.label] == "true") == want }
}

func (s *labellingSet) awaitLabel(want bool) {
	s.t.Helper()
	if _, err := awaitNode(s.t, s.node, s.labelled(want)); err != nil {
		dump(s.t)
		s.t.Fatalf("waiting until it is %t that the Node has the label %s: %v", want, s.label, err)
	}
}

// awaitScheduler returns once the scheduler has read that the node does not have the label. Then it places a pod there
// that the label kept away.
func (s *labellingSet) awaitScheduler() {
	s.t.Helper()
	pod := s.inline("", selecting("none"), func(pod *corev1.Pod) {
		receives(pod)
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.node}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: s.label, Operator: corev1.NodeSelectorOpDoesNotExist}},
			}}}}}
	})
	_, err := awaitPod(s.t, pod.Name, func(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName != "" })
	if err != nil {
		dump(s.t)
		s.t.Fatal(err)
	}
	remove(s.t, pod)
}

// unschedulable waits until the scheduler has found no node for the pod.
func unschedulable(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	found, err := awaitPod(t, pod.Name, func(p *corev1.Pod) bool {
		return p != nil && (p.Spec.NodeName != "" || isUnschedulable(p))
	})
	if err != nil {
		dump(t)
		t.Fatal(err)
	}
	if found.Spec.NodeName != "" || found.Status.Phase != corev1.PodPending {
		t.Fatalf("pod %s is %s on node %q, want it Pending without a node", pod.Name, found.Status.Phase, found.Spec.NodeName)
	}
}

func isUnschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

func isDeleted(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.DeletionTimestamp != nil }

// record watches the set's node and intent. The returned function ends that, and returns their versions, the oldest
// first.
func (s *labellingSet) record() (stop func() (nodes, intents []client.Object)) {
	s.t.Helper()
	nodes := record.Start(s.t, sys.Client, &corev1.NodeList{}, client.MatchingFields{"metadata.name": s.node})
	intents := record.Start(s.t, sys.Client, &volumesv1alpha1.VolumeAttachmentIntentList{},
		client.InNamespace(namespace), client.MatchingFields{"metadata.name": s.intent})
	return func() ([]client.Object, []client.Object) { return nodes(), intents() }
}

// moment is the first version of an object where something holds.
type moment struct{ what, version string }

func firstOf[T client.Object](t *testing.T, what string, versions []client.Object, holds func(T) bool) moment {
	t.Helper()
	for _, v := range versions {
		if object, ok := v.(T); ok && holds(object) {
			return moment{what, object.GetResourceVersion()}
		}
	}
	t.Fatalf("%d versions of the object were watched, and in none %s", len(versions), what)
	return moment{}
}

// inOrder checks that each moment came after the one before. One etcd counts the writes to all kinds of objects here,
// so the resource versions of Nodes and intents are in the order of their writes.
func inOrder(t *testing.T, moments ...moment) {
	t.Helper()
	for i := 1; i < len(moments); i++ {
		earlier, later := moments[i-1], moments[i]
		order, err := resourceversion.CompareResourceVersion(earlier.version, later.version)
		if err != nil || order >= 0 {
			t.Errorf("%s since resource version %s, and %s since %s, error %v; want the first one earlier", earlier.what,
				earlier.version, later.what, later.version, err)
		}
	}
}
