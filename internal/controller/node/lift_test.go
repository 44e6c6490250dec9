/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/fences"
	"github.com/hawser-io/hawser/internal/fencing"
)

// cutOff is an entry of a volume in use that was forced away by fence f.
func cutOff(volume string, uid types.UID) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		detaching(volume, uid, volumesv1alpha1.EvidenceFenced)(nvs)
		line(volume, uid, true)(nvs)
		e := &nvs.Spec.Attachments[len(nvs.Spec.Attachments)-1]
		e.Driver, e.Evidence.Fence = "d", &volumesv1alpha1.FenceReference{Source: "net", Name: "f", UID: "f",
			Proves: volumesv1alpha1.FenceAccessCut}
	}
}

// overFence is a world with node n and fence f, which holds for volumes of that driver. It returns what is asked of the
// fences.
func overFence(t *testing.T, driver string, objects ...client.Object) (*world, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	source, err := fencing.Compile(volumesv1alpha1.FenceSource{Name: "net", Group: "example.com", Version: "v1",
		Resource: "fences", Driver: "object.spec.driver", Addresses: "object.spec.cidrs", Holds: "true",
		Proves: volumesv1alpha1.FenceAccessCut, Clients: &volumesv1alpha1.FenceClients{Group: "example.com", Version: "v1",
			Resource: "clients", NodeName: "object.spec.node", Driver: "object.spec.driver", Addresses: "object.spec.cidrs"}})
	if err != nil {
		t.Fatal(err)
	}
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": kind,
			"metadata": map[string]any{"name": name, "uid": name}, "spec": spec}}
	}
	api := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			{Group: "example.com", Version: "v1", Resource: "fences"}:  "FenceList",
			{Group: "example.com", Version: "v1", Resource: "clients"}: "ClientList",
		}, object("Fence", "f", map[string]any{"driver": driver, "cidrs": []any{"192.0.2.1"}}),
		object("Client", "c", map[string]any{"node": "n", "driver": "d", "cidrs": []any{"192.0.2.1"}}))
	w := over(t, objects, objects)
	w.notes = events.NewFakeRecorder(100)
	w.Events = w.notes
	w.Lifts = &fences.Lifts{Fences: &fences.Watcher{Sources: []*fencing.Source{source}, Client: api}, Client: w.Client,
		Writer: w.Writer, Events: w.notes}
	return w, api
}

// TestWhetherAFenceHoldsIsReadOnceForANode, not once for each volume: each read lists what is reported of all nodes.
func TestWhetherAFenceHoldsIsReadOnceForANode(t *testing.T) {
	const volumes = 50
	for _, c := range []struct {
		name, driver   string
		writes, lifted int
	}{
		{"it holds", "d", 0, 0},
		{"it was lifted", "e", 1, volumes},
	} {
		t.Run(c.name, func(t *testing.T) {
			nvs := stateOf("n")
			for i := range volumes {
				cutOff(fmt.Sprint("v", i), types.UID(fmt.Sprint(i)))(nvs)
			}
			w, api := overFence(t, c.driver, nvs)
			again, err := w.noteLifts(t.Context(), w.state(t, "n"))
			if again != never || err != nil {
				t.Errorf("again after %s, error %v; want never", again, err)
			}
			var read []string
			for _, a := range api.Actions() {
				read = append(read, a.GetResource().Resource)
			}
			if want := []string{"clients", "fences"}; !slices.Equal(read, want) || w.updates != c.writes {
				t.Errorf("%q were read, and the state was written %d times; want %q, and %d", read, w.updates, want, c.writes)
			}
			lifted := 0
			for _, e := range w.state(t, "n").Spec.Attachments {
				if e.Evidence.Unprotected {
					lifted++
				}
			}
			if lifted != c.lifted || len(w.notes.Events) != c.lifted {
				t.Errorf("%d volumes are unprotected, with %d events; want %d", lifted, len(w.notes.Events), c.lifted)
			}
		})
	}
}

func TestAFenceThatCannotBeReadIsReadAgain(t *testing.T) {
	w, api := overFence(t, "d", stateOf("n", cutOff("v", "1"), cutOff("w", "2")))
	api.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("down")
	})
	again, err := w.noteLifts(t.Context(), w.state(t, "n"))
	if again != liftAgain || err != nil {
		t.Errorf("again after %s, error %v; want %s: nothing else of the node waits for it", again, err, liftAgain)
	}
	if reads := len(api.Actions()); reads != 1 {
		t.Errorf("%d reads, want that the one that failed is not tried again at once", reads)
	}
}

func TestNothingIsReadOfFencesWhereNothingRestsOnOne(t *testing.T) {
	w, api := overFence(t, "e", stateOf("n", attached("v", "1"), detaching("w", "2",
		volumesv1alpha1.EvidenceOutOfServiceTaint)))
	again, err := w.noteLifts(t.Context(), w.state(t, "n"))
	if again != never || err != nil || len(api.Actions()) > 0 || w.updates > 0 {
		t.Errorf("again after %s, error %v, %d reads, %d writes; want none", again, err, len(api.Actions()), w.updates)
	}
}

// TestEachPassOfANodeFindsLifts, whatever becomes of the Node.
func TestEachPassOfANodeFindsLifts(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	leaving := node.DeepCopy()
	leaving.Finalizers, leaving.DeletionTimestamp = []string{"example.com/keep"}, &metav1.Time{Time: time.Now()}
	for name, objects := range map[string][]client.Object{
		"there is one":        {node},
		"it is being deleted": {leaving},
		"it is gone":          nil,
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := overFence(t, "e", append(objects, stateOf("n", cutOff("v", "1")))...)
			if _, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "n"}}); err != nil {
				t.Fatal(err)
			}
			if !w.state(t, "n").Spec.Attachments[0].Evidence.Unprotected {
				t.Error("the evidence is not unprotected after a pass, want that it is: the fence was lifted")
			}
		})
	}
}

func TestANodeIsReconciledOnceAVolumeRestsOnACut(t *testing.T) {
	w, _ := overFence(t, "d")
	of := func(generation int64, with ...func(*volumesv1alpha1.NodeVolumeState)) *volumesv1alpha1.NodeVolumeState {
		nvs := stateOf("n", with...)
		nvs.Generation = generation
		return nvs
	}
	for _, c := range []struct {
		name          string
		before, after *volumesv1alpha1.NodeVolumeState
		want          bool
	}{
		{"its evidence was written", of(1, attached("v", "1")), of(2, cutOff("v", "1")), true},
		{"another volume's was", of(1, cutOff("w", "2")), of(2, cutOff("w", "2"), attached("v", "1")), true},
		{"only the status changed", of(1, cutOff("v", "1")), of(1, cutOff("v", "1"), line("w", "2", true)), false},
		{"other evidence was written", of(1, attached("v", "1")), of(2, detaching("v", "1",
			volumesv1alpha1.EvidenceOutOfServiceTaint)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := w.cutsChanged().Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after})
			if got != c.want {
				t.Errorf("the node is reconciled: %t, want %t", got, c.want)
			}
		})
	}
}
