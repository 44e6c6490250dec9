/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// indexer gives a fake client the manager's indexes.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	i.WithIndex(o, field, keys)
	return nil
}

// calls counts what a client is asked for, such as "delete".
type calls map[string]int

// holding is a client that has these objects, and its calls.
func holding(t *testing.T, objects ...client.Object) (client.WithWatch, calls) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	counts := calls{}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			counts["get"]++
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			counts["list"]++
			err := c.List(ctx, l, opts...)
			counts["listed"] += lengthOf(l)
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			counts["create"]++
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			counts["delete"]++
			return c.Delete(ctx, o, opts...)
		},
	})
	if err := index.Register(t.Context(), indexer{b}); err != nil {
		t.Fatal(err)
	}
	return controllertest.Strict(t, b.Build()), counts
}

func lengthOf(l client.ObjectList) int {
	if intents, ok := l.(*volumesv1alpha1.VolumeAttachmentIntentList); ok {
		return len(intents.Items)
	}
	return 0
}

// between is a controller between what its cache has and what is there live.
func between(
	cache client.Client, live client.Reader,
) (*Controller, *events.FakeRecorder, *testingclock.FakePassiveClock) {
	recorder := events.NewFakeRecorder(100)
	now := testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	return &Controller{Client: cache, Reader: live, Events: recorder, Clock: now, Enabled: true}, recorder, now
}

func (w *world) objects() []client.Object {
	return []client.Object{w.pod, w.node, w.claim, w.pv}
}

func (w *world) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "p"}}
}

// pass runs one pass and returns what was reported in it.
func pass(
	t *testing.T, c *Controller, r *events.FakeRecorder, req reconcile.Request,
) (told []string, again time.Duration) {
	t.Helper()
	result, err := c.Reconcile(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for len(r.Events) > 0 {
		told = append(told, <-r.Events)
	}
	return told, result.RequeueAfter
}

func TestADeletedIntentEnqueuesItsPodOnlyIfThePodExists(t *testing.T) {
	w := newWorld()
	intent := w.stands("uid-1")
	for _, test := range []struct {
		name    string
		pods    []client.Object
		enabled bool
		wakes   int
	}{
		{"the pod is there", []client.Object{w.pod}, true, 1},
		{"the pod is gone", nil, true, 0},
		{"pods are not looked at", nil, false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			cache, _ := holding(t, test.pods...)
			live, _ := holding(t)
			c, _, _ := between(cache, live)
			c.Enabled = test.enabled
			c.over.Store(w.request().NamespacedName, types.UID("uid-1"))
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			c.intentHandler().Delete(t.Context(), event.DeleteEvent{Object: intent}, q)
			if q.Len() != test.wakes {
				t.Errorf("pods that the deleted intent wakes: %d, want %d", q.Len(), test.wakes)
			}
			if _, left := c.over.Load(w.request().NamespacedName); left != (test.wakes > 0) {
				t.Errorf("the end of pod p is remembered: %t, want %t", left, test.wakes > 0)
			}
		})
	}
}

func TestAnIntentIsKeptIfItsPodIsMissingInTheCacheOnly(t *testing.T) {
	w := newWorld()
	intent := w.stands("uid-1")
	cache, did := holding(t, intent)
	live, _ := holding(t, w.pod)
	c, recorder, _ := between(cache, live)
	pass(t, c, recorder, w.request())
	if did["delete"] != 0 {
		t.Errorf("%d intents were deleted of pod p, which exists live; want none", did["delete"])
	}
	// Without an answer nothing is known.
	c.Reader = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("the API server is away")
		},
	})
	if _, err := c.Reconcile(t.Context(), w.request()); err == nil || did["delete"] != 0 {
		t.Errorf("pod p cannot be read: error %v, %d intents deleted; want an error and none", err, did["delete"])
	}
	c.Reader, _ = holding(t)
	pass(t, c, recorder, w.request())
	if did["delete"] != 1 {
		t.Errorf("%d intents were deleted of pod p, which is gone; want 1", did["delete"])
	}
}

func TestATerminatedPodIsNotReadAgainAndNothingIsDeletedTwice(t *testing.T) {
	w := newWorld()
	intent := w.stands("uid-1")
	// A foreign finalizer keeps the intent, so that it is there in the second pass as a stale cache would have it.
	cache, did := holding(t, intent)
	stale := interceptor.NewClient(cache, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			did["delete"]++
			return nil
		},
	})
	live, asked := holding(t)
	c, recorder, _ := between(stale, live)
	c.over.Store(w.request().NamespacedName, w.pod.UID)
	pass(t, c, recorder, w.request())
	pass(t, c, recorder, w.request())
	if did["delete"] != 1 || asked["get"] != 0 {
		t.Errorf("pod p, which has ended: %d deletes, %d live reads; want 1 and none", did["delete"], asked["get"])
	}
}

func TestNothingIsDecidedOnWhatCannotBeRead(t *testing.T) {
	down := errors.New("the API server is away")
	for _, what := range []client.Object{&corev1.Node{}, &storagev1.CSIDriver{}} {
		w := newWorld()
		cache, did := holding(t, append(w.objects(), w.stands(w.pod.UID))...)
		silent := interceptor.NewClient(cache, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if reflect.TypeOf(o) == reflect.TypeOf(what) {
					return down
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		live, _ := holding(t, w.pod)
		c, _, _ := between(silent, live)
		if _, err := c.Reconcile(t.Context(), w.request()); !errors.Is(err, down) || did["delete"]+did["create"] > 0 {
			t.Errorf("pod p without an answer about a %T: error %v, %d deletes, %d creates; want %v and neither", what, err,
				did["delete"], did["create"], down)
		}
	}
}

func TestAnIntentWhoseDeletionIsRefusedIsDeletedLater(t *testing.T) {
	w := newWorld()
	intent := w.stands("uid-1")
	cache, did := holding(t, intent)
	refuse := apierrors.NewServiceUnavailable("away")
	refusing := interceptor.NewClient(cache, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if refuse != nil {
				return refuse
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	live, _ := holding(t)
	c, recorder, _ := between(refusing, live)
	if _, err := c.Reconcile(t.Context(), w.request()); err == nil {
		t.Error("the deletion of an intent is refused: no error, want one, which retries")
	}
	refuse = nil
	pass(t, c, recorder, w.request())
	if did["delete"] != 1 {
		t.Errorf("%d intents were deleted after a refusal, want 1", did["delete"])
	}
}

func TestAnIntentThatWasCreatedAgainIsNotDeletedForItsPredecessor(t *testing.T) {
	w := newWorld()
	later := w.stands("uid-1")
	earlier := later.DeepCopy()
	later.UID, earlier.UID = "later", "earlier"
	cache, did := holding(t, later)
	c, _, _ := between(cache, cache)
	if err := c.delete(t.Context(), []*volumesv1alpha1.VolumeAttachmentIntent{earlier}); err != nil || did["delete"] > 0 {
		t.Errorf("%d intents were deleted, error %v; want none: the one that was decided on is gone", did["delete"], err)
	}
}

func TestAnIntentOfAnotherPodUnderTheNameIsAProblem(t *testing.T) {
	w := newWorld()
	for uid, taken := range map[types.UID]bool{w.pod.UID: false, "another": true} {
		intent := w.wish()
		there := intent.DeepCopy()
		there.OwnerReferences[0].UID = uid
		there.Labels[volumesv1alpha1.PodUIDLabel] = string(uid)
		cache, _ := holding(t, there)
		c, _, _ := between(cache, cache)
		if p, err := c.createOne(t.Context(), intent); (p != nil) != taken || err != nil {
			t.Errorf("intent of pod %s, where that of pod %s has the name: problem %v, error %v; want one: %t", w.pod.UID,
				uid, p, err, taken)
		}
	}
}

func TestAProblemIsReportedOnceAndAgainWhileItLasts(t *testing.T) {
	w := newWorld()
	cache, did := holding(t, w.pod, w.node)
	live, asked := holding(t, w.pod, w.node)
	c, recorder, now := between(cache, live)
	told, again := pass(t, c, recorder, w.request())
	if len(told) != 1 || !strings.Contains(told[0], "FailedAttachVolume") ||
		!strings.Contains(told[0], "claim ns/c does not exist") || again != repeat {
		t.Fatalf("first events about pod p: %q, again in %s; want one FailedAttachVolume for ns/c, again in %s", told, again,
			repeat)
	}
	now.SetTime(now.Now().Add(10 * time.Minute))
	before := asked["get"]
	if told, again = pass(t, c, recorder, w.request()); len(told) != 0 || again != repeat-10*time.Minute ||
		asked["get"] != before {
		t.Errorf("events about pod p ten minutes later: %q, again in %s, %d live reads; want none, again in %s, none", told,
			again, asked["get"]-before, repeat-10*time.Minute)
	}
	now.SetTime(now.Now().Add(again))
	if told, again = pass(t, c, recorder, w.request()); len(told) != 1 || again != repeat {
		t.Errorf("events about pod p after %s: %q, again in %s; want one, again in %s", repeat, told, again, repeat)
	}
	if did["create"] != 0 {
		t.Errorf("%d intents were created for pod p without its claim, want none", did["create"])
	}
}

func TestAProblemThatOnlyTheCacheHasIsNotReported(t *testing.T) {
	w := newWorld()
	cache, _ := holding(t, w.pod, w.node)
	live, _ := holding(t, w.objects()...)
	c, recorder, _ := between(cache, live)
	if told, _ := pass(t, c, recorder, w.request()); len(told) != 0 {
		t.Errorf("events about a problem that only the cache has: %q, want none", told)
	}
	// When the cache has it too, it is over; the same problem later is reported.
	for _, o := range []client.Object{w.claim, w.pv} {
		o.SetResourceVersion("")
		if err := cache.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, c, recorder, w.request())
	if err := cache.DeleteAllOf(t.Context(), &volumesv1alpha1.VolumeAttachmentIntent{},
		client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	if err := cache.Delete(t.Context(), w.claim, client.Preconditions{UID: &w.claim.UID}); err != nil {
		t.Fatal(err)
	}
	c.Reader = cache
	if told, _ := pass(t, c, recorder, w.request()); len(told) != 1 {
		t.Errorf("events about pod p, whose claim is gone later: %q, want one", told)
	}
}

func TestAnIntentThatTheAPIServerRefusesIsReportedAndRetried(t *testing.T) {
	resource := schema.GroupResource{Group: "volumes.hawser.io", Resource: "volumeattachmentintents"}
	terminating := apierrors.NewForbidden(resource, "p", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, refusal := range []struct {
		err         error
		told, again bool
	}{
		{apierrors.NewForbidden(resource, "p", errors.New("exceeded quota")), true, true},
		{apierrors.NewServiceUnavailable("away"), false, true},
		// The pod goes with its namespace.
		{terminating, false, false},
	} {
		w := newWorld()
		cache, _ := holding(t, w.objects()...)
		refusing := interceptor.NewClient(cache, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return refusal.err
			},
		})
		live, _ := holding(t, w.objects()...)
		c, recorder, _ := between(refusing, live)
		_, err := c.Reconcile(t.Context(), w.request())
		if (err != nil) != refusal.again {
			t.Errorf("create refused with %v: error %v, want one: %t", refusal.err, err, refusal.again)
		}
		if told := len(recorder.Events) > 0; told != refusal.told {
			t.Errorf("create refused with %v: event %t, want %t", refusal.err, told, refusal.told)
		}
	}
}

func TestTheCostOfAReconcileDoesNotDependOnOtherObjects(t *testing.T) {
	cost := func(others int) (string, int) {
		w := newWorld()
		objects := w.objects()
		for i := range others {
			other := newWorld()
			other.pod.Name, other.pod.UID = fmt.Sprintf("p-%d", i), ""
			other.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = fmt.Sprintf("c-%d", i)
			objects = append(objects, other.pod)
			other.claim.Name, other.pv.Name = fmt.Sprintf("c-%d", i), fmt.Sprintf("pv-%d", i)
			objects = append(objects, other.claim, other.pv)
			intent := other.stands("other")
			intent.OwnerReferences[0].Name = other.pod.Name
			objects = append(objects, intent)
		}
		cache, did := holding(t, objects...)
		live, didLive := holding(t, objects...)
		c, recorder, _ := between(cache, live)
		pass(t, c, recorder, w.request())
		return fmt.Sprint(did, didLive), len(c.ofNode(t.Context(), &corev1.Node{})) + len(c.ofClaim(t.Context(), w.claim)) +
			len(c.ofVolume(t.Context(), w.pv))
	}
	alone, woken := cost(0)
	among, wokenAmong := cost(100)
	if alone != among || woken != 2 || wokenAmong != 2 {
		t.Errorf("requests: alone %s, among a hundred %s, want the same; changes of claim and volume wake %d, then %d "+
			"pods, want 2", alone, among, woken, wokenAmong)
	}
}

func TestForceDetachAfterHasToBeWhatAnIntentMayHold(t *testing.T) {
	for after, ok := range map[time.Duration]bool{
		0: true, time.Minute: true, 6 * time.Minute: true, 720 * time.Hour: true,
		-time.Minute: false, 59 * time.Second: false, 721 * time.Hour: false,
	} {
		if err := (&Controller{ForceDetachAfter: after}).check(); (err == nil) != ok {
			t.Errorf("force detach after %s: error %v, want it accepted: %t", after, err, ok)
		}
	}
}
