/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
)

// server is an API server with a controller of sets.
type server struct {
	*testing.T
	*controllertest.API
	controller *Controller
	// writes to the API server, in their order.
	writes []string
	// refuse the creation of intents.
	refuse func(name string) bool
	// refuseDelete of intents, once.
	refuseDelete bool
}

func newServer(t *testing.T, objects ...client.Object) *server {
	t.Helper()
	s := &server{T: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
	s.API = controllertest.New(t, fake.NewClientBuilder().WithScheme(controllertest.Scheme()).
		WithStatusSubresource(&volumesv1alpha1.VolumeAttachmentIntentSet{}, &volumesv1alpha1.VolumeAttachmentIntent{}),
		append(objects, namespace)...)
	wrote := func(verb string, o client.Object) {
		s.writes = append(s.writes, fmt.Sprintf("%s %s", verb, o.GetName()))
	}
	counted := interceptor.NewClient(s.Client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			wrote("create", o)
			if s.refuse != nil && s.refuse(o.GetName()) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "volumeattachmentintents"}, o.GetName(),
					fmt.Errorf("exceeded quota"))
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			wrote("delete", o)
			if s.refuseDelete {
				s.refuseDelete = false
				return apierrors.NewForbidden(schema.GroupResource{Resource: "volumeattachmentintents"}, o.GetName(),
					fmt.Errorf("a webhook of the cluster"))
			}
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			wrote("patch", o)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			wrote("status", o)
			return c.Status().Update(ctx, o, opts...)
		},
	})
	s.controller = &Controller{Client: counted, Reader: s.Live, Events: events.NewFakeRecorder(100),
		Clock: testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
	return s
}

// pass reconciles the set once, and returns what it wrote, sorted. The cache is up to date afterwards.
func (s *server) pass() (string, reconcile.Result) {
	s.Helper()
	s.writes = nil
	result, err := s.controller.Reconcile(s.Context(), reconcile.Request{
		NamespacedName: client.ObjectKey{Namespace: "ns", Name: "cache"}})
	if err != nil {
		s.Fatalf("reconciling set cache: error %v, want none", err)
	}
	s.Sync()
	slices.Sort(s.writes) // the nodes come in any order
	return strings.Join(s.writes, ", "), result
}

func (s *server) expectPass(want string) {
	s.Helper()
	if got, _ := s.pass(); got != want {
		s.Errorf("set cache wrote %q, want %q", got, want)
	}
}

func (s *server) expectReady(status metav1.ConditionStatus, reason string,
) *volumesv1alpha1.VolumeAttachmentIntentSet {
	s.Helper()
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := s.Live.Get(s.Context(), client.ObjectKey{Namespace: "ns", Name: "cache"}, set); err != nil {
		s.Fatal(err)
	}
	for _, c := range set.Status.Conditions {
		if c.Type == volumesv1alpha1.ConditionReady && c.Status == status && c.Reason == reason {
			return set
		}
	}
	s.Errorf("set cache has conditions %v, want Ready=%s %s", set.Status.Conditions, status, reason)
	return set
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}}}
}

func (s *server) finish(names ...string) {
	s.Helper()
	for _, name := range names {
		intent := &volumesv1alpha1.VolumeAttachmentIntent{}
		if err := s.Live.Get(s.Context(), client.ObjectKey{Namespace: "ns", Name: name}, intent); err != nil {
			s.Fatal(err)
		}
		isReady(intent)
		if err := s.Live.Status().Update(s.Context(), intent); err != nil {
			s.Fatal(err)
		}
	}
	s.Sync()
}

func TestASetCostsOneWriteForEachIntentAndOneForEachStatusThatChanges(t *testing.T) {
	s := newServer(t, newSet(), newNode("b"), newNode("a"))
	s.expectPass("create cache-a, create cache-b, status cache")
	s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonProgressing)
	s.expectPass("status cache")
	s.expectPass("")
	s.finish("cache-a", "cache-b")
	s.expectPass("status cache")
	s.expectReady(metav1.ConditionTrue, volumesv1alpha1.ReasonReady)
	s.expectPass("")
}

func TestAnIntentIsKeptIfItsNodeIsMissingInTheCacheOnly(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"))
	s.pass()
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache-a"}, intent); err != nil {
		t.Fatal(err)
	}
	s.Show(newSet(), intent)
	s.expectPass("status cache")
	if err := s.Live.Delete(t.Context(), newNode("a")); err != nil {
		t.Fatal(err)
	}
	s.Sync()
	s.expectPass("delete cache-a, status cache")
}

func TestAReplacedIntentIsCreatedAgainFromThePresentTemplate(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"), newNode("b"))
	s.pass()
	s.finish("cache-a", "cache-b")
	s.pass()
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := s.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache"}, set); err != nil {
		t.Fatal(err)
	}
	set.Spec.Template.Spec.ReadOnly = true
	if err := s.Live.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	s.Sync()
	s.expectPass("delete cache-a, status cache")
	// The volume is released, and the finalizer removed.
	released := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := s.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache-a"}, released); err != nil {
		t.Fatal(err)
	}
	s.expectPass("status cache")
	released.Finalizers = nil
	if err := s.Live.Update(t.Context(), released); err != nil {
		t.Fatal(err)
	}
	s.Sync()
	if got, _ := s.pass(); !strings.HasPrefix(got, "create cache-a") {
		t.Errorf("set cache wrote %q, want cache-a created again", got)
	}
	if err := s.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache-a"}, released); err != nil {
		t.Fatal(err)
	}
	if !released.Spec.ReadOnly {
		t.Error("intent cache-a was created again with readOnly false, want true as in the template")
	}
	if got, _ := s.pass(); strings.Contains(got, "delete") {
		t.Errorf("set cache wrote %q while cache-a is not ready, want cache-b kept", got)
	}
}

func TestAnObjectOfTheSameNameIsNotTakenOver(t *testing.T) {
	foreign := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cache-a",
		Labels: map[string]string{volumesv1alpha1.IntentSetLabel: "cache"}}}
	s := newServer(t, newSet(), newNode("a"), foreign)
	s.expectPass("status cache")
	s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonNameTaken)
	s.expectPass("")
	if n := len(s.controller.Events.(*events.FakeRecorder).Events); n != 1 {
		t.Errorf("%d events were recorded, want 1 with reason NameTaken", n)
	}
	// The cache may not show it yet.
	s = newServer(t, newSet(), newNode("a"), foreign)
	s.Show(newSet(), newNode("a"))
	s.expectPass("create cache-a, status cache")
	s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonNameTaken)
}

func TestAPassEndsAfterThreeRefusalsAndTheSetIsTriedAgainLater(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"), newNode("b"), newNode("c"), newNode("d"), newNode("e"))
	s.refuse = func(string) bool { return true }
	wrote, result := s.pass()
	if n := strings.Count(wrote, "create"); n != mostRefusals || result.RequeueAfter != problemAgain {
		t.Errorf("set cache wrote %q and comes again in %s, want %d creates and %s", wrote, result.RequeueAfter,
			mostRefusals, problemAgain)
	}
	set := s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonIntentRefused)
	if set.Status.Failing != 5 {
		t.Errorf("set cache reports %d failing nodes, want 5: none has an intent", set.Status.Failing)
	}
	for range 5 {
		if wrote, _ := s.pass(); strings.Contains(wrote, "status") {
			t.Errorf("set cache wrote %q, want no status: as many nodes are refused as before", wrote)
		}
	}
}

func TestANodeWhoseIntentIsRefusedKeepsNoOtherWaiting(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"), newNode("b"), newNode("c"))
	s.refuse = func(name string) bool { return name == "cache-a" }
	s.pass()
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := s.Live.List(t.Context(), intents); err != nil {
		t.Fatal(err)
	}
	if len(intents.Items) != 2 {
		t.Errorf("the intents are %v, want those of b and c", intents.Items)
	}
	s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonIntentRefused)
}

func TestAStatusThatTheAPIServerHasNewerIsReportedAgain(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"))
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := s.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache"}, set); err != nil {
		t.Fatal(err)
	}
	set.Annotations = map[string]string{"changed": "meanwhile"}
	if err := s.Live.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if _, result := s.pass(); result.RequeueAfter != settle {
		t.Errorf("set cache comes again in %s, want %s: its status was not written", result.RequeueAfter, settle)
	}
	s.expectPass("status cache")
}

func TestASetThatHasChangedMeanwhileDeletesNothing(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"))
	s.pass()
	s.finish("cache-a")
	changed := &volumesv1alpha1.VolumeAttachmentIntentSet{}
	if err := s.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache"}, changed); err != nil {
		t.Fatal(err)
	}
	outdated := changed.DeepCopy()
	outdated.Spec.Template.Spec.ReadOnly = true
	changed.Generation++
	if err := s.Live.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	intent := newSituation().newIntent("a")
	if err := s.Live.Get(t.Context(), client.ObjectKeyFromObject(intent), intent); err != nil {
		t.Fatal(err)
	}
	s.Show(outdated, newNode("a"), intent)
	if got, _ := s.pass(); strings.Contains(got, "delete") {
		t.Errorf("set cache wrote %q by an earlier template, want nothing deleted", got)
	}
}

func TestASetThatIsAnotherOneOrGoesMeanwhileDeletesNothing(t *testing.T) {
	for name, change := range map[string]func(*volumesv1alpha1.VolumeAttachmentIntentSet){
		"created again": func(set *volumesv1alpha1.VolumeAttachmentIntentSet) { set.UID = "later" },
		"being deleted": func(set *volumesv1alpha1.VolumeAttachmentIntentSet) {
			set.DeletionTimestamp, set.Finalizers = ptr.To(metav1.Now()), []string{metav1.FinalizerOrphanDependents}
		},
	} {
		t.Run(name, func(t *testing.T) {
			live, intent := newSet(), newSituation().newIntent("a")
			change(live)
			s := newServer(t, live, intent)
			s.Show(newSet(), intent) // no Node is there, so the intent is left over
			if got, _ := s.pass(); strings.Contains(got, "delete") {
				t.Errorf("set cache, which is %s, wrote %q; want nothing deleted", name, got)
			}
		})
	}
}

func TestAnIntentIsKeptIfItsNodeCannotBeRead(t *testing.T) {
	s := newServer(t, newSet(), newSituation().newIntent("a"))
	down := errors.New("the API server is away")
	s.controller.Reader = interceptor.NewClient(s.Live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, node := o.(*corev1.Node); node {
				return down
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "cache"}}
	if _, err := s.controller.Reconcile(t.Context(), request); !errors.Is(err, down) || slices.Contains(s.writes,
		"delete cache-a") {
		t.Errorf("set whose node cannot be read: error %v, writes %q; want %v and nothing deleted", err, s.writes, down)
	}
}

func TestAnIntentGoesIfItsNodeIsKnownToGoOnceItIsReadLive(t *testing.T) {
	goes := newNode("a")
	goes.DeletionTimestamp, goes.Finalizers = ptr.To(metav1.Now()), []string{"example.com/machine"}
	intent := newSituation().newIntent("a")
	s := newServer(t, newSet(), goes, intent)
	s.expectPass("delete cache-a, status cache")
}

func TestASetThatIsBeingDeletedIsLeftToGarbageCollection(t *testing.T) {
	set := newSet()
	set.DeletionTimestamp, set.Finalizers = &metav1.Time{Time: time.Now()}, []string{"foregroundDeletion"}
	newServer(t, set, newNode("a")).expectPass("")
}

func TestEachNodeGetsAClaimOfItsOwnThatIsKept(t *testing.T) {
	set := newSet()
	set.Spec.Template.Spec.Volume = nil
	set.Spec.ClaimTemplate = &volumesv1alpha1.ClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cache-b"}}
	s := newServer(t, set, newNode("a"), newNode("b"), foreign)
	s.expectPass("create cache-a, create cache-a, status cache")
	s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonNameTaken)
	claim, intent := &corev1.PersistentVolumeClaim{}, &volumesv1alpha1.VolumeAttachmentIntent{}
	key := client.ObjectKey{Namespace: "ns", Name: "cache-a"}
	for _, o := range []client.Object{claim, intent} {
		if err := s.Live.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
	}
	if len(claim.OwnerReferences) > 0 || intent.Spec.Volume.PersistentVolumeClaim.ClaimName != "cache-a" {
		t.Errorf("claim cache-a has owners %v and the intent names claim %s, want no owner and cache-a",
			claim.OwnerReferences, intent.Spec.Volume.PersistentVolumeClaim.ClaimName)
	}
	// The node goes and comes back: its intent is another one, its claim the same.
	if err := s.Live.Delete(t.Context(), newNode("a")); err != nil {
		t.Fatal(err)
	}
	intent.Finalizers = nil
	if err := s.Live.Update(t.Context(), intent); err != nil {
		t.Fatal(err)
	}
	s.Sync()
	s.pass()
	if err := s.Live.Create(t.Context(), newNode("a")); err != nil {
		t.Fatal(err)
	}
	s.Sync()
	if got, _ := s.pass(); !strings.HasPrefix(got, "create cache-a, status") {
		t.Errorf("set cache wrote %q, want one intent created and no claim", got)
	}
}

func TestAnOrphanOfTheSetIsAdopted(t *testing.T) {
	orphan := newSituation().newIntent("a")
	hasNoController(orphan)
	s := newServer(t, newSet(), newNode("a"), orphan)
	s.expectPass("patch cache-a, status cache")
	if err := s.Live.Get(t.Context(), client.ObjectKeyFromObject(orphan), orphan); err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(orphan, newSet()) {
		t.Errorf("intent cache-a has owners %v, want the set as its controller", orphan.OwnerReferences)
	}
}

func TestAnIntentWhoseDeletionIsRefusedIsDeletedLater(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"))
	s.pass()
	if err := s.Live.Delete(t.Context(), newNode("a")); err != nil {
		t.Fatal(err)
	}
	s.Sync()
	s.refuseDelete = true
	s.expectPass("delete cache-a, status cache")
	s.expectReady(metav1.ConditionFalse, volumesv1alpha1.ReasonIntentRefused)
	s.expectPass("delete cache-a, status cache")
}

func TestAnIntentThatWasCreatedAgainIsNotDeletedForItsPredecessor(t *testing.T) {
	s := newServer(t, newSet(), newNode("a"))
	s.pass()
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := s.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "cache-a"}, intent); err != nil {
		t.Fatal(err)
	}
	again := intent.DeepCopy()
	again.UID = "again"
	if err := s.Live.Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if err := s.Live.Delete(t.Context(), newNode("a")); err != nil {
		t.Fatal(err)
	}
	s.Show(newSet(), intent)
	s.pass()
	if err := s.Live.Get(t.Context(), client.ObjectKeyFromObject(again), again); err != nil ||
		!again.DeletionTimestamp.IsZero() {
		t.Errorf("intent cache-a is gone or goes, error %v; want it kept: the one that was decided on had another UID", err)
	}
}

func TestAnOrphanIsAdoptedOnlyAtTheVersionThatWasDecidedOn(t *testing.T) {
	orphan := newSituation().newIntent("a")
	hasNoController(orphan)
	s := newServer(t, newSet(), newNode("a"), orphan)
	changed := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := s.Live.Get(t.Context(), client.ObjectKeyFromObject(orphan), changed); err != nil {
		t.Fatal(err)
	}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"}
	changed.OwnerReferences = append(changed.OwnerReferences, other)
	if err := s.Live.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	s.pass()
	if err := s.Live.Get(t.Context(), client.ObjectKeyFromObject(orphan), changed); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(changed.OwnerReferences, other) {
		t.Errorf("intent cache-a has owners %v, want the one that came meanwhile kept", changed.OwnerReferences)
	}
}
