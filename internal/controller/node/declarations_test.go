/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// declaredState is a node's state in which attachments 1 to 5 are declared released.
func declaredState() *volumesv1alpha1.NodeVolumeState {
	nvs := stateOf("a")
	nvs.Status.Protocol.ObservedUID = nvs.UID
	nvs.Annotations = map[string]string{"other": "1"}
	for _, uid := range []string{"1", "2", "3", "4", "5"} {
		nvs.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+uid] = "scrapped"
	}
	nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{
		{VolumeName: "v1", AttachmentUID: "1", State: volumesv1alpha1.AttachmentDetaching},
	}
	nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v2", AttachmentUID: "2", InUse: true}}
	return nvs
}

func attachmentWithUID(uid types.UID, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-" + string(uid), UID: uid},
		Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")},
		},
	}
}

func TestADeclarationStaysWhileAnythingOnItsNodeNamesTheAttachment(t *testing.T) {
	objects := []client.Object{declaredState(), attachmentWithUID("3", "a"), attachmentWithUID("4", "b")}
	w := over(t, objects, objects)
	recorder := events.NewFakeRecorder(10)
	d := &Declarations{Client: w.Client, Writer: w.Writer, Events: recorder}
	if _, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := w.live.Get(t.Context(), client.ObjectKey{Name: "a"}, nvs); err != nil {
		t.Fatal(err)
	}
	var left []types.UID
	for _, d := range handshake.NodeOf(nvs, "").Declared {
		left = append(left, d.UID)
	}
	if !slices.Equal(left, []types.UID{"1", "2", "3"}) || nvs.Annotations["other"] == "" {
		t.Errorf("declarations on node state a: %v in %v; want 1, 2, 3 and the other annotation", left, nvs.Annotations)
	}
	if len(recorder.Events) != 2 {
		t.Errorf("events for two declarations that were removed: %d, want 2", len(recorder.Events))
	}
}

func TestADeclarationIsTakenOffWithAnEntryOnlyWhereNothingElseNamesTheAttachment(t *testing.T) {
	nvs := declaredState()
	for _, uid := range []types.UID{"1", "2", "3"} {
		nodestate.SettleDeclaration(nvs, uid)
	}
	for uid, stays := range map[types.UID]bool{"1": true, "2": true, "3": false, "4": true} {
		if _, declared := handshake.NodeOf(nvs, "").Declares(uid); declared != stays {
			t.Errorf("attachment %s is declared on node state a: %t, want %t", uid, declared, stays)
		}
	}
}

func TestADeletedAttachmentIsReconciledOnlyWhereSomethingIsDeclared(t *testing.T) {
	w := over(t, []client.Object{declaredState(), stateOf("b")}, nil)
	d := &Declarations{Client: w.Client}
	for node, want := range map[string]int{"a": 1, "b": 0, "no such": 0} {
		if got := d.ofAttachment(t.Context(), attachmentWithUID("9", node)); len(got) != want {
			t.Errorf("nodes that an attachment to node %q wakes: %v, want %d", node, got, want)
		}
	}
}

// stored is an API server, and the cache that a controller reads it through.
type stored struct {
	Client client.Client
	Writer *nodestate.Writer
	live   client.WithWatch
}

func store(t *testing.T, objects ...client.Object) *stored {
	t.Helper()
	live := holding(t, objects)
	return &stored{live, &nodestate.Writer{Client: live, Reader: live}, live}
}

// showing makes the cache show this state of node a in place of the live one; nil: the cache cannot be read.
func (s *stored) showing(cached *volumesv1alpha1.NodeVolumeState) {
	s.Client = interceptor.NewClient(s.live, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			nvs, ok := o.(*volumesv1alpha1.NodeVolumeState)
			switch {
			case !ok:
				return w.Get(ctx, key, o, opts...)
			case cached == nil:
				return errDown
			}
			cached.DeepCopyInto(nvs)
			return nil
		},
	})
	s.Writer = &nodestate.Writer{Client: s.Client, Reader: s.live}
}

// state of node a as the API server has it.
func (s *stored) state(t *testing.T) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := s.live.Get(t.Context(), client.ObjectKey{Name: "a"}, nvs); err != nil {
		t.Fatal(err)
	}
	return nvs
}

func TestADeclarationIsTakenOffOnce(t *testing.T) {
	listing := func(c client.Client, fails bool) client.Client {
		return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if fails {
					return errDown
				}
				return w.List(ctx, list, opts...)
			},
		})
	}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}}
	t.Run("not where the attachments cannot be listed", func(t *testing.T) {
		c := store(t, declaredState())
		d := &Declarations{Client: listing(c.Client, true), Writer: c.Writer, Events: events.NewFakeRecorder(10)}
		if _, err := d.Reconcile(t.Context(), request); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "node a") {
			t.Errorf("declarations of node a while attachments cannot be listed: error %v, want %v with the node's name", err,
				errDown)
		}
		if len(c.state(t).Annotations) != 6 {
			t.Errorf("annotations of node state a while attachments cannot be listed: %v, want all 6", c.state(t).Annotations)
		}
	})
	t.Run("not where the state cannot be read or is gone", func(t *testing.T) {
		c := store(t, declaredState())
		c.showing(nil)
		d := &Declarations{Client: c.Client, Writer: c.Writer, Events: events.NewFakeRecorder(10)}
		if _, err := d.Reconcile(t.Context(), request); !errors.Is(err, errDown) {
			t.Errorf("declarations of node a while its state cannot be read: error %v, want %v", err, errDown)
		}
		if got := d.ofAttachment(t.Context(), attachmentWithUID("9", "a")); len(got) != 1 || got[0].Name != "a" {
			t.Errorf("nodes that the end of attachment 9 wakes: %v, want a", got)
		}
		c = store(t)
		d = &Declarations{Client: c.Client, Writer: c.Writer}
		if _, err := d.Reconcile(t.Context(), request); err != nil {
			t.Error(err)
		}
	})
	for name, test := range map[string]struct {
		// cached is what the cache shows, live what is stored.
		cached, live func(*volumesv1alpha1.NodeVolumeState)
		left, told   int
		fails        bool
	}{
		"nothing names it": {nil, nil, 1, 4, false},
		"the API does not have it any more": {nil, func(s *volumesv1alpha1.NodeVolumeState) {
			s.Annotations = map[string]string{"other": "1"}
		}, 1, 0, false},
		"its entry has come meanwhile": {nil, func(s *volumesv1alpha1.NodeVolumeState) {
			s.Spec.Attachments = append(s.Spec.Attachments, volumesv1alpha1.NodeAttachment{AttachmentUID: "5"})
		}, 2, 3, false},
		"the write is not taken": {nil, nil, 6, 0, true},
		"the cache still shows it in use": {func(s *volumesv1alpha1.NodeVolumeState) {
			s.Status.Volumes = []volumesv1alpha1.NodeVolume{{AttachmentUID: "2"}, {AttachmentUID: "5"}}
		}, nil, 3, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			cached, live := declaredState(), declaredState()
			live.Spec.Attachments, live.Status.Volumes = nil, nil
			cached.Spec.Attachments, cached.Status.Volumes = nil, nil
			delete(cached.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+"1")
			delete(live.Annotations, volumesv1alpha1.DeclaredReleasedPrefix+"1")
			if test.cached != nil {
				test.cached(cached)
			}
			if test.live != nil {
				test.live(live)
			}
			c := store(t, live)
			changed := c.state(t) // and so newer than what the cache shows
			changed.Labels = map[string]string{"newer": "true"}
			if err := c.Client.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			c.showing(cached)
			c.Writer.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
				Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					if test.fails {
						return errDown
					}
					return w.Update(ctx, o, opts...)
				},
			})
			recorder := events.NewFakeRecorder(10)
			d := &Declarations{Client: c.Client, Writer: c.Writer, Events: recorder}
			_, err := d.Reconcile(t.Context(), request)
			left := len(c.state(t).Annotations)
			if test.fails {
				left++ // attachment 1 is not declared here
			}
			if errors.Is(err, errDown) != test.fails || left != test.left || len(recorder.Events) != test.told {
				t.Errorf("declarations of node state a: error %v, %d annotations left, %d events; want an error %t, %d and %d", err,
					left, len(recorder.Events), test.fails, test.left, test.told)
			}
			if test.told > 0 {
				if e := <-recorder.Events; !strings.Contains(e, "node a") || !strings.Contains(e, "attachment ") {
					t.Errorf("event of a removed declaration: %q, want node a and the attachment named", e)
				}
			}
		})
	}
}
