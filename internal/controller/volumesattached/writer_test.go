/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumesattached

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/controller/inflight"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

const name = "node-a"

func entry(volume string, state volumesv1alpha1.AttachmentState) volumesv1alpha1.NodeAttachment {
	return volumesv1alpha1.NodeAttachment{
		VolumeName: volume, AttachmentUID: "u1", State: state,
		PublishContext: map[string]string{"devicePath": "/dev/" + volume},
	}
}

// writer, whose cache stays as it is now, over a Node that lists the volumes in attached and inUse; before comes before
// each write.
func writer(
	t *testing.T, before func(client.Client) error, attached, inUse []string, entries ...volumesv1alpha1.NodeAttachment,
) (*Writer, client.Client) {
	t.Helper()
	return writerWith(t, nil, before, attached, inUse, entries...)
}

func writerWith(t *testing.T, slots *inflight.Limiter, before func(client.Client) error, attached, inUse []string,
	entries ...volumesv1alpha1.NodeAttachment) (*Writer, client.Client) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "node-uid"}}
	for _, v := range attached {
		node.Status.VolumesAttached = append(node.Status.VolumesAttached,
			corev1.AttachedVolume{Name: corev1.UniqueVolumeName(v)})
	}
	for _, v := range inUse {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, corev1.UniqueVolumeName(v))
	}
	nvs := &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: volumesv1alpha1.NodeVolumeStateSpec{Attachments: entries},
	}
	b := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithStatusSubresource(node).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				if before != nil {
					if err := before(c); err != nil {
						return err
					}
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
	api := controllertest.New(t, b, node, nvs)
	return New(api.Client, api.Live, nodestate.New(api.Client, api.Live, slots), slots), api.Live
}

func listed(t *testing.T, c client.Client) (map[corev1.UniqueVolumeName]string, *corev1.Node) {
	t.Helper()
	node := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	m := map[corev1.UniqueVolumeName]string{}
	for _, v := range node.Status.VolumesAttached {
		m[v.Name] = v.DevicePath
	}
	return m, node
}

func TestAnAttachedVolumeIsListedWithItsOwnDevicePath(t *testing.T) {
	w, c := writer(t, nil, []string{"other"}, nil, entry("vol", volumesv1alpha1.AttachmentAttached))
	r, err := w.List(t.Context(), name, "vol")
	if err != nil || r.Guard != handshake.GuardNone || !r.Lists.Attached {
		t.Fatalf("listing volume vol on Node %s: %+v, error %v; want it listed", name, r, err)
	}
	if m, _ := listed(t, c); len(m) != 2 || m["vol"] != "/dev/vol" {
		t.Errorf("volumes that Node %s lists: %v, want vol at /dev/vol and other", name, m)
	}
}

func TestListingTwiceIsOneWrite(t *testing.T) {
	writes := 0
	w, _ := writer(t, func(client.Client) error {
		writes++
		return nil
	}, nil, nil, entry("vol", volumesv1alpha1.AttachmentAttached))
	for range 2 {
		if _, err := w.List(t.Context(), name, "vol"); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes for two listings of volume vol, want 1", writes)
	}
}

func TestWhatIsNotAttachedIsNotListed(t *testing.T) {
	w, c := writer(t, nil, nil, nil, entry("vol", volumesv1alpha1.AttachmentDetaching))
	r, err := w.List(t.Context(), name, "vol")
	if err != nil || r.Guard != handshake.GuardEntryAttached || r.Lists.Attached {
		t.Errorf("listing volume vol on Node %s, while it is Detaching: %+v, error %v; want guard %s", name, r, err,
			handshake.GuardEntryAttached)
	}
	if m, _ := listed(t, c); len(m) != 0 {
		t.Errorf("volumes that Node %s lists: %v, want none", name, m)
	}
}

func TestAVolumeThatIsUnlistedBetweenTheReadsIsNotListedAgain(t *testing.T) {
	w, c := writer(t, nil, []string{"vol"}, nil, entry("vol", volumesv1alpha1.AttachmentAttached))
	first := true
	w.Reader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if !first || err != nil {
				return err
			}
			first = false
			node, nvs := &corev1.Node{}, &volumesv1alpha1.NodeVolumeState{}
			if err := errors.Join(c.Get(ctx, key, node), c.Get(ctx, key, nvs)); err != nil {
				return err
			}
			nvs.Spec.Attachments[0].State, node.Status.VolumesAttached = volumesv1alpha1.AttachmentDetaching, nil
			return errors.Join(c.Update(ctx, nvs), c.Status().Update(ctx, node))
		},
	})
	r, err := w.List(t.Context(), name, "vol")
	if err != nil || r.Guard != handshake.GuardEntryAttached {
		t.Errorf("listing volume vol on Node %s, where another leader unlists it meanwhile: %+v, error %v; want guard %s",
			name, r, err, handshake.GuardEntryAttached)
	}
	if m, _ := listed(t, c); len(m) != 0 {
		t.Errorf("volumes that Node %s lists: %v, want none", name, m)
	}
}

func TestANodeThatCannotBeReadIsNotAMissingOne(t *testing.T) {
	forced := entry("forced", volumesv1alpha1.AttachmentDetaching)
	forced.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceNodeGone}
	w, c := writer(t, nil, []string{"forced"}, nil, forced)
	down := errors.New("the API server is away")
	w.Reader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	})
	if r, err := w.Unlist(t.Context(), name, "forced"); !errors.Is(err, down) {
		t.Errorf("unlisting a volume from Node %s, which cannot be read: %+v, error %v; want %v", name, r, err, down)
	}
}

func TestWhatTheKubeletUsesStaysListed(t *testing.T) {
	w, c := writer(t, nil, []string{"vol"}, []string{"vol"}, entry("vol", volumesv1alpha1.AttachmentDetaching))
	r, err := w.Unlist(t.Context(), name, "vol")
	if err != nil || r.Guard != handshake.GuardKubeletReleased {
		t.Errorf("unlisting volume vol, which the kubelet uses, from Node %s: %+v, error %v; want guard %s", name, r, err,
			handshake.GuardKubeletReleased)
	}
	if m, _ := listed(t, c); len(m) != 1 {
		t.Errorf("volumes that Node %s lists: %v, want vol", name, m)
	}
}

func TestAKubeletThatTakesTheVolumeUpMeanwhileKeepsIt(t *testing.T) {
	first := true
	w, c := writer(t, func(c client.Client) error {
		if !first {
			return nil
		}
		first = false
		node := &corev1.Node{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{"vol"}
		if err := c.Status().Update(t.Context(), node); err != nil {
			return err
		}
		return apierrors.NewConflict(schema.GroupResource{}, name, errors.New("the kubelet was first"))
	}, []string{"vol"}, nil, entry("vol", volumesv1alpha1.AttachmentDetaching))
	r, err := w.Unlist(t.Context(), name, "vol")
	if err != nil || r.Guard != handshake.GuardKubeletReleased || !r.Lists.InUse {
		t.Errorf("unlisting volume vol, which the kubelet takes meanwhile, from Node %s: %+v, error %v; want guard %s and "+
			"in use", name, r, err, handshake.GuardKubeletReleased)
	}
	if m, _ := listed(t, c); len(m) != 1 {
		t.Errorf("volumes that Node %s lists: %v, want vol", name, m)
	}
}

func TestUnlistingIsAChangeAlsoOfWhatWasNotListed(t *testing.T) {
	w, c := writer(t, nil, []string{"other"}, nil, entry("vol", volumesv1alpha1.AttachmentDetaching))
	_, before := listed(t, c)
	if _, err := w.Unlist(t.Context(), name, "vol"); err != nil {
		t.Fatal(err)
	}
	m, after := listed(t, c)
	if before.ResourceVersion == after.ResourceVersion {
		t.Errorf("version of Node %s after the unlisting: %s as before, want another, so that earlier listings conflict",
			name, after.ResourceVersion)
	}
	if len(m) != 1 {
		t.Errorf("volumes that Node %s lists: %v, want other alone", name, m)
	}
}

func TestWithoutANodeOnlyWhatIsForcedCountsAsUnlisted(t *testing.T) {
	forced := entry("forced", volumesv1alpha1.AttachmentDetaching)
	forced.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceNodeGone}
	w, c := writer(t, nil, nil, nil, entry("vol", volumesv1alpha1.AttachmentDetaching), forced)
	if err := c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	if r, err := w.Unlist(t.Context(), name, "vol"); err != nil || r.Guard != handshake.GuardKubeletReleased ||
		!r.Lists.Missing {
		t.Errorf("unlisting volume vol without Node %s: %+v, error %v; want guard %s and the Node missing", name, r, err,
			handshake.GuardKubeletReleased)
	}
	if r, err := w.Unlist(t.Context(), name, "forced"); err != nil || r.Guard != handshake.GuardNone {
		t.Errorf("unlisting volume forced without Node %s: %+v, error %v; want no guard", name, r, err)
	}
}

func TestVolumesThatWaitAreWrittenTogetherAndLendTheirSlots(t *testing.T) { synctest.Test(t, listMany) }

func listMany(t *testing.T) {
	const many = 100
	var entries []volumesv1alpha1.NodeAttachment
	for i := range many {
		entries = append(entries, entry(fmt.Sprint(i), volumesv1alpha1.AttachmentAttached))
	}
	writes := 0
	inFlight, first := make(chan struct{}), make(chan struct{})
	// The first commit holds one slot; all others have to get by with the other one.
	slots := inflight.New(2)
	w, c := writerWith(t, slots, func(client.Client) error {
		if writes++; writes == 1 {
			close(inFlight)
			<-first
		}
		return nil
	}, nil, nil, entries...)
	var wg sync.WaitGroup
	list := func(i int) {
		wg.Go(func() {
			if err := slots.Do(t.Context(), func(ctx context.Context) error {
				_, err := w.List(ctx, name, fmt.Sprint(i))
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	list(0)
	<-inFlight
	for i := 1; i < many; i++ {
		list(i)
	}
	synctest.Wait()
	if n := w.batches.Waiting(name); n != many-1 {
		t.Errorf("%d volumes wait for the second write of Node %s, want %d", n, name, many-1)
	}
	close(first)
	wg.Wait()
	if m, _ := listed(t, c); len(m) != many || writes != 2 {
		t.Errorf("Node %s lists %d volumes after %d writes, want %d after 2", name, len(m), writes, many)
	}
}
