/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/handshake"
)

// over makes a controller whose live reads find these objects, whatever the facts of a pass say.
func over(t *testing.T, objects ...client.Object) (*Controller, *testingclock.FakePassiveClock) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, volumesv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		Build()
	now := testingclock.NewFakePassiveClock(metav1.Now().Time)
	return &Controller{
		Client: c, Reader: c, Writer: &nodestate.Writer{Client: c, Reader: c}, Tracker: liveness.NewTracker(now), Clock: now,
		answers: answers{clock: now},
	}, now
}

// reported is the state of a node whose agent has reported.
func reported(name string) *volumesv1alpha1.NodeVolumeState {
	return &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "state"}, Status: volumesv1alpha1.NodeVolumeStateStatus{ObservedUID: "state"},
	}
}

func TestAnAttachmentThatWasMadeAnewWithoutAHoldIsNotCountedOn(t *testing.T) {
	for _, held := range []bool{true, false} {
		live := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1", UID: "2"}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}
		if held {
			live.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "now"}
		}
		c, _ := over(t, reported("a"), live)
		n := on("a", wanted("i"), va("1", "held", "attached"))
		if err := c.confirm(t.Context(), &Facts{Volume: "v", AttachRequired: true, Nodes: []*Node{n}}, n, &n.Attachments[0]); err != nil {
			t.Fatal(err)
		}
		if attached := n.State.Entry.State == handshake.Attached; attached != held {
			t.Errorf("held %v, attached %v", held, attached)
		}
	}
}
