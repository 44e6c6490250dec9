/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// world is one controller with an API server.
type world struct {
	*testing.T
	*controllertest.API
	controller *Controller
	events     *events.FakeRecorder
	// refuse is the answer to every patch, if it is not nil; to those of the pod refused only, if there is one.
	refuse  error
	refused string
	// meanwhile runs before a patch is answered.
	meanwhile func()
}

// noLocks has no lock of any volume.
type noLocks struct{}

func (noLocks) Known(context.Context, string) (exclusive.Lock, error) { return exclusive.Lock{}, nil }

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{T: t, events: events.NewFakeRecorder(100)}
	b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithStatusSubresource(&corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				if w.meanwhile != nil {
					w.meanwhile()
				}
				if w.refuse != nil && (w.refused == "" || w.refused == o.GetName()) {
					return w.refuse
				}
				return c.Patch(ctx, o, p, opts...)
			},
		})
	w.API = controllertest.New(t, b, objects...)
	w.controller = &Controller{Client: w.Client, Reader: w.Live, Locks: noLocks{}, Events: w.events,
		Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), turns: newTurns()}
	return w
}

// expectRefused reconciles the pod, which the API server does not accept.
func (w *world) expectRefused(name string) {
	w.Helper()
	w.Sync()
	_, err := w.controller.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop",
		Name: name}})
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		w.Fatalf("pod %s: error %v, want the one of the API server, so that the pod is tried again", name, err)
	}
	w.expectGated(w.pod(name), "PlacementRefused", "not in this cluster")
}

// place reconciles the pod on what the API server has now.
func (w *world) place(name string) *corev1.Pod {
	w.Helper()
	w.Sync()
	return w.placeStale(name)
}

// placeStale reconciles the pod on what the cache has.
func (w *world) placeStale(name string) *corev1.Pod {
	w.Helper()
	key := client.ObjectKey{Namespace: "shop", Name: name}
	if _, err := w.controller.Reconcile(w.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		w.Fatalf("reconciling pod %s: %v", key, err)
	}
	return w.pod(name)
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{}
	if err := w.Live.Get(w.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
		w.Fatal(err)
	}
	return pod
}

func (w *world) expectGated(pod *corev1.Pod, reason, message string) {
	w.Helper()
	c := index.Placeable(pod)
	if index.Ungated(pod) || pod.Labels[volumesv1alpha1.GatedLabel] != "true" || c == nil {
		w.Fatalf("pod %s: gates %v, labels %v, condition %v; want it gated with a condition", pod.Name,
			pod.Spec.SchedulingGates, pod.Labels, c)
	}
	if c.Status != corev1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, message) {
		w.Errorf("pod %s: Placeable=%s, %s: %s; want False, %s with %q", pod.Name, c.Status, c.Reason, c.Message, reason,
			message)
	}
}

func (w *world) expectPlaced(pod *corev1.Pod, terms string) {
	w.Helper()
	if !index.Ungated(pod) || pod.Labels[volumesv1alpha1.GatedLabel] != "" {
		w.Fatalf("pod %s: gates %v, labels %v, condition %v; want that its gate and its label are gone", pod.Name,
			pod.Spec.SchedulingGates, pod.Labels, index.Placeable(pod))
	}
	if got := short(ownTerms(pod)); got != terms {
		w.Errorf("pod %s has the terms %q, want %q", pod.Name, got, terms)
	}
	if c := index.Placeable(pod); c != nil && c.Status != corev1.ConditionTrue {
		w.Errorf("pod %s: Placeable=%s, %s; want True", pod.Name, c.Status, c.Reason)
	}
}

// told are the events since the last call.
func (w *world) told() []string {
	var told []string
	for {
		select {
		case e := <-w.events.Events:
			told = append(told, e)
		default:
			return told
		}
	}
}

func inlineVolume(attribute, name string) corev1.Volume {
	return corev1.Volume{Name: "of-" + name, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: map[string]string{attribute: name}}}}
}

// gated is a pod with an inline volume of each of these claims.
func gated(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name),
		Labels: map[string]string{volumesv1alpha1.GatedLabel: "true", "app": "web"}}}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: volumesv1alpha1.PlacementGate}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, inlineVolume(volumesv1alpha1.AttributeClaim, claim))
	}
	return pod
}

// bound is a claim with its volume, in these zones.
func bound(name string, mode corev1.PersistentVolumeAccessMode, zones ...string) []client.Object {
	v := ofClaim(modes(mode))
	if len(zones) > 0 {
		inZones("zone=" + strings.Join(zones, ","))(&v)
	}
	v.claim.Name, v.claim.UID, v.claim.Spec.VolumeName = name, types.UID("claim-"+name), "pv-"+name
	v.pv.Name, v.pv.Spec.ClaimRef.Name, v.pv.Spec.ClaimRef.UID = v.claim.Spec.VolumeName, name, v.claim.UID
	v.pv.Spec.CSI.VolumeHandle = name
	return []client.Object{v.claim, v.pv}
}

func asObjects(nodes []*corev1.Node) []client.Object {
	var objects []client.Object
	for _, n := range nodes {
		objects = append(objects, n)
	}
	return objects
}

func twoNodes() []client.Object { return asObjects(nodesOf("node-a zone=a", "node-b zone=b")) }

func TestAPodIsPlacedInOnePatch(t *testing.T) {
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce, "a")...), gated("web", "data"))...)
	before := w.pod("web")
	pod := w.place("web")
	w.expectPlaced(pod, "zone=a")
	if pod.Labels["app"] != "web" {
		t.Errorf("pod web has the labels %v, want its own kept", pod.Labels)
	}
	if c := index.Placeable(pod); c != nil {
		t.Errorf("pod web has the condition %v, want none: it never waited", c)
	}
	was, err := strconv.Atoi(before.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa(was + 1); pod.ResourceVersion != want {
		t.Errorf("pod web has version %s after version %d, want one write: %s", pod.ResourceVersion, was, want)
	}
	if told := w.told(); len(told) > 0 {
		t.Errorf("events %q, want none", told)
	}
}

func TestAVolumeWithTheLabelOfAZoneLeadsItsPodThere(t *testing.T) {
	objects := bound("data", corev1.ReadWriteOnce)
	objects[1].SetLabels(map[string]string{zone: "a"})
	w := newWorld(t, append(append(twoNodes(), objects...), gated("web", "data"))...)
	w.expectPlaced(w.place("web"), "zone=a")
}

func TestAPodThatWaitsSaysWhyOnceAndIsPlacedWhenItNeedNotWait(t *testing.T) {
	w := newWorld(t, append(twoNodes(), gated("web", "data"))...)
	w.expectGated(w.place("web"), "ClaimNotFound", "volume of-data: claim shop/data does not exist")
	if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "Warning ClaimNotFound") {
		t.Errorf("events %q, want one that the claim does not exist", told)
	}
	since := index.Placeable(w.pod("web")).LastTransitionTime
	version := w.pod("web").ResourceVersion
	w.controller.Clock.(*clocktesting.FakePassiveClock).SetTime(time.Unix(2000, 0))
	if pod := w.place("web"); pod.ResourceVersion != version || len(w.told()) > 0 {
		t.Error("pod web was written or reported again, want that only when something changes")
	}
	objects := bound("data", corev1.ReadWriteOnce, "b")
	w.create(objects[0])
	w.expectGated(w.place("web"), "VolumeNotFound", "volume pv-data of claim shop/data does not exist")
	if c := index.Placeable(w.pod("web")); !c.LastTransitionTime.Equal(&since) {
		t.Errorf("Placeable has changed since %s, want %s: it still is False", c.LastTransitionTime, since)
	}
	w.told()
	w.create(objects[1])
	pod := w.place("web")
	w.expectPlaced(pod, "zone=b")
	if c := index.Placeable(pod); c == nil || c.Reason != volumesv1alpha1.ReasonPlaced {
		t.Errorf("pod web has the condition %v, want Placed", c)
	}
	if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "Normal Placed") {
		t.Errorf("events %q, want one that the pod is placed", told)
	}
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		o.SetResourceVersion("")
		if err := w.Live.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

func TestAPodWithGatesOfOthersIsLeftAlone(t *testing.T) {
	queued := gated("web", "data")
	queued.Spec.SchedulingGates = append(queued.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/queue"})
	w := newWorld(t, queued)
	version := w.pod("web").ResourceVersion
	if pod := w.place("web"); pod.ResourceVersion != version || index.Placeable(pod) != nil {
		t.Errorf("pod web was written at version %s: condition %v; want it left alone", version, index.Placeable(pod))
	}
}

func TestOneOfTwoPodsOfAnExclusiveVolumeIsPlacedFirst(t *testing.T) {
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), gated("one", "data"),
		gated("two", "data"))...)
	w.Sync()
	w.expectPlaced(w.placeStale("one"), "")
	// The cache does not show yet that the first has no gate any more.
	w.expectGated(w.placeStale("two"), "VolumeInUseElsewhere", "pod shop/one comes first but has no node yet")
	w.expectGated(w.place("two"), "VolumeInUseElsewhere", "pod shop/one comes first but has no node yet")
	one := w.pod("one")
	one.Spec.NodeName = "node-a"
	w.update(one)
	w.expectGated(w.place("two"), "VolumeInUseElsewhere", "held by node node-a: pod shop/one")
	if err := w.Live.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	w.expectPlaced(w.place("two"), "")
}

func (w *world) update(o client.Object) {
	w.Helper()
	if err := w.Live.Update(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func twoPodsOfAnExclusiveVolume(t *testing.T) *world {
	return newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), gated("one", "data"),
		gated("two", "data"))...)
}

// whileOneIsPlaced reconciles pod two while the gate of pod one is being lifted. It returns whether pod two waited.
func (w *world) whileOneIsPlaced() (waited bool) {
	w.Helper()
	second := make(chan error, 1)
	w.meanwhile = func() {
		w.meanwhile = nil
		go func() {
			_, err := w.controller.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{
				Namespace: "shop", Name: "two"}})
			second <- err
		}()
		synctest.Wait()
		waited = len(second) == 0
	}
	w.Sync()
	w.expectPlaced(w.placeStale("one"), "")
	if err := <-second; err != nil {
		w.Fatal(err)
	}
	return waited
}

func TestAPodThatMayComeFirstWaitsForTheOneThatIsBeingPlaced(t *testing.T) {
	for name, claims := range map[string][]string{"the claim": {"data"}, "one of its claims": {"logs", "data"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, append(append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), bound("logs",
					corev1.ReadWriteOnce)...), gated("one", "data"), gated("two", claims...))...)
				if !w.whileOneIsPlaced() {
					t.Error("pod two was reconciled while pod one was being placed, want that it waits")
				}
				w.expectGated(w.pod("two"), "VolumeInUseElsewhere", "pod shop/one comes first but has no node yet")
			})
		})
	}
}

func TestPodsOfDifferentClaimsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, append(append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), bound("logs",
			corev1.ReadWriteOnce)...), gated("one", "data"), gated("two", "logs"))...)
		if w.whileOneIsPlaced() {
			t.Error("pod two was not reconciled while pod one was being placed, want that it does not wait")
		}
		w.expectPlaced(w.pod("two"), "")
	})
}

func TestAPodIsNotPlacedWithoutTheTurnOfAVolumeThatTheCacheTakesForShared(t *testing.T) {
	data, logs := bound("data", corev1.ReadWriteOnce), bound("logs", corev1.ReadWriteOnce)
	w := newWorld(t, append(append(append(twoNodes(), data...), logs...), gated("web", "data", "logs"))...)
	w.Sync()
	w.Show(append(append(append(twoNodes(), data...), bound("logs", corev1.ReadWriteMany)...), w.pod("web"))...)
	_, err := w.controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop",
		Name: "web"}})
	if err == nil || index.Ungated(w.pod("web")) {
		t.Errorf("pod web: error %v, gates %v; want an error and the gate", err, w.pod("web").Spec.SchedulingGates)
	}
	w.expectPlaced(w.place("web"), "")
}

func TestAPodThatIsDeletedWhileItsGateIsLiftedLeavesTheFirstPlaceToAnother(t *testing.T) {
	one := gated("one", "data")
	one.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), one, gated("two", "data"))...)
	w.meanwhile = func() {
		w.meanwhile = nil
		if err := w.Live.Delete(t.Context(), w.pod("one")); err != nil {
			t.Fatal(err)
		}
	}
	if one := w.place("one"); one.DeletionTimestamp.IsZero() || index.Ungated(one) {
		t.Fatalf("pod one: gates %v, want it gated and being deleted", one.Spec.SchedulingGates)
	}
	w.expectPlaced(w.place("two"), "")
}

func TestAPodThatIsCreatedAgainUnseenTakesTheFirstPlaceOfItsPredecessor(t *testing.T) {
	w := twoPodsOfAnExclusiveVolume(t)
	w.Sync()
	w.expectPlaced(w.placeStale("one"), "")
	if err := w.Live.Delete(t.Context(), w.pod("one")); err != nil {
		t.Fatal(err)
	}
	again := gated("one", "data")
	again.UID = "again"
	w.create(again)
	w.expectPlaced(w.place("one"), "")
}

func TestAPodThatIsGoneUnseenHoldsNothing(t *testing.T) {
	w := twoPodsOfAnExclusiveVolume(t)
	w.Sync()
	w.expectPlaced(w.placeStale("one"), "")
	if err := w.Live.Delete(t.Context(), w.pod("one")); err != nil {
		t.Fatal(err)
	}
	w.expectPlaced(w.placeStale("two"), "")
}

func TestAPatchWhoseAnswerIsMissingHasNoEffectLater(t *testing.T) {
	w := twoPodsOfAnExclusiveVolume(t)
	w.refuse, w.refused = errors.New("connection reset"), "one"
	w.Sync()
	stale := w.pod("one")
	_, err := w.controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(stale)})
	if err == nil || !strings.Contains(err.Error(), "lifting the gate of pod shop/one: connection reset") {
		t.Fatalf("error %v, want that the gate cannot be lifted", err)
	}
	w.expectGated(w.pod("one"), "PlacementRefused", "connection reset")
	w.refuse = nil
	// The patch, which was on its way, arrives.
	if _, err := w.controller.send(t.Context(), stale, nil); !apierrors.IsConflict(err) {
		t.Errorf("the first patch has error %v, want a conflict: another pod may be placed meanwhile", err)
	}
	w.expectPlaced(w.place("two"), "")
	w.expectGated(w.place("one"), "VolumeInUseElsewhere", "pod shop/two comes first")
}

var (
	forbidden = apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("not in this cluster"))
	invalid   = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web",
		field.ErrorList{field.Forbidden(field.NewPath("spec"), "not in this cluster")})
)

func TestAPodThatTheAPIServerRefusesLetsTheOthersOfItsClaimBePlaced(t *testing.T) {
	for name, answer := range map[string]error{"forbidden": forbidden, "invalid": invalid} {
		t.Run(name, func(t *testing.T) {
			w := twoPodsOfAnExclusiveVolume(t)
			w.refuse, w.refused = answer, "one"
			w.expectRefused("one")
			w.expectPlaced(w.place("two"), "")
		})
	}
}

func TestTwoPodsThatAreRefusedDoNotWakeEachOtherForEver(t *testing.T) {
	w := twoPodsOfAnExclusiveVolume(t)
	w.refuse = forbidden
	w.expectRefused("one")
	w.expectRefused("two")
	w.told()
	one, two := w.pod("one").ResourceVersion, w.pod("two").ResourceVersion
	w.expectRefused("one")
	w.expectRefused("two")
	if told := w.told(); w.pod("one").ResourceVersion != one || w.pod("two").ResourceVersion != two || len(told) > 0 {
		t.Errorf("the pods were written, events %q; want neither: an event of one reconciles the other", told)
	}
}

func TestAPodThatTheAPIServerRefusesSaysSoOnce(t *testing.T) {
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce, "a")...), gated("web", "data"))...)
	w.refuse = forbidden
	for range 3 {
		w.expectRefused("web")
	}
	if told := w.told(); len(told) != 1 {
		t.Errorf("events %q, want one", told)
	}
	w.refuse = nil
	pod := w.place("web")
	w.expectPlaced(pod, "zone=a")
	if c := index.Placeable(pod); c.Reason != volumesv1alpha1.ReasonPlaced {
		t.Errorf("pod web has the condition %v, want Placed", c)
	}
}

func TestWhatTheCacheMissesIsReadBeforeAPodIsPlacedAnywhere(t *testing.T) {
	for name, c := range map[string]struct {
		beside []client.Object
		pod    *corev1.Pod
		terms  string
	}{
		"nothing else restricts the pod": {nil, gated("web", "data"), "zone=a"},
		"a full node is excluded":        {[]client.Object{fullNode("node-b")}, gated("web", "data"), "zone=a"},
		"another volume restricts the pod": {bound("logs", corev1.ReadWriteMany, "a", "b"), gated("web", "data", "logs"),
			"zone=a zone=a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := bound("data", corev1.ReadWriteMany, "a")
			beside := append(twoNodes(), c.beside...)
			w := newWorld(t, append(append(slices.Clone(beside), objects...), c.pod)...)
			w.Sync()
			stale := objects[1].DeepCopyObject().(*corev1.PersistentVolume)
			stale.Spec.NodeAffinity = nil
			w.Show(append(beside, objects[0], stale, w.pod("web"))...)
			w.expectPlaced(w.placeStale("web"), c.terms)
		})
	}
}

// fullNode takes no volume of the driver any more.
func fullNode(name string) *storagev1.CSINode {
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Spec.Drivers = []storagev1.CSINodeDriver{{Name: testDriver, NodeID: name,
		Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(0))}}}
	return node
}

// reversing lists nodes in the reverse order every second time: a cache lists them in any order.
func reversing(c client.WithWatch) client.WithWatch {
	reverse := false
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if nodes, ok := list.(*corev1.NodeList); ok {
				if reverse = !reverse; reverse {
					slices.Reverse(nodes.Items)
				}
			}
			return err
		},
	})
}

func TestAPodThatFullNodesKeepWaitingIsReportedOnOnceInWhateverOrderTheyAreListed(t *testing.T) {
	pod := gated("web", "data")
	pod.Spec.Affinity = podWith(nil, "host=node-a,node-b").Spec.Affinity
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), pod, fullNode("node-a"),
		fullNode("node-b"))...)
	w.controller.Client = reversing(w.Client)
	w.expectGated(w.place("web"), "NodeLimitReached", "no other node than node-a, node-b, which")
	version := w.pod("web").ResourceVersion
	for range 2 {
		w.place("web")
	}
	if told := w.told(); len(told) != 1 || w.pod("web").ResourceVersion != version {
		t.Errorf("pod web has version %s after %s, events %q; want no second write and one event",
			w.pod("web").ResourceVersion, version, told)
	}
}

// unanswered are locks that cannot be read.
type unanswered struct{ error }

func (u unanswered) Known(context.Context, string) (exclusive.Lock, error) {
	return exclusive.Lock{}, u.error
}

func TestAPodIsNotPlacedByWhatCannotBeRead(t *testing.T) {
	down := errors.New("the API server is away")
	for what, take := range map[string]func(*world){
		"the lock": func(w *world) { w.controller.Locks = unanswered{down} },
		"the volume": func(w *world) {
			w.controller.Client = interceptor.NewClient(w.Client, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					if _, volume := o.(*corev1.PersistentVolume); volume {
						return down
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
		},
	} {
		w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce, "a")...), gated("web", "data"))...)
		take(w)
		_, err := w.controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop",
			Name: "web"}})
		if !errors.Is(err, down) || index.Ungated(w.pod("web")) {
			t.Errorf("pod web without an answer about %s: error %v, gates %v; want %v and the gate", what, err,
				w.pod("web").Spec.SchedulingGates, down)
		}
	}
}

func TestAGateIsLiftedOnlyAtTheVersionThatWasDecidedOn(t *testing.T) {
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce, "a")...), gated("web", "data"))...)
	w.Sync()
	changed := w.pod("web")
	changed.Spec.NodeSelector = map[string]string{zone: "b"}
	w.update(changed)
	if pod := w.placeStale("web"); index.Ungated(pod) {
		t.Fatal("pod web has no gate any more, want that the decision on an older version has no effect")
	}
	w.expectGated(w.place("web"), "ConstraintsContradict", "no node can have all volumes")
}

func TestAPodWhoseGateWasLiftedIsNotReportedOn(t *testing.T) {
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), gated("web", "data"))...)
	w.Sync()
	w.expectPlaced(w.placeStale("web"), "")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	if err := w.Live.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	// The cache has the pod with its gate, and the claim no more.
	w.Show(append(twoNodes(), gated("web", "data"))...)
	if pod := w.placeStale("web"); index.Placeable(pod) != nil {
		t.Errorf("pod web has the condition %v, want none", index.Placeable(pod))
	}
}

func TestUsersOfAClaimAreFoundHoweverTheyUseIt(t *testing.T) {
	ordinary := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", UID: "other"}}
	ordinary.Spec.NodeName = "node-a"
	ordinary.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	inline := gated("other", "data")
	inline.Spec.SchedulingGates, inline.Spec.NodeName = nil, "node-a"
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other",
		UID: "intent"}}
	intent.Spec.NodeName = "node-a"
	intent.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}
	elsewhere := intent.DeepCopy()
	elsewhere.Namespace, elsewhere.Spec.Volume.PersistentVolumeClaim.ClaimName = "bank", "theirs"
	elsewhere.Status.UniqueVolumeName = "kubernetes.io/csi/" + testDriver + "^data"
	predecessor := intent.DeepCopy()
	predecessor.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "earlier"}
	predecessor.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "earlier",
		Controller: ptr.To(true)}}
	orphaned := intent.DeepCopy()
	orphaned.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "gone"}
	orphaned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "gone", UID: "gone",
		Controller: ptr.To(true)}}
	ended := inline.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	for name, c := range map[string]struct {
		other client.Object
		// holder is part of the message; empty if the pod is placed.
		holder string
	}{
		"a pod with the claim":                 {ordinary, "pod shop/other"},
		"a pod with an inline volume":          {inline, "pod shop/other"},
		"an intent":                            {intent, "intent shop/other"},
		"an intent of another namespace":       {elsewhere, "1 in other namespaces"},
		"an intent of a pod that is gone":      {orphaned, ""},
		"an intent of the pod's predecessor":   {predecessor, ""},
		"a pod that has ended":                 {ended, ""},
		"a pod that is gated itself":           {gated("other", "data"), ""},
		"a pod of the name in another project": {inNamespace(inline, "bank"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), gated("web", "data"),
				c.other)...)
			if pod := w.place("web"); c.holder == "" {
				w.expectPlaced(pod, "")
			} else {
				w.expectGated(pod, "VolumeInUseElsewhere", "held by node node-a: "+c.holder)
			}
		})
	}
}

func inNamespace(pod *corev1.Pod, namespace string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace, pod.UID = namespace, types.UID(namespace)
	return pod
}

func TestWhatANodeStillUsesHoldsTheVolume(t *testing.T) {
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "state"}}
	state.Status.Protocol.ObservedUID = state.UID
	state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "kubernetes.io/csi/" + testDriver + "^data",
		InUse: true}}
	w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), gated("web", "data"), state)...)
	w.expectGated(w.place("web"), "VolumeInUseElsewhere", "still in use on node node-a")
	state.Status.Volumes[0].InUse = false
	w.update(state)
	w.expectPlaced(w.place("web"), "")
}

func TestWhatWasForcedOrDeclaredAwayDoesNotHoldTheVolume(t *testing.T) {
	const name = "kubernetes.io/csi/" + testDriver + "^data"
	for how, away := range map[string]func(*volumesv1alpha1.NodeVolumeState){
		"forced": func(state *volumesv1alpha1.NodeVolumeState) {
			state.Spec.Attachments[0].Evidence = &volumesv1alpha1.DetachEvidence{
				Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
		},
		"declared": func(state *volumesv1alpha1.NodeVolumeState) {
			state.Spec.Attachments[0].DetachedTime = ptr.To(metav1.Now())
			state.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + "attachment": "it is off"}
		},
	} {
		t.Run(how, func(t *testing.T) {
			state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "state"}}
			state.Status.Protocol.ObservedUID = state.UID
			state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: name, AttachmentUID: "attachment",
				State: volumesv1alpha1.AttachmentDetaching}}
			state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: name, InUse: true}}
			away(state)
			w := newWorld(t, append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), gated("web", "data"),
				state)...)
			w.expectPlaced(w.place("web"), "")
		})
	}
}

func TestTheLimitOfADriverIsCountedByItsAttachments(t *testing.T) {
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	csiNode.Spec.Drivers = []storagev1.CSINodeDriver{{Name: testDriver, NodeID: "a",
		Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(2))}},
		{Name: "other", NodeID: "a", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(0))}}}
	attachment := func(name, driver, pv string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: "node-a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
	}
	objects := append(append(twoNodes(), bound("data", corev1.ReadWriteOnce)...), gated("web", "data"), csiNode,
		attachment("1", testDriver, "pv-1"), attachment("2", "other", "pv-2"))
	w := newWorld(t, objects...)
	w.expectPlaced(w.place("web"), "")
	w = newWorld(t, append(slices.Clone(objects), attachment("3", testDriver, "pv-3"))...)
	w.expectPlaced(w.place("web"), "host!node-a")
	w = newWorld(t, append(slices.Clone(objects), attachment("3", testDriver, "pv-data"))...)
	w.expectPlaced(w.place("web"), "")
	gone := attachment("3", testDriver, "pv-3")
	gone.DeletionTimestamp, gone.Finalizers = ptr.To(metav1.Now()), []string{volumesv1alpha1.ForcedAwayFinalizer}
	w = newWorld(t, append(slices.Clone(objects), gone)...)
	w.expectPlaced(w.place("web"), "")
	gone.Spec.Source.PersistentVolumeName = ptr.To("pv-data") // the pod's own volume has to be attached again
	w = newWorld(t, append(slices.Clone(objects), gone, attachment("4", testDriver, "pv-4"))...)
	w.expectPlaced(w.place("web"), "host!node-a")
}

func TestAPodNamesAnIntentOfItsNamespace(t *testing.T) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "data"}}
	intent.Spec.NodeName = "node-b"
	pod := gated("web")
	pod.Spec.Volumes = []corev1.Volume{inlineVolume(volumesv1alpha1.AttributeIntent, "data"),
		inlineVolume(volumesv1alpha1.AttributeIntent, "data"), inlineVolume("intents", "app=web")}
	w := newWorld(t, append(twoNodes(), intent, pod)...)
	w.expectGated(w.place("web"), "IntentNotFound", "intent shop/data does not exist")
	mine := intent.DeepCopy()
	mine.Namespace, mine.Spec.NodeName = "shop", "node-a"
	w.create(mine)
	w.expectPlaced(w.place("web"), "name=node-a")
}
