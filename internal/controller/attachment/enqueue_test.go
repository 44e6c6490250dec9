/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// woken are the volumes that a change wakes, in order.
func woken(t *testing.T, w wake, before, after client.Object) []string {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	w(t.Context(), before, after, q)
	var names []string
	for q.Len() > 0 {
		r, _ := q.Get()
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func TestAPodWithTheNameOfAnotherEnqueuesTheVolumesOfBoth(t *testing.T) {
	bound := func(name string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
		pv := persistentVolume()
		pv.Name, pv.Spec.CSI.VolumeHandle = name, name
		return pv, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: name},
		}
	}
	v1, c1 := bound("one")
	v2, c2 := bound("two")
	pod := func(uid types.UID, node, claim string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: uid},
			Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}}},
		}
	}
	c := onlyCached(t, v1, c1, v2, c2)
	// A watch that was interrupted shows the end of one and the beginning of the other as one change.
	got := woken(t, c.podChanged, pod("1", "a", "one"), pod("2", "b", "two"))
	if want := []string{volume.UniqueNameOf(v1), volume.UniqueNameOf(v2)}; !slices.Equal(got, want) {
		t.Errorf("volumes that two pods named web-0 wake: %v, want %v", got, want)
	}
	if got := woken(t, c.podChanged, pod("1", "a", "one"), pod("1", "a", "one")); got != nil {
		t.Errorf("volumes that pod web-0, which continues, wakes: %v, want none", got)
	}
}

func TestAPodEnqueuesItsVolumesWhenItStartsAndTerminatesButNotWhenItIsDeleted(t *testing.T) {
	pv := persistentVolume()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pv.Name},
	}
	runs := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "1"},
		Spec: corev1.PodSpec{NodeName: "a", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}},
	}
	ended := runs.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	c := onlyCached(t, pv, claim)
	for _, change := range []struct {
		name          string
		before, after client.Object
		wakes         bool
	}{
		{"it begins", nil, runs, true},
		{"it ends", runs, ended, true},
		{"it is deleted while it runs", runs, nil, true},
		{"what is left of it is deleted", ended, nil, false},
		{"it ended before it was seen", nil, ended, false},
	} {
		t.Run(change.name, func(t *testing.T) {
			if got := woken(t, c.podChanged, change.before, change.after); len(got) > 0 != change.wakes {
				t.Errorf("volumes that pod p wakes when %s: %v, want some: %t", change.name, got, change.wakes)
			}
		})
	}
}

func TestANodeThatBecomesManagedEnqueuesItsAttachedVolumes(t *testing.T) {
	pv := persistentVolume()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "d", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(pv.Name)},
	}}
	c := onlyCached(t, pv, va)
	c.Replace = true
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	after := before.DeepCopy()
	after.Annotations = map[string]string{cached.ManagedNodeAnnotation: "true"}
	if got := woken(t, c.nodeChanged, before, after); !slices.Equal(got, []string{volume.UniqueNameOf(pv)}) {
		t.Errorf("volumes that node a wakes when it becomes managed: %v, want %s", got, volume.UniqueNameOf(pv))
	}
}

func TestALabelOfASetWakesNothingOfItsNode(t *testing.T) {
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"pool": "a"}}}
	after := before.DeepCopy()
	after.Labels[volumesv1alpha1.ReadyLabelPrefix+"ns.set"] = "true"
	if nodeConditionsDiffer(before, after) {
		t.Error("the label of a set on node a wakes all its volumes, want none")
	}
	after.Labels["pool"] = "b"
	if !nodeConditionsDiffer(before, after) {
		t.Error("another pool of node a wakes none of its volumes, want all")
	}
}

func TestAnAgentThatBecomesReachableEnqueuesAttachmentsWithoutAnEntry(t *testing.T) {
	bound := func(name string, annotations map[string]string) (*corev1.PersistentVolume, *storagev1.VolumeAttachment) {
		pv := persistentVolume()
		pv.Name, pv.Spec.CSI.VolumeHandle = name, name
		return pv, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "d", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
			},
		}
	}
	ours, held := bound("ours", map[string]string{volumesv1alpha1.HoldAnnotation: "true"})
	upstreams, foreign := bound("upstreams", nil)
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	c := onlyCached(t, ours, held, upstreams, foreign, state)
	heard := func(ctx context.Context, _, _ client.Object, q queue) { c.agentHeard(ctx, "a", q) }
	if got := woken(t, heard, nil, nil); !slices.Equal(got, []string{volume.UniqueNameOf(ours)}) {
		t.Errorf("volumes that the agent of node a wakes in Coexist: %v, want %s", got, volume.UniqueNameOf(ours))
	}
	c.Replace = true
	if got := woken(t, heard, nil, nil); !slices.Equal(got,
		[]string{volume.UniqueNameOf(ours), volume.UniqueNameOf(upstreams)}) {
		t.Errorf("volumes that the agent of node a wakes in Replace: %v, want %s and %s", got, volume.UniqueNameOf(ours),
			volume.UniqueNameOf(upstreams))
	}
}

// lanes records what is added, and what is added for later with a star.
type lanes struct {
	queue
	star  string
	added *[]string
}

func (l lanes) Later() queue { return lanes{l.queue, "*", l.added} }

func (l lanes) Add(req reconcile.Request) { *l.added = append(*l.added, req.Name+l.star) }

func TestOfWhatWasThereBeforeTheManagerThatComesFirstWhereSomethingIsUnderWay(t *testing.T) {
	intent := func(attached metav1.ConditionStatus, deleted bool) *volumesv1alpha1.VolumeAttachmentIntent {
		i := &volumesv1alpha1.VolumeAttachmentIntent{}
		i.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionAttached, Status: attached}}
		if deleted {
			i.DeletionTimestamp = ptr.To(metav1.Now())
		}
		return i
	}
	state := &volumesv1alpha1.NodeVolumeState{}
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		{VolumeName: "there", State: volumesv1alpha1.AttachmentAttached},
		{VolumeName: "leaving", State: volumesv1alpha1.AttachmentDetaching},
	}
	for _, c := range []struct {
		name    string
		object  client.Object
		initial bool
		want    []string
	}{
		{"an intent that is attached", intent(metav1.ConditionTrue, false), true, []string{"v*"}},
		{"one that is not", intent(metav1.ConditionFalse, false), true, []string{"v"}},
		{"one that is deleted", intent(metav1.ConditionTrue, true), true, []string{"v"}},
		{"one that comes later", intent(metav1.ConditionTrue, false), false, []string{"v"}},
		{"a state with a volume that leaves", state, true, []string{"leaving", "v*"}},
		{"an attachment", &storagev1.VolumeAttachment{}, true, []string{"v*"}},
	} {
		var added []string
		w := wake(func(_ context.Context, _, _ client.Object, q queue) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: "v"}})
		})
		w.handler(w).Create(t.Context(), event.CreateEvent{Object: c.object, IsInInitialList: c.initial},
			lanes{added: &added})
		if !slices.Equal(added, c.want) {
			t.Errorf("%s, in the initial list %t: adds %q, want %q (* is for later)", c.name, c.initial, added, c.want)
		}
	}
}

func TestWhatOthersLeadToIsNotLookedAtWhenTheManagerStarts(t *testing.T) {
	var woken []bool
	w := wake(func(_ context.Context, _, _ client.Object, _ queue) { woken = append(woken, true) })
	for _, initial := range []bool{true, false} {
		w.handler(nil).Create(t.Context(), event.CreateEvent{Object: &storagev1.CSINode{}, IsInInitialList: initial},
			lanes{})
	}
	if len(woken) != 1 {
		t.Errorf("a CSINode that was there and one that came were looked at %d times, want 1", len(woken))
	}
}

func TestAClaimAndAVolumeThatWereThereWakeTheIntentsThatAreNotPinned(t *testing.T) {
	pv := persistentVolume()
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv.Name}}
	for pinned, want := range map[string][]string{"": {volume.UniqueNameOf(pv)}, "pinned": nil} {
		i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "i"}}
		i.Spec.NodeName, i.Status.UniqueVolumeName = "a", pinned
		i.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}
		c := onlyCached(t, pv, claim, i)
		if got := woken(t, c.pvcFound, nil, claim); !slices.Equal(got, want) {
			t.Errorf("the claim of an intent that is pinned to %q wakes %v, want %v", pinned, got, want)
		}
		if got := woken(t, c.volumeFound, nil, pv); !slices.Equal(got, want) {
			t.Errorf("the volume of an intent that is pinned to %q wakes %v, want %v", pinned, got, want)
		}
	}
}

func TestAStateThatWasThereWakesItsOwnVolumesAlone(t *testing.T) {
	pv := persistentVolume()
	ours := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va", Annotations: map[string]string{volumesv1alpha1.HoldAnnotation: "true"}},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
		},
	}
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "listed"}}
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "reported"}}
	c := onlyCached(t, state, pv, ours)
	got := woken(t, c.stateFound, nil, state)
	if !slices.Equal(got, []string{"listed", "reported"}) {
		t.Errorf("a state that was there wakes %v, want listed and reported: others are found by their own objects", got)
	}
}

func TestOfANodeThatWasThereTheKubeletsVolumesAreFoundInReplace(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	const listed = "kubernetes.io/csi/d^listed"
	// Of other plugins, Kubernetes' own controller lists volumes that nothing has to be attached for.
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: listed},
		{Name: "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2001-04.com.example:storage.disk1:0"}}
	c := onlyCached(t, node)
	for replace, want := range map[bool][]string{false: nil, true: {listed}} {
		c.Replace = replace
		if got := woken(t, c.nodeFound, nil, node); !slices.Equal(got, want) {
			t.Errorf("Replace %t: a Node that was there wakes %v, want %v", replace, got, want)
		}
	}
}

func TestOfAnAgentThatIsHeardTheVolumesComeFirstThatMayWaitForIt(t *testing.T) {
	intent := func(name, node string, attached metav1.ConditionStatus) *volumesv1alpha1.VolumeAttachmentIntent {
		i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		i.Spec.NodeName, i.Status.UniqueVolumeName = node, name
		i.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionAttached, Status: attached}}
		return i
	}
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		{VolumeName: "there", State: volumesv1alpha1.AttachmentAttached},
		{VolumeName: "leaving", State: volumesv1alpha1.AttachmentDetaching},
	}
	c := onlyCached(t, state, intent("there", "a", metav1.ConditionTrue), intent("coming", "a", metav1.ConditionFalse),
		intent("elsewhere", "b", metav1.ConditionFalse))
	var added []string
	c.agentHeard(t.Context(), "a", lanes{added: &added})
	var first []string
	for _, name := range added {
		if !strings.HasSuffix(name, "*") {
			first = append(first, name)
		}
	}
	slices.Sort(first)
	if !slices.Equal(first, []string{"coming", "leaving"}) || !slices.Contains(added, "there*") {
		t.Errorf("the agent of node a is heard: adds %q, want coming and leaving first and there for later (*)", added)
	}
}
