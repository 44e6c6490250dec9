/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// under is an attachment of the shared name.
func under(uid types.UID, node, driver string) *storagev1.VolumeAttachment {
	va := attachedTo(volume.AttachmentName("d", "h", "a"), uid)
	va.Spec = storagev1.VolumeAttachmentSpec{NodeName: node, Attacher: driver}
	return va
}

func TestAnAttachmentIsMadeForTheNodeAndTheVolumeAndHeldFromTheStart(t *testing.T) {
	c, _ := over(t, reported("a"))
	f, n := factsOf(t, c)
	f.Exclusive = true
	if err := c.createAttachment(t.Context(), f, n); err != nil || n.Wait != nil {
		t.Fatalf("attaching volume v to node a: error %v, wait %+v; want neither", err, n.Wait)
	}
	va := liveAttachment(t, c, volume.AttachmentName("d", "h", "a"))
	if va == nil || va.Spec.Attacher != "d" || va.Spec.NodeName != "a" ||
		va.Spec.Source.PersistentVolumeName == nil || *va.Spec.Source.PersistentVolumeName != "pv" {
		t.Fatalf("attachment of volume v to node a: %+v, want attacher d, node a and PersistentVolume pv", va)
	}
	if !decision.IsHeld(va) || va.Annotations[volumesv1alpha1.VolumeNameAnnotation] != "v" {
		t.Errorf("annotations of attachment %s: %v, want a hold and volume name v", va.Name, va.Annotations)
	}
	if len(n.Attachments) != 1 || !n.Attachments[0].Held {
		t.Errorf("attachments of node a in the facts: %+v, want one that is held", n.Attachments)
	}
	if c.ownWrites.newer(va.Name, "") == nil {
		t.Errorf("own write of attachment %s is not known to the next pass, want it known before the cache has it", va.Name)
	}
	if lock, err := c.Locks.Read(t.Context(), "v"); err != nil || lock.Holder != "a" {
		t.Errorf("lock of volume v: %+v, error %v; want holder a", lock, err)
	}
}

func TestNothingIsAttachedForWhichTheLockCannotBeTaken(t *testing.T) {
	c, _ := over(t, lockObject("v", exclusive.Lock{Holder: "b"}), entryIn(reported("b"), isThere, "2", ""))
	f, n := factsOf(t, c)
	f.Exclusive, f.Lock = true, lockOn("b")
	if err := c.createAttachment(t.Context(), f, n); err != nil || n.Wait == nil || len(n.Attachments) > 0 {
		t.Errorf("attaching volume v, locked by node b, to node a: wait %+v, attachments %v, error %v; want a wait alone",
			n.Wait, n.Attachments, err)
	}
	if va := liveAttachment(t, c, volume.AttachmentName("d", "h", "a")); va != nil {
		t.Errorf("volume v, locked by node b, has an attachment to node a: %+v, want none", va.Spec)
	}
}

func TestAnAttachmentThatWasThereFirst(t *testing.T) {
	for _, test := range []struct {
		name   string
		is     *storagev1.VolumeAttachment
		taken  bool
		reason string
	}{
		{"is taken", under("2", "a", "d"), true, ""},
		{"is not of another node", under("2", "b", "d"), false, volumesv1alpha1.ReasonAttachFailed},
		{"is not of another driver", under("2", "a", "e"), false, volumesv1alpha1.ReasonAttachFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, test.is)
			f, n := factsOf(t, c)
			if err := c.createAttachment(t.Context(), f, n); err != nil {
				t.Fatal(err)
			}
			if taken := n.AttachmentOf("2") != nil; taken != test.taken || taken == (n.Wait != nil) {
				t.Errorf("attachment that %s: taken %t, wait %+v; want taken %t, or a wait", test.name, taken, n.Wait, test.taken)
			}
			if n.Wait != nil && (n.Wait.Reason != test.reason || !strings.Contains(n.Wait.Message, test.is.Spec.NodeName)) {
				t.Errorf("attachment that %s: wait %+v, want reason %s and the name of node %s", test.name, n.Wait, test.reason,
					test.is.Spec.NodeName)
			}
		})
	}
	t.Run("and is gone already is waited out", func(t *testing.T) {
		c, _ := over(t, under("2", "a", "d"))
		f, n := factsOf(t, c)
		none, _ := over(t)
		c.Reader = none.Client
		if err := c.createAttachment(t.Context(), f, n); err != nil || n.Wait == nil || len(n.Attachments) > 0 {
			t.Errorf("attaching volume v while the old attachment goes: wait %+v, attachments %v, error %v; want a wait alone",
				n.Wait, n.Attachments, err)
		}
	})
}

func TestAnAttachmentThatWasThereFirstIsNotTakenWhileItsPersistentVolumeIsUnknown(t *testing.T) {
	va := under("2", "a", "d")
	va.Spec.Source.PersistentVolumeName = ptr.To("earlier")
	c, _ := over(t, va)
	f, n := factsOf(t, c)
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption,
		) error {
			if _, ok := o.(*corev1.PersistentVolume); ok {
				return errDown
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	if err := c.createAttachment(t.Context(), f, n); !errors.Is(err, errDown) {
		t.Errorf("attaching volume v to node a: error %v, expected %v", err, errDown)
	}
}

func TestAnAttachmentIsChangedOnlyAsItWasDecidedOn(t *testing.T) {
	foreign := attachedTo("va-1", "1")
	foreign.Annotations = nil
	for _, test := range []struct {
		name  string
		other func(t *testing.T, c *Controller)
		held  bool
	}{
		{"nobody was first", func(*testing.T, *Controller) {}, true},
		{"somebody changed it meanwhile", func(t *testing.T, c *Controller) {
			va := liveAttachment(t, c, "va-1")
			va.Labels = map[string]string{"changed": "meanwhile"}
			if err := c.Client.Update(t.Context(), va); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"it was deleted meanwhile", func(t *testing.T, c *Controller) {
			remove(t, c, liveAttachment(t, c, "va-1"))
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, foreign.DeepCopy())
			f, n := factsOf(t, c)
			a := n.Attachments[0]
			test.other(t, c)
			if err := c.hold(t.Context(), f, n, &a); err != nil {
				t.Fatal(err)
			}
			if n.Attachments[0].Held != test.held || (n.Wait == nil) != test.held {
				t.Errorf("attachment va-1 in the facts: held %t, wait %+v; want held %t, or a wait", n.Attachments[0].Held, n.Wait,
					test.held)
			}
			va := liveAttachment(t, c, "va-1")
			if va != nil && (decision.IsHeld(va) != test.held ||
				(va.Annotations[volumesv1alpha1.VolumeNameAnnotation] == "v") != test.held) {
				t.Errorf("annotations of attachment va-1: %v, want a hold and volume name v: %t", va.Annotations, test.held)
			}
			if noted := c.ownWrites.newer("va-1", a.ResourceVersion) != nil; noted != test.held {
				t.Errorf("own write of attachment va-1 is known to the next pass: %t, want %t", noted, test.held)
			}
		})
	}
}

// TestAChangeNamesTheAttachmentThatItIsMeantFor, because another one may have its name by the time that it arrives.
func TestAChangeNamesTheAttachmentThatItIsMeantFor(t *testing.T) {
	c, _ := over(t, attachedTo("va-1", "1"))
	f, n := factsOf(t, c)
	var sent string
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, patch client.Patch,
			_ ...client.PatchOption) error {
			body, err := patch.Data(o)
			sent = o.GetName() + " " + string(body)
			return err
		},
	})
	a := n.Attachments[0]
	if err := c.hold(t.Context(), f, n, &a); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"va-1 ", `"uid":"1"`, `"resourceVersion":"` + a.ResourceVersion + `"`} {
		if !strings.Contains(sent, part) {
			t.Errorf("patch of attachment va-1: %s, want %s in it", sent, part)
		}
	}
}

func TestAnAttachmentThatCannotBeCreatedIsAnError(t *testing.T) {
	f, n := single("x")
	c, _ := over(t, append(stored(f), reported("a"))...)
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return errDown },
	})
	if err := c.attach(t.Context(), f, n); !errors.Is(err, errDown) {
		t.Errorf("attaching volume v to node a: error %v, expected %v", err, errDown)
	}
}

func TestAttachedIsNotWrittenWhileTheUsersOfTheVolumeAreUnknown(t *testing.T) {
	f, n := single("x")
	va("1", "held", "attached")(n)
	c, _ := over(t, append(stored(f), reported("a"), attachedTo("va-1", "1"))...)
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*volumesv1alpha1.NodeVolumeStateList); ok {
				return errDown
			}
			return w.List(ctx, list, opts...)
		},
	})
	if err := c.confirmAttached(t.Context(), f, n, &n.Attachments[0]); !errors.Is(err, errDown) {
		t.Errorf("confirming volume v on node a: error %v, expected %v", err, errDown)
	}
	if e := handshake.AttachmentOf(liveState(t, c, "a"), "v"); e != nil {
		t.Errorf("entry of volume v on node a: %+v, want none while its users are unknown", e)
	}
}
