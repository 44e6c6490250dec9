/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// behind gives the controller a cache that still shows these objects, and nothing else; it writes to, and reads live
// from, the API server that it had.
func behind(t *testing.T, c *Controller, objects ...client.Object) {
	t.Helper()
	cache, _ := over(t, objects...)
	live := c.Reader.(client.WithWatch)
	c.Client = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			return cache.Client.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return cache.Client.List(ctx, list, opts...)
		},
	})
	connect(c, c.Client, live)
}

var errDown = errors.New("the API server is down")

// requests to the API server; one is never answered, however often it is sent.
type requests struct {
	mu sync.Mutex
	// fails is the number of the one that is not.
	fails, sent int
	lost        string
	// wroteAfter: something else was written after that.
	wroteAfter bool
}

func (r *requests) send(verb string, o any, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	request := fmt.Sprintf("%s %T %s", verb, o, name)
	if r.sent++; r.sent == r.fails {
		r.lost = request
	}
	if r.lost == request {
		return errDown
	}
	r.wroteAfter = r.wroteAfter || r.lost != "" && verb != "get" && verb != "list"
	return nil
}

// through has the controller send them. The cache answers always.
func (r *requests) through(c *Controller) {
	get := func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
		opts ...client.GetOption) error {
		if err := r.send("get", o, key.Name); err != nil {
			return err
		}
		return w.Get(ctx, key, o, opts...)
	}
	live := interceptor.Funcs{
		Get: get,
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := r.send("list", list, ""); err != nil {
				return err
			}
			return w.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := r.send("create", o, o.GetName()); err != nil {
				return err
			}
			return w.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := r.send("update", o, o.GetName()); err != nil {
				return err
			}
			return w.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch,
			opts ...client.PatchOption) error {
			if err := r.send("patch", o, o.GetName()); err != nil {
				return err
			}
			return w.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := r.send("delete", o, o.GetName()); err != nil {
				return err
			}
			return w.Delete(ctx, o, opts...)
		},
	}
	reader := interceptor.NewClient(c.Reader.(client.WithWatch), live)
	live.Get, live.List = nil, nil
	connect(c, interceptor.NewClient(c.Client.(client.WithWatch), live), reader)
}

// refuseNoName has live reads refuse an empty name, as those from an API server do.
func refuseNoName(c *Controller) {
	c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if key.Name == "" {
				return errors.New("resource name may not be empty")
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
}

// entryIn is the node's entry of v in an object of the API.
func entryIn(state *volumesv1alpha1.NodeVolumeState, is volumesv1alpha1.AttachmentState, uid types.UID,
	evidence volumesv1alpha1.EvidenceType) *volumesv1alpha1.NodeVolumeState {
	e := decision.EntryOf(&decision.Facts{Volume: "v"}, intentNamed("x"))
	e.State, e.AttachmentUID, e.AttachmentName = is, uid, "va-"+string(uid)
	if evidence != "" {
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: evidence, Message: "as it was first found"}
	}
	state.Spec.Attachments = append(state.Spec.Attachments, e)
	return state
}

// usedIn says in an object of the API that the node uses v.
func usedIn(state *volumesv1alpha1.NodeVolumeState, uid types.UID) *volumesv1alpha1.NodeVolumeState {
	state.Status.Volumes = append(state.Status.Volumes, volumesv1alpha1.NodeVolume{
		VolumeName: "v", AttachmentUID: uid, InUse: true,
	})
	return state
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// liveState is the node's state as the API server has it.
func liveState(t *testing.T, c *Controller, node string) *volumesv1alpha1.NodeVolumeState {
	t.Helper()
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: node}, nvs); err != nil {
		t.Fatal(err)
	}
	return nvs
}

// liveAttachment is the attachment as the API server has it; nil when there is none.
func liveAttachment(t *testing.T, c *Controller, name string) *storagev1.VolumeAttachment {
	t.Helper()
	va, err := c.readAttachment(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return va
}

// remove deletes the object as another client does.
func remove(t *testing.T, c *Controller, o client.Object) {
	t.Helper()
	uid := o.GetUID()
	if err := c.Client.Delete(t.Context(), o, client.Preconditions{UID: &uid}); err != nil {
		t.Fatal(err)
	}
}

func TestAnActThatTheAPIServerDoesNotAnswerFailsAndWritesNothingMore(t *testing.T) {
	type act func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error
	shared, intent := persistentVolume(), intentNamed("i").Object
	shared.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	foreign := attachedTo(volume.AttachmentName("d", "h", "a"), "2")
	foreign.Spec = storagev1.VolumeAttachmentSpec{NodeName: "a", Attacher: "d"}
	attached := entryIn(reported("a"), volumesv1alpha1.AttachmentAttached, "1", "")
	released := entryIn(reported("a"), volumesv1alpha1.AttachmentDetaching, "1", volumesv1alpha1.EvidenceAgentReleased)
	forcedAway := usedIn(entryIn(reported("a"), volumesv1alpha1.AttachmentDetaching, "1",
		volumesv1alpha1.EvidenceOutOfServiceTaint), "1")
	begun, other := ofAnotherVolume()
	toB, fromB := exclusive.Lock{Holder: "b"}, exclusive.Lock{Holder: "a", MovedFrom: "b"}
	goneUser := exclusive.Lock{Holder: "b", User: exclusive.User{Namespace: "default", Name: "gone", UID: "gone"}}

	del := act(func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
		return c.deleteAttachment(ctx, f, n, &n.Attachments[0])
	})
	confirm := act(func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
		return c.confirmAttached(ctx, f, n, &n.Attachments[0])
	})
	freeName := act(func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
		return c.freeName(ctx, f, n, &n.Attachments[0])
	})
	attach := act(func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
		return c.createAttachment(ctx, f, n)
	})
	take := act(func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
		taken, err := c.takeLock(ctx, f, n)
		if taken != (err == nil) {
			t.Errorf("taking the lock of volume %s: taken %t, error %v; want either", f.Volume, taken, err)
		}
		return err
	})
	oneNode := func(c handshake.Lock) func(*decision.Facts, *decision.Node) {
		return func(f *decision.Facts, _ *decision.Node) { f.Exclusive, f.Lock = true, c }
	}

	for _, test := range []struct {
		name    string
		objects []client.Object
		// given besides what the objects say.
		given func(*decision.Facts, *decision.Node)
		do    act
	}{
		{"attach", nil, oneNode(handshake.Lock{}), attach},
		{"attach what was attached before", []client.Object{foreign}, nil, attach},
		{"hold",
			[]client.Object{attachedTo("va-1", "1")}, nil,
			func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
				return c.hold(ctx, f, n, &n.Attachments[0])
			}},
		{"confirm", []client.Object{reported("a"), shared, attachedTo("va-1", "1")}, nil, confirm},
		{"confirm on a node that was given the lock meanwhile",
			[]client.Object{reported("a"), shared, attachedTo("va-1", "1"), lockObject("v", exclusive.Lock{Holder: "a"})},
			nil, confirm},
		{"confirm on one node", []client.Object{reported("a"), attachedTo("va-1", "1")},
			func(f *decision.Facts, _ *decision.Node) {
				f.Exclusive, f.Nodes = true, append(f.Nodes, on("b"))
			}, confirm},
		{"look",
			[]client.Object{released}, nil, func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
				return c.readNow(ctx, f, n)
			}},
		{"delete beside upstream",
			[]client.Object{released, attachedTo("va-1", "1"), nodeNamed("a")}, func(f *decision.Facts, _ *decision.Node) {
				f.Bound = []client.ObjectKey{{Namespace: "default", Name: "data"}}
			}, del},
		{"leave it to pods",
			[]client.Object{released, attachedTo("va-1", "1")}, func(_ *decision.Facts, n *decision.Node) {
				n.Pods = true
			}, del},
		{"delete in place of upstream", []client.Object{released, attachedTo("va-1", "1")},
			func(f *decision.Facts, n *decision.Node) {
				f.Replace, n.State.Looked = true, true
			}, del},
		{"delete what names another volume by now", []client.Object{released, begun, other, nodeNamed("a")}, nil, del},
		{"discard what names another volume by now", []client.Object{reported("a"), begun, other}, nil,
			func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
				return c.discard(ctx, f,
					decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0]})
			}},
		{"look before a forced detach", []client.Object{forcedAway, attachedTo("va-1", "1")}, nil, del},
		{"hold the name",
			[]client.Object{forcedAway, attachedTo("va-1", "1")}, func(_ *decision.Facts, n *decision.Node) {
				n.Live = true
			}, del},
		{"look before the name is freed", []client.Object{forcedAway, attachedTo("va-1", "1")}, nil, freeName},
		{"free the name",
			[]client.Object{forcedAway, attachedTo("va-1", "1")}, func(_ *decision.Facts, n *decision.Node) {
				n.Live = true
			}, freeName},
		{"forget",
			[]client.Object{released}, nil, func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
				return c.forgetEntry(ctx, f, n)
			}},
		{"mark",
			[]client.Object{attached, attachedTo("va-1", "1")}, nil,
			func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
				return c.markDetaching(ctx, f,
					decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0]})
			}},
		{"mark as lost",
			[]client.Object{attached}, nil, func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
				return c.markLost(ctx, f, n)
			}},
		{"take the lock", nil, oneNode(handshake.Lock{}), take},
		{"move the lock", []client.Object{lockObject("v", toB), reported("b")}, oneNode(toB.Handshake()), take},
		{"go on with a move", []client.Object{lockObject("v", fromB), reported("b")}, oneNode(fromB.Handshake()), take},
		{"pass the lock on", []client.Object{lockOf("v", goneUser), reported("b")},
			func(f *decision.Facts, _ *decision.Node) {
				f.Exclusive, f.SingleUser, f.Lock = true, true, goneUser.Handshake()
			}, take},
		{"end a move", []client.Object{lockObject("v", fromB), reported("b")}, func(f *decision.Facts, n *decision.Node) {
			f.Exclusive, f.Lock, n.Wanted = true, fromB.Handshake(), nil
		}, func(ctx context.Context, c *Controller, f *decision.Facts, _ *decision.Node) error {
			return c.finishMove(ctx, f)
		}},
		{"release where no agent is heard", []client.Object{intent, reported("a")}, nil,
			func(ctx context.Context, c *Controller, f *decision.Facts, n *decision.Node) error {
				return c.releaseUnheard(ctx, f, n, n.Leaving)
			}},
		{"release", []client.Object{intent}, nil,
			func(ctx context.Context, c *Controller, _ *decision.Facts, n *decision.Node) error {
				return c.release(ctx, n, n.Leaving)
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for fails := 1; ; fails++ {
				c, _ := over(t, test.objects...)
				c.Events = events.NewFakeRecorder(100)
				f, n := factsOf(t, c)
				if test.given != nil {
					test.given(f, n)
				}
				r := &requests{fails: fails}
				r.through(c)
				err := test.do(t.Context(), c, f, n)
				if r.sent < fails {
					if err != nil {
						t.Errorf("%s with no failed request: error %v, want none", test.name, err)
					}
					break
				}
				if !errors.Is(err, errDown) {
					t.Errorf("%s with failed request %d: error %v, want %v", test.name, fails, err, errDown)
				}
				if r.wroteAfter {
					t.Errorf("%s: something is written after request %d failed, want nothing", test.name, fails)
				}
			}
		})
	}
}

// factsOf are the facts of v, which an intent wants on node a, as far as the API server's objects show them.
func factsOf(t *testing.T, c *Controller) (*decision.Facts, *decision.Node) {
	t.Helper()
	n := &decision.Node{Name: "a"}
	wanted("i")(n)
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "a"}, nvs); err == nil {
		n.TakeOver(nvs, "v")
	}
	if va := liveAttachment(t, c, "va-1"); va != nil {
		n.AddAttachment(va)
	}
	leaves := intentNamed("i")
	if err := c.Reader.Get(t.Context(), client.ObjectKeyFromObject(leaves.Object), leaves.Object); err == nil {
		n.Leaving = []*decision.Intent{leaves}
	}
	return &decision.Facts{Volume: "v", Driver: "d", VolumeHandle: "h", AttachRequired: true,
		Nodes: []*decision.Node{n}}, n
}

// lockOf is the ConfigMap of a lock that names a user.
func lockOf(volumeName string, lock exclusive.Lock) *corev1.ConfigMap {
	m := lockObject(volumeName, lock)
	m.Data["locks.json"] = fmt.Sprintf(`{"writes": 1, "locks": {%q: {
		"node": %q, "movedFrom": %q, "write": 1, "user": {"namespace": %q, "name": %q, "uid": %q}
	}}}`,
		volumeName, lock.Holder, lock.MovedFrom, lock.User.Namespace, lock.User.Name, lock.User.UID)
	return m
}
