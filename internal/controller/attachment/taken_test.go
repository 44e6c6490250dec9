/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

const claimRead, attachmentRead = "claim", "attachment"

// journey is the way of volume v to node a.
type journey struct {
	*Controller
	f *Facts
	n *Node
	// reads are those of claims and attachments that were made live.
	reads []string
	// unanswered: the next write of a node's state is made, and nobody is told.
	unanswered bool
	uids       int
}

// begin has the attachment created. before changes what there is before.
func begin(t *testing.T, before func(*testing.T, *journey)) *journey {
	t.Helper()
	state := reported("a")
	state.Generation = 1
	c, _ := over(t, state)
	n := on("a", wanted("i"))
	n.Spec = nodestate.PointOf(state)
	j := &journey{Controller: c, n: n, f: &Facts{
		Volume: "v", Driver: "d", VolumeHandle: "h", Exclusive: true, AttachRequired: true, Nodes: []*Node{n},
	}}
	j.intercept()
	if before != nil {
		before(t, j)
	}
	if err := j.create(t.Context(), j.f, n); err != nil || len(n.Attachments) != 1 {
		t.Fatalf("%d attachments, %v", len(n.Attachments), err)
	}
	return j
}

// intercept gives what is created a UID, counts the generations of states, and takes note of reads.
func (j *journey) intercept() {
	server := j.Client.(client.WithWatch)
	j.Client = interceptor.NewClient(server, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			j.uids++
			o.SetUID(types.UID(fmt.Sprint("uid-", j.uids)))
			return c.Create(ctx, o, opts...)
		},
	})
	j.Reader = interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			switch o.(type) {
			case *corev1.ConfigMap:
				j.reads = append(j.reads, claimRead)
			case *storagev1.VolumeAttachment:
				j.reads = append(j.reads, attachmentRead)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	j.Writer.Reader = j.Reader
	j.Claims.Client, j.Claims.Reader = server, j.Reader
	j.Writer.Client = interceptor.NewClient(server, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			o.SetGeneration(o.GetGeneration() + 1)
			err := c.Update(ctx, o, opts...)
			if j.unanswered && err == nil {
				j.unanswered = false
				return errors.New("the answer was lost")
			}
			return err
		},
	})
}

// isAttached by its driver, and the watch shows it.
func (j *journey) isAttached(t *testing.T) {
	t.Helper()
	va := &storagev1.VolumeAttachment{}
	if err := j.Client.Get(t.Context(), client.ObjectKey{Name: j.n.Attachments[0].Name}, va); err != nil {
		t.Fatal(err)
	}
	va.Status.Attached = true
	if err := j.Client.Status().Update(t.Context(), va); err != nil {
		t.Fatal(err)
	}
	j.n.addAttachment(va)
}

// write of somebody else.
func (j *journey) write(t *testing.T, change func(*volumesv1alpha1.NodeVolumeState)) {
	t.Helper()
	nvs := &volumesv1alpha1.NodeVolumeState{}
	err := j.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, nvs)
	if err == nil {
		change(nvs)
		err = j.Client.Update(t.Context(), nvs)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fenceFor another volume, as this process does.
func (j *journey) fenceFor(t *testing.T) error {
	_, err := j.Writer.Apply(t.Context(), "a", func(context.Context, *volumesv1alpha1.NodeVolumeState) (nodestate.Change, error) {
		return func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Spec.Fences++ }, nil
	})
	return err
}

func fencedByAnother(nvs *volumesv1alpha1.NodeVolumeState) {
	nvs.Spec.Fences++
	nvs.Generation++
}

func TestAttachedIsWrittenWithoutAFurtherReadWhileNobodyElseHasWritten(t *testing.T) {
	both := []string{claimRead, attachmentRead}
	for _, test := range []struct {
		name string
		// before the attachment is created, and meanwhile until it is attached.
		before    func(*testing.T, *journey)
		meanwhile func(*testing.T, *journey)
		reads     []string
	}{
		{name: "nothing happened"},
		{name: "this process wrote for another volume", meanwhile: func(t *testing.T, j *journey) {
			for range 2 {
				if err := j.fenceFor(t); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{name: "the agent reported", meanwhile: func(t *testing.T, j *journey) {
			j.write(t, func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Reports++ })
			if err := j.fenceFor(t); err != nil {
				t.Fatal(err)
			}
			j.write(t, func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.Status.Reports++ })
		}},
		{name: "the volume is shared", before: func(_ *testing.T, j *journey) { j.f.Exclusive = false }},
		{name: "another manager wrote the node's spec", meanwhile: func(t *testing.T, j *journey) { j.write(t, fencedByAnother) }, reads: both},
		{name: "another manager wrote the spec between two writes of this one", meanwhile: func(t *testing.T, j *journey) {
			if err := j.fenceFor(t); err != nil {
				t.Fatal(err)
			}
			j.write(t, fencedByAnother)
			if err := j.fenceFor(t); err != nil {
				t.Fatal(err)
			}
		}, reads: both},
		{name: "a write of this process was not answered", meanwhile: func(t *testing.T, j *journey) {
			j.unanswered = true
			if err := j.fenceFor(t); err == nil {
				t.Fatal("answered")
			}
		}, reads: both},
		{name: "another manager wrote the spec of a shared volume's node", before: func(_ *testing.T, j *journey) { j.f.Exclusive = false },
			meanwhile: func(t *testing.T, j *journey) { j.write(t, fencedByAnother) }, reads: []string{attachmentRead}},
		{name: "the claim is known from the cache only", before: func(t *testing.T, j *journey) {
			j.f.Claim = handshake.Claim{Exists: true, Holder: "a"}
			if err := j.Client.Create(t.Context(), claimed("v", exclusive.Claim{Holder: "a"})); err != nil {
				t.Fatal(err)
			}
		}, reads: []string{claimRead}},
		{name: "the attachment is not the one that was created", meanwhile: func(t *testing.T, j *journey) {
			va := &storagev1.VolumeAttachment{}
			if err := j.Client.Get(t.Context(), client.ObjectKey{Name: j.n.Attachments[0].Name}, va); err != nil {
				t.Fatal(err)
			}
			if err := j.Client.Delete(t.Context(), va); err != nil {
				t.Fatal(err)
			}
			va.ResourceVersion = ""
			if err := j.Client.Create(t.Context(), va); err != nil {
				t.Fatal(err)
			}
		}, reads: []string{attachmentRead}},
		{name: "the process was restarted", meanwhile: func(_ *testing.T, j *journey) { j.taken = taken{} }, reads: both},
		{name: "the state was made anew", meanwhile: func(t *testing.T, j *journey) {
			j.write(t, func(nvs *volumesv1alpha1.NodeVolumeState) { nvs.UID, nvs.Status.ObservedUID = "next", "next" })
		}, reads: both},
		{name: "this process looked for what there is to detach", meanwhile: func(t *testing.T, j *journey) {
			if err := j.act(t.Context(), j.f, Step{Act: Forget, Node: j.n}); err != nil {
				t.Fatal(err)
			}
		}, reads: both},
		{name: "this process wanted it elsewhere in between", meanwhile: func(t *testing.T, j *journey) {
			// The attachment to a keeps the claim there.
			if got, err := j.takeForGood(t.Context(), j.f, j.f.node("b")); got || err != nil {
				t.Fatalf("taken %t, %v", got, err)
			}
			j.reads = nil
		}, reads: both},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := begin(t, test.before)
			if test.meanwhile != nil {
				test.meanwhile(t, j)
			}
			j.isAttached(t)
			if err := j.confirm(t.Context(), j.f, j.n, &j.n.Attachments[0]); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(j.reads, test.reads) {
				t.Errorf("read %q, want %q", j.reads, test.reads)
			}
			if e := j.n.State.Entry; e.State != handshake.Attached || e.UID != j.n.Attachments[0].UID {
				t.Errorf("entry %+v", e)
			}
			if len(j.taken.ways) != 0 {
				t.Errorf("remembered for good: %+v", j.taken.ways)
			}
		})
	}
}

func TestAnAttachmentThatIsDeletedBehindOurBackIsNotConfirmed(t *testing.T) {
	j := begin(t, nil)
	j.isAttached(t)
	a := j.n.Attachments[0]
	if err := j.Client.Delete(t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.Name}}); err != nil {
		t.Fatal(err)
	}
	if err := j.confirm(t.Context(), j.f, j.n, &a); err != nil {
		t.Fatal(err)
	}
	if j.n.State.Entry.State != handshake.Absent || !slices.Contains(j.reads, attachmentRead) {
		t.Errorf("entry %+v, read %q", j.n.State.Entry, j.reads)
	}
}

func TestWhatIsDeclaredMeanwhileIsNotConfirmed(t *testing.T) {
	j := begin(t, nil)
	j.isAttached(t)
	j.write(t, func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + string(j.n.Attachments[0].UID): "it is gone"}
	})
	if err := j.confirm(t.Context(), j.f, j.n, &j.n.Attachments[0]); err != nil {
		t.Fatal(err)
	}
	if j.n.State.Entry.State != handshake.Absent {
		t.Errorf("entry %+v", j.n.State.Entry)
	}
}

func TestNothingIsRememberedOfAVolumeThatNobodyWantsOrThatFails(t *testing.T) {
	j := begin(t, nil)
	j.taken.dropUnwanted(j.f)
	if len(j.taken.ways) != 1 {
		t.Error("dropped while it is wanted")
	}
	j.n.Wanted = nil
	j.taken.dropUnwanted(j.f)
	if len(j.taken.ways) != 0 {
		t.Errorf("remembered: %+v", j.taken.ways)
	}
	for _, act := range []Act{Attach, Confirm} {
		j = begin(t, nil)
		j.isAttached(t)
		failed := errors.New("failed")
		failing := interceptor.NewClient(j.Client.(client.WithWatch), interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return failed },
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return failed },
		})
		j.Client, j.Writer.Client = failing, failing
		if err := j.act(t.Context(), j.f, Step{Act: act, Node: j.n, Attachment: &j.n.Attachments[0]}); !errors.Is(err, failed) {
			t.Fatalf("%s: %v", act, err)
		}
		if len(j.taken.ways) != 0 {
			t.Errorf("remembered after %s failed: %+v", act, j.taken.ways)
		}
	}
}
