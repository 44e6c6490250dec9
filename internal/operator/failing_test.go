/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"fmt"
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
