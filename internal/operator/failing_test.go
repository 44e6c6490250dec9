/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/usage"
)

// failing is a removal on an API server that refuses one kind of request.
type failing struct {
	*meanwhile
	// writes of the status so far.
	writes int
}

// newFailing has a VolumeManager that is being deleted. The error is the answer to requests such as "patch Pod".
func newFailing(t *testing.T, request string, refusal error, objects ...client.Object) *failing {
	t.Helper()
	vm := &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster", volumesv1alpha1.RemovalFinalizer)}
	vm.Spec.Removal = volumesv1alpha1.RemovalDrain
	vm.Spec.AttachMode = volumesv1alpha1.AttachCoexist
	f := &failing{meanwhile: newMeanwhile(t, append(objects, vm)...)}
	if err := f.live.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	refuse := func(c client.Client, verb string, o client.Object) error {
		kind, err := c.GroupVersionKindFor(o)
		if err == nil && verb+" "+kind.Kind == request {
			err = refusal
		}
		return err
	}
	f.Client = interceptor.NewClient(f.live, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			if err := refuse(c, "patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := refuse(c, "delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, of string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			f.writes++
			return c.SubResource(of).Update(ctx, o, opts...)
		},
	})
	f.guards, f.Kinds = guards{f.Cache}, Kinds{mutating: true} // everything is served
	f.Namespace, f.podsWatched = "hawser", true
	return f
}

// removed reconciles, and returns the condition Removed and the error.
func (f *failing) removed() (metav1.Condition, error) {
	f.t.Helper()
	_, err := f.Reconcile(f.t.Context(), reconcile.Request{})
	vm := read(f.meanwhile, &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")})
	c := meta.FindStatusCondition(vm.Status.Conditions, volumesv1alpha1.ConditionRemoved)
	if c == nil {
		return metav1.Condition{}, err
	}
	return *c, err
}

func TestAStageOfARemovalThatFailsIsInItsConditionAndIsWrittenOnce(t *testing.T) {
	gated := func(name string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: with(name)}
		pod.Namespace = "default"
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: volumesv1alpha1.PlacementGate}}
		return pod
	}
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: with("data")}
	intent.Namespace = "default"
	forced := &storagev1.VolumeAttachment{ObjectMeta: with("csi-1", volumesv1alpha1.ForcedAwayFinalizer)}
	manager := newObject(operatorDeployment)
	manager.SetNamespace("hawser")
	manager.SetName("hawser-manager")
	for _, test := range []struct {
		request      string
		objects      []client.Object
		reason, text string
	}{
		{"delete VolumeAttachmentIntent", []client.Object{intent}, volumesv1alpha1.ReasonDraining,
			"(intent default/data). A step fails and is tried again: deleting intent default/data: refused"},
		{"patch Pod", []client.Object{gated("a"), gated("b")}, volumesv1alpha1.ReasonStoppingPrograms,
			"tried again: lifting the gate of pod default/a: refused; lifting the gate of pod default/b: refused"},
		{"delete Deployment", []client.Object{manager}, volumesv1alpha1.ReasonStoppingPrograms,
			"a step fails and is tried again: deleting hawser-manager: refused"},
		{"patch VolumeAttachment", []client.Object{forced}, volumesv1alpha1.ReasonCleaningUp,
			"a step fails and is tried again: removing the holds on attachments: VolumeAttachment /csi-1: refused"},
	} {
		t.Run(test.request, func(t *testing.T) {
			f := newFailing(t, test.request, errors.New("refused"), test.objects...)
			if got, err := f.removed(); err == nil || got.Reason != test.reason || !strings.Contains(got.Message, test.text) {
				t.Errorf("condition Removed: %s, %q, error %v; want %s with %q, and an error", got.Reason, got.Message, err,
					test.reason, test.text)
			}
			before := f.writes
			if got, err := f.removed(); err == nil || f.writes != before {
				t.Errorf("the same failure again: %d more writes of the status (%q), error %v; want none, and an error",
					f.writes-before, got.Message, err)
			}
		})
	}
}

// inAnotherOrder is a cache that lists the objects in the reverse order.
func inAnotherOrder(c client.WithWatch) cacheOfReader {
	return cacheOfReader{reader: interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				return err
			}
			slices.Reverse(items)
			return meta.SetList(list, items)
		}})}
}

// Each write of the status leads to a reconcile at once. What differs only in its order would be written without end.
func TestARemovalThatWaitsWritesItsStatusOnce(t *testing.T) {
	var intents, agents []client.Object
	for i := range 7 {
		intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: with(fmt.Sprint("data-", i))}
		intent.Namespace, intent.Spec.NodeName, intent.Status.UniqueVolumeName = "default", "node-a", "v"
		agent := &corev1.Pod{ObjectMeta: with(fmt.Sprint("hawser-agent-", i))}
		agent.Namespace, agent.Spec.NodeName = "hawser", fmt.Sprint("node-", i)
		agent.Labels = map[string]string{"app.kubernetes.io/component": "agent"}
		intents, agents = append(intents, intent), append(agents, agent)
	}
	for _, test := range []struct {
		objects      []client.Object
		reason, text string
	}{
		{intents, volumesv1alpha1.ReasonVolumesInUse, "(intent default/data-0; intent default/data-1; intent " +
			"default/data-2; intent default/data-3; intent default/data-4; and 2 more). Release them"},
		{agents, volumesv1alpha1.ReasonStoppingPrograms, "waiting for the end of pod hawser-agent-0 on node node-0; " +
			"pod hawser-agent-1 on node node-1; pod hawser-agent-2 on node node-2; pod hawser-agent-3 on node node-3; " +
			"pod hawser-agent-4 on node node-4; and 2 more"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			f := newFailing(t, "", nil, test.objects...)
			vm := read(f.meanwhile, &volumesv1alpha1.VolumeManager{ObjectMeta: with("cluster")})
			vm.Spec.Removal = volumesv1alpha1.RemovalRefuse
			if err := f.live.Update(t.Context(), vm); err != nil {
				t.Fatal(err)
			}
			if got, _ := f.removed(); got.Reason != test.reason || !strings.Contains(got.Message, test.text) {
				t.Errorf("condition Removed: %s, %q; want %s with %q", got.Reason, got.Message, test.reason, test.text)
			}
			before := f.writes
			f.Cache = inAnotherOrder(f.live)
			f.guards = guards{f.Cache}
			if got, _ := f.removed(); f.writes != before {
				t.Errorf("the same objects in another order: %d more writes of the status (%q), want none", f.writes-before,
					got.Message)
			}
		})
	}
}

func TestAConditionTakesOnlySoMuchOfWhatIsLeft(t *testing.T) {
	long := used{known: true, uses: []usage.Use{{Node: "a", Volume: strings.Repeat("v", 100_000)}}}
	vm := &volumesv1alpha1.VolumeManager{}
	got := waitsFor(vm, long).Message
	if len(got) > 2*longestList || !strings.HasSuffix(got, "set spec.removal to Drain") {
		t.Errorf("message of a volume with a long name: %d bytes, ends with %q; want at most %d, and the way out at the end",
			len(got), got[len(got)-30:], 2*longestList)
	}
}

func TestARemovalThatCannotReadWhatIsInUseHasThatInItsCondition(t *testing.T) {
	f := newFailing(t, "", nil)
	f.guards = guards{cacheOfReader{reader: interceptor.NewClient(f.live, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("refused")
		}})}}
	want := "it is not known what is in use: listing VolumeAttachmentIntent: refused"
	if got, err := f.removed(); err == nil || got.Reason != volumesv1alpha1.ReasonUseUnknown || got.Message != want {
		t.Errorf("condition Removed: %s, %q, error %v; want %s with %q, and an error", got.Reason, got.Message, err,
			volumesv1alpha1.ReasonUseUnknown, want)
	}
}

// What a removal cleans has no watch: no event would lead to another attempt.
func TestAConflictOfARemovalIsTriedAgain(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "volumeattachments"}, "csi-1", fmt.Errorf("newer"))
	f := newFailing(t, "patch VolumeAttachment", conflict,
		&storagev1.VolumeAttachment{ObjectMeta: with("csi-1", volumesv1alpha1.ForcedAwayFinalizer)})
	if _, err := f.removed(); !apierrors.IsConflict(err) {
		t.Errorf("reconciling with a conflict about an attachment: error %v, want the conflict, which is tried again", err)
	}
}

func TestTheTextOfErrorsDoesNotDependOnTheirOrder(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	if got := listed(errors.Join(b, a)); got != "a; b" {
		t.Errorf("text of the errors b and a: %q, want %q", got, "a; b")
	}
}
