/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/operator/render"
)

// another is a finalizer of another client.
const another = "example.com/snapshot"

// meanwhile is an API server on which another client acts directly after an object was read, and a reconciler on it.
type meanwhile struct {
	t *testing.T
	*Reconciler
	live client.WithWatch
	act  func()
}

// cacheOfReader is a cache that shows what a reader has.
type cacheOfReader struct {
	cache.Cache
	reader client.Reader
}

func (c cacheOfReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, o, opts...)
}

func (c cacheOfReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

func newMeanwhile(t *testing.T, objects ...client.Object) *meanwhile {
	t.Helper()
	m := &meanwhile{t: t, act: func() {},
		live: fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(objects...).
			WithStatusSubresource(&volumesv1alpha1.VolumeManager{}).Build()}
	reader := interceptor.NewClient(m.live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			defer m.act()
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			defer m.act()
			return c.List(ctx, l, opts...)
		},
	})
	m.Reconciler = &Reconciler{Options: Options{Clock: clock.RealClock{}}, Client: controllertest.Strict(t, m.live),
		Live:  reader,
		Cache: cacheOfReader{reader: reader}, Recorder: events.NewFakeRecorder(100), applied: map[string]applied{}}
	return m
}

// read returns the object as it is now.
func read[T client.Object](m *meanwhile, object T) T {
	m.t.Helper()
	now := object.DeepCopyObject().(T)
	if err := m.live.Get(m.t.Context(), client.ObjectKeyFromObject(object), now); err != nil {
		m.t.Fatal(err)
	}
	return now
}

// adds has another client add a finalizer to the object.
func (m *meanwhile) adds(object client.Object) {
	m.t.Helper()
	now := read(m, object)
	now.SetFinalizers(append(now.GetFinalizers(), another))
	if err := m.live.Update(m.t.Context(), now); err != nil {
		m.t.Fatal(err)
	}
	m.act = func() {}
}

// recreates has another client delete the object, and create one of its name.
func (m *meanwhile) recreates(object client.Object) {
	m.t.Helper()
	if err := m.live.Delete(m.t.Context(), read(m, object)); err != nil {
		m.t.Fatal(err)
	}
	later := object.DeepCopyObject().(client.Object)
	later.SetUID("later")
	later.SetResourceVersion("")
	if err := m.live.Create(m.t.Context(), later); err != nil {
		m.t.Fatal(err)
	}
	m.act = func() {}
}

// expectLater checks that the object that another client created is there, and that the error is a conflict or none.
func (m *meanwhile) expectLater(object client.Object, err error) {
	m.t.Helper()
	if err != nil && !apierrors.IsConflict(err) {
		m.t.Errorf("deleting the earlier %T: error %v, want a conflict or none", object, err)
	}
	if now := read(m, object); now.GetUID() != "later" {
		m.t.Errorf("%T %s has UID %s, want that of the one created later", object, now.GetName(), now.GetUID())
	}
}

func with(name string, finalizers ...string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: finalizers}
}

func TestFinalizersThatOthersAddMeanwhileStay(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: with("data", volumesv1alpha1.ClaimFinalizer)}
	claim.Namespace = "default"
	tests := map[string]struct {
		object client.Object
		write  func(*meanwhile, traces) error
	}{
		"attachment": {&storagev1.VolumeAttachment{ObjectMeta: with("csi-1", volumesv1alpha1.ForcedAwayFinalizer)},
			func(m *meanwhile, w traces) error { return w.releaseAttachments(m.t.Context()) }},
		"claim": {claim, func(m *meanwhile, w traces) error { return w.releaseClaims(m.t.Context()) }},
		"VolumeManager that is marked": {&volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")},
			func(m *meanwhile, _ traces) error {
				vm := read(m, &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")})
				m.act()
				return m.markManager(m.t.Context(), vm, "1")
			}},
		"VolumeManager at the end of its removal": {
			&volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster", volumesv1alpha1.RemovalFinalizer)},
			func(m *meanwhile, _ traces) error {
				vm := read(m, &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")})
				m.act()
				return remover{m.Reconciler}.finish(m.t.Context(), vm)
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMeanwhile(t, test.object)
			m.act = func() { m.adds(test.object) }
			err := test.write(m, traces{client: m.Client, live: m.Live})
			if !apierrors.IsConflict(err) {
				t.Errorf("writing finalizers of the earlier version: error %v, want a conflict", err)
			}
			if got := read(m, test.object).GetFinalizers(); !slices.Contains(got, another) {
				t.Errorf("finalizers are %q, want %s among them, which another client added", got, another)
			}
		})
	}
}

func TestGatesOfAPodThatWasCreatedAgainStay(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: with("web")}
	pod.Namespace = "default"
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: volumesv1alpha1.PlacementGate}}
	m := newMeanwhile(t, pod)
	earlier := read(m, pod)
	later := pod.DeepCopy()
	later.Spec.SchedulingGates = append(later.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/quota"})
	m.recreates(later)
	if err := m.liftGate(t.Context(), earlier); err != nil {
		t.Errorf("lifting the gate of a pod that is gone: error %v, want none: the event of the later one follows", err)
	}
	if got := read(m, pod).Spec.SchedulingGates; len(got) != 2 {
		t.Errorf("gates of the pod created later are %v, want both", got)
	}
}

func TestWhatWasCreatedAgainUnderItsNameIsNotDeleted(t *testing.T) {
	t.Run("object that is applied no more", func(t *testing.T) {
		role := newObject(roleKind)
		role.SetName("hawser-replace")
		role.SetUID("earlier")
		m := newMeanwhile(t, role)
		m.recreates(role)
		m.expectLater(role, m.remove(t.Context(), role))
	})
	t.Run("intent", func(t *testing.T) {
		intent := volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: with("data")}
		intent.Namespace = "default"
		m := newMeanwhile(t, &intent)
		m.recreates(&intent)
		vm := &volumesv1alpha1.VolumeManager{}
		err := remover{m.Reconciler}.deleteIntents(t.Context(), vm, []volumesv1alpha1.VolumeAttachmentIntent{intent})
		if err == nil {
			t.Error("deleting an intent that was created again: no error, want a conflict, which retries")
		}
		if got := read(m, &intent).UID; got != "later" {
			t.Errorf("the intent has UID %s, want that of the one created later", got)
		}
	})
	t.Run("CSIDriver with other immutable fields", func(t *testing.T) {
		driver := newDriver(true)
		m := newMeanwhile(t, driver)
		m.act = func() { m.recreates(driver) }
		_, err := m.adapt(t.Context(), newDriver(false))
		m.expectLater(driver, err)
	})
	t.Run("node state", func(t *testing.T) {
		state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: with("node-a")}
		m := newMeanwhile(t, state)
		m.act = func() { m.recreates(state) }
		everything := traces{client: m.Client, live: m.Live, serves: func(schema.GroupVersionKind) bool { return true }}
		m.expectLater(state, everything.deleteStates(t.Context()))
	})
}

func newDriver(attachRequired bool) *unstructured.Unstructured {
	driver := newObject(csiDriver)
	driver.SetName("volumes.hawser.io")
	driver.SetUID("earlier")
	driver.Object["spec"] = map[string]any{"attachRequired": attachRequired}
	return driver
}

func TestAManagerMayReplaceForAsLongAsItHasTheRole(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: with("hawser-replace")}
	for _, test := range []struct {
		mode    volumesv1alpha1.AttachMode
		objects []client.Object
		want    bool
	}{
		{volumesv1alpha1.AttachReplace, nil, true},
		{volumesv1alpha1.AttachCoexist, []client.Object{role}, true},
		{volumesv1alpha1.AttachCoexist, nil, false},
	} {
		m := newMeanwhile(t, test.objects...)
		vm := &volumesv1alpha1.VolumeManager{Spec: volumesv1alpha1.VolumeManagerSpec{AttachMode: test.mode}}
		if got, err := m.mayReplace(t.Context(), vm); got != test.want || err != nil {
			t.Errorf("mode %s with %d roles of Replace: a manager may replace: %t, error %v; want %t", test.mode,
				len(test.objects), got, err, test.want)
		}
	}
}

// The objects of an installation without the operator have no label, so they are not in the operator's cache.
func TestAManagerMayReplaceThatTheOperatorHasNotReplacedYet(t *testing.T) {
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: with("hawser-replace"), Subjects: []rbacv1.Subject{
		{Kind: rbacv1.ServiceAccountKind, Namespace: volumesv1alpha1.InstallNamespace, Name: "hawser-manager"}}}
	other := binding.DeepCopy()
	other.Subjects[0].Namespace = "another"
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster"),
		Spec: volumesv1alpha1.VolumeManagerSpec{AttachMode: volumesv1alpha1.AttachCoexist}}
	for name, test := range map[string]struct {
		object  client.Object
		adopted types.UID
		want    bool
	}{
		"the manager has the right":           {binding, "", true},
		"the operator has pruned":             {binding, vm.UID, false},
		"the manager of another installation": {other, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeanwhile(t, test.object)
			m.adopted, m.Namespace = test.adopted, volumesv1alpha1.InstallNamespace
			if got, err := m.mayReplace(t.Context(), vm); got != test.want || err != nil {
				t.Errorf("a manager may replace: %t, error %v; want %t", got, err, test.want)
			}
		})
	}
}

// The manager may still run in Replace after the spec was changed: it has attached the volumes of pods.
func TestTheVolumesOfPodsAreMarkedAsLongAsAManagerMayReplace(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: with("node-a")}
	state.Status.Protocol.ObservedUID = state.UID
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "v", AttachmentUID: "uid-1",
		State: volumesv1alpha1.AttachmentAttached}}
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "uid-1", InUse: true,
		PublishedBy: volumesv1alpha1.PublisherKubelet}}
	role := &rbacv1.ClusterRole{ObjectMeta: with("hawser-replace")}
	vm := &volumesv1alpha1.VolumeManager{
		Spec: volumesv1alpha1.VolumeManagerSpec{AttachMode: volumesv1alpha1.AttachCoexist}}
	for want, objects := range map[string][]client.Object{"1": {state, role}, "0": {state}} {
		m := newMeanwhile(t, objects...)
		m.guards, m.Kinds = guards{m.Cache}, Kinds{mutating: true} // everything is served
		if u, err := m.findUsed(t.Context(), vm); err != nil || u.marked() != want {
			t.Errorf("mark with %d objects, a pod's volume among them: %s, error %v; want %s", len(objects), u.marked(), err,
				want)
		}
	}
}

func TestWithoutAnAnswerOrAKindItIsNotKnownWhatIsInUse(t *testing.T) {
	vm := &volumesv1alpha1.VolumeManager{
		Spec: volumesv1alpha1.VolumeManagerSpec{AttachMode: volumesv1alpha1.AttachCoexist}}
	m := newMeanwhile(t)
	m.guards, m.Kinds = guards{m.Cache}, Kinds{mutating: true}
	m.optional = []*optional{{kind: stateKind, definition: "nodevolumestates.volumes.hawser.io"}}
	if u, err := m.findUsed(t.Context(), vm); err != nil || u.known || u.nothing() {
		t.Errorf("use without the kind of node states: %+v, error %v; want that it is not known", u, err)
	}
	down := errors.New("the API server is away")
	m.Cache = cacheOfReader{reader: interceptor.NewClient(m.live, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	})}
	if may, err := m.mayReplace(t.Context(), vm); !errors.Is(err, down) {
		t.Errorf("role of Replace without an answer: a manager may replace %t, error %v; want %v", may, err, down)
	}
}

func TestARemovalIsFinishedForTheVolumeManagerThatWasDeleted(t *testing.T) {
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster", volumesv1alpha1.RemovalFinalizer)}
	later := vm.DeepCopy()
	later.UID = "later"
	for name, c := range map[string]struct {
		there []client.Object
		want  bool
	}{
		"there, with its finalizer": {[]client.Object{vm}, false},
		"gone":                      {nil, true},
		"another one by now":        {[]client.Object{later}, true},
	} {
		m := newMeanwhile(t, c.there...)
		if got, err := (remover{m.Reconciler}).isFinished(t.Context(), vm); got != c.want || err != nil {
			t.Errorf("removal of a VolumeManager that is %s: finished %t, error %v; want %t", name, got, err, c.want)
		}
	}
}

// An intent or a pod that was refused until then may be there before the cache has seen the VolumeManager go.
func TestNothingIsAppliedForAVolumeManagerThatIsGone(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: with("node-a")}
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "uid-1", InUse: true}}
	m := newMeanwhile(t, state)
	m.guards, m.Kinds = guards{m.Cache}, Kinds{mutating: true}
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster", volumesv1alpha1.RemovalFinalizer)}
	vm.Spec.Removal = volumesv1alpha1.RemovalDrain
	if _, err := (remover{m.Reconciler}).dismantle(t.Context(), vm); err != nil {
		t.Errorf("removal of a VolumeManager that is gone: error %v, want that nothing is done", err)
	}
}

func TestTheOperatorKnowsWhatTwoMachinesOfANameUse(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: with("node-a")}
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{
		{VolumeName: "v", AttachmentUID: "uid-1", InUse: true},
		{VolumeName: "v", AttachmentUID: "uid-1", InUse: true,
			Machine: &volumesv1alpha1.MachineIdentity{SystemUUID: "another"}},
	}
	if _, err := strip(state); err != nil || !handshake.UsedByTwo(state, "uid-1") {
		t.Errorf("the operator keeps of the volumes of node-a %+v, error %v; want that two machines use attachment uid-1",
			state.Status.Volumes, err)
	}
}

func TestEveryPageOfWhatHawserWroteIsCleaned(t *testing.T) {
	var attachments []client.Object
	for _, name := range []string{"a", "b", "c"} {
		attachments = append(attachments, &storagev1.VolumeAttachment{ObjectMeta: with(name,
			volumesv1alpha1.ForcedAwayFinalizer)})
	}
	m := newMeanwhile(t, attachments...)
	if err := (traces{client: m.Client, live: controllertest.Paged{Reader: m.live}}).releaseAttachments(
		t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, attachment := range attachments {
		if got := read(m, attachment).GetFinalizers(); len(got) > 0 {
			t.Errorf("finalizers of attachment %s: %q, want none", attachment.GetName(), got)
		}
	}
}

func TestOnlyWhatTheOperatorAppliedIsItsOwn(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	tests := map[string]struct {
		label string
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"applied by the operator":                   {render.ManagedBy, field(render.ManagedBy, apply), true},
		"a copy that a person applied":              {render.ManagedBy, field("kubectl", apply), false},
		"a copy that a person created":              {render.ManagedBy, field("kubectl-create", update), false},
		"an object that the operator changed":       {render.ManagedBy, field(render.ManagedBy, update), false},
		"applied by the operator, with other label": {"helm", field(render.ManagedBy, apply), false},
	}
	for name, test := range tests {
		object := newObject(roleKind)
		object.SetLabels(map[string]string{render.ManagedByLabel: test.label})
		object.SetManagedFields([]metav1.ManagedFieldsEntry{test.entry})
		if got := ours(object); got != test.want {
			t.Errorf("%s: it is the operator's: %t, want %t", name, got, test.want)
		}
	}
}

func field(manager string, operation metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation}
}
