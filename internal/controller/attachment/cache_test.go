/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// onlyCached makes a controller whose cache alone has these objects. A live read fails the test.
func onlyCached(t *testing.T, objects ...client.Object) *Controller {
	t.Helper()
	c, _, api := overAPI(t)
	api.Show(objects...)
	connect(c, api.Client, unread{t})
	c.Reporter = &intentstatus.Reporter{Client: api.Client, Clock: c.Clock}
	return c
}

// unread is an API server that nothing may read from.
type unread struct{ t *testing.T }

func (u unread) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	u.t.Errorf("%T %s is read live, want it read from the cache", o, key)
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (u unread) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	u.t.Errorf("%T is listed live, want it listed from the cache", list)
	return nil
}

// fixture is a volume with its claim, an intent that wants it on node a, and an attachment to node b. The entry of node
// b alone tells that the attachment is of the volume.
type fixture struct {
	pv      *corev1.PersistentVolume
	claim   *corev1.PersistentVolumeClaim
	intent  *volumesv1alpha1.VolumeAttachmentIntent
	driver  *storagev1.CSIDriver
	csiNode *storagev1.CSINode
	pod     *corev1.Pod
	nodes   []client.Object
	state   *volumesv1alpha1.NodeVolumeState
	// counted is another volume's attachment to node a, listed is the one of node b.
	counted, listed *storagev1.VolumeAttachment
}

func newFixture() *fixture {
	pv := boundVolume()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "data", UID: "claim", Finalizers: []string{volumesv1alpha1.ClaimFinalizer},
		},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: pv.Name},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "i", UID: "intent", Finalizers: []string{volumesv1alpha1.ReleaseFinalizer},
	}}
	intent.Spec.NodeName = "a"
	intent.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	csiNode.Spec.Drivers = []storagev1.CSINodeDriver{{
		Name: "d", NodeID: "a", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](5)},
	}}
	state := reported("b")
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{
		VolumeName: volume.UniqueNameOf(pv), AttachmentName: "listed", AttachmentUID: "1",
		State: volumesv1alpha1.AttachmentAttached,
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	pod.Spec.NodeName = "b"
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	attachment := func(name, node, pv string) *storagev1.VolumeAttachment {
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}}
		va.Spec = storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
		}
		return va
	}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	driver.Annotations = map[string]string{volumesv1alpha1.CutsAccessAnnotation: "true"}
	driver.Spec.SELinuxMount = ptr.To(true)
	return &fixture{
		pv: pv, claim: claim, intent: intent, driver: driver, csiNode: csiNode, pod: pod, state: state,
		nodes:   []client.Object{nodeNamed("a"), nodeNamed("b")},
		counted: attachment("counted", "a", "another"), listed: attachment("listed", "b", "renamed"),
	}
}

func (x *fixture) objects() []client.Object {
	return append(slices.Clone(x.nodes), x.pv, x.claim, x.intent, x.driver, x.csiNode, x.pod, x.state, x.counted, x.listed)
}

func TestWhatAPassStartsFromIsInTheCacheAlone(t *testing.T) {
	x := newFixture()
	c := onlyCached(t, x.objects()...)
	f, err := c.gather(t.Context(), volume.UniqueNameOf(x.pv))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.prepare(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	a, b := f.Node("a"), f.Node("b")
	if len(a.Wanted) != 1 || a.Wanted[0].Claim == nil || a.Wanted[0].Result.Source == nil {
		t.Errorf("wanted intents of node a: %+v, want one with its claim and its source", a.Wanted)
	}
	if want := (decision.Limit{Known: true, Max: 5, Used: 1}); a.Limit != want || a.DriverMissing || !f.CutsAccess {
		t.Errorf("node a: limit %+v, driver missing %t, driver cuts access %t; want limit %+v, false, true", a.Limit,
			a.DriverMissing, f.CutsAccess, want)
	}
	if e := decision.EntryOf(f, a.Wanted[0]); !e.SELinuxMount {
		t.Errorf("entry of node a: %+v, want seLinuxMount as the driver has it", e)
	}
	if a.Lists.Missing {
		t.Error("Node a is missing in the facts, want it there")
	}
	if b.AttachmentNamed("listed") == nil || !b.Pods {
		t.Errorf("node b: attachments %+v, pods %t; want attachment listed and pods", b.Attachments, b.Pods)
	}
}

func TestAChangeFindsItsVolumesInTheCacheAlone(t *testing.T) {
	x := newFixture()
	attached := x.counted.DeepCopy()
	attached.Name, attached.Spec.Source.PersistentVolumeName = "attached", &x.pv.Name
	attached.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "true"}
	nodes := map[string]*corev1.Node{}
	for _, name := range []string{"a", "b", "c"} {
		nodes[name] = nodeNamed(name)
	}
	nodes["c"].Status.VolumesAttached = []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName(volume.UniqueNameOf(x.pv))}}
	policies := func(c *Controller) wake {
		return func(ctx context.Context, _, _ client.Object, q queue) {
			c.policiesChanged(ctx, event.GenericEvent{}, q)
		}
	}
	for _, change := range []struct {
		name string
		of   func(*Controller) wake
		is   client.Object
	}{
		{"of the claim", func(c *Controller) wake { return c.pvcChanged }, x.claim},
		{"of an intent", func(c *Controller) wake { return c.intentChanged }, x.intent},
		{"of an attachment", func(c *Controller) wake { return c.attachmentChanged }, attached},
		{"of the driver", func(c *Controller) wake { return c.csiDriverChanged }, x.driver},
		{"of a node's drivers", func(c *Controller) wake { return c.csiNodeChanged }, x.csiNode},
		{"of a pod", func(c *Controller) wake { return c.podChanged }, x.pod},
		{"of the policies", policies, nil},
		{"of a node that an intent is for", func(c *Controller) wake { return c.nodeChanged }, nodes["a"]},
		{"of a node whose state lists it", func(c *Controller) wake { return c.nodeChanged }, nodes["b"]},
		{"of a node whose kubelet lists it", func(c *Controller) wake { return c.nodeChanged }, nodes["c"]},
	} {
		t.Run(change.name, func(t *testing.T) {
			c := onlyCached(t, append(x.objects(), nodes["c"])...)
			c.Replace = true
			got := woken(t, change.of(c), nil, change.is)
			if !slices.Contains(got, volume.UniqueNameOf(x.pv)) {
				t.Errorf("volumes that a change %s wakes: %v, want %s among them", change.name, got, volume.UniqueNameOf(x.pv))
			}
		})
	}
}

func TestWhatWasWrittenIsKnownUntilTheCacheShowsIt(t *testing.T) {
	now := testingclock.NewFakePassiveClock(metav1.Now().Time)
	own := ownWrites{clock: now}
	answer := func(name, version string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	expect := func(what, name, cached, want string) {
		t.Helper()
		got := ""
		if va := own.newer(name, cached); va != nil {
			got = va.ResourceVersion
		}
		if got != want {
			t.Errorf("%s: attachment %s, which the cache has at %q, is known at %q, expected %q", what, name, cached, got, want)
		}
	}
	expect("nothing was written", "x", "1", "")
	own.note("", answer("x", "1"))
	own.note("1", answer("x", "2"))
	own.note("4", answer("y", "5"))
	expect("the cache does not have it yet", "x", "", "2")
	expect("the cache has the first write", "x", "1", "2")
	expect("another attachment", "y", "4", "5")
	expect("the cache has a version that nobody wrote upon", "x", "2", "")
	expect("what the cache has shown is forgotten", "x", "1", "")
	own.forget("y")
	expect("an attachment that is gone", "y", "4", "")
	own.note("4", answer("y", "5"))
	now.SetTime(now.Now().Add(slow - 1))
	expect("shortly before it has been long ago", "y", "4", "5")
	now.SetTime(now.Now().Add(1))
	expect("long ago", "y", "4", "")
	now.SetTime(now.Now().Add(-slow))
	expect("what was long ago is forgotten", "y", "4", "")
}
