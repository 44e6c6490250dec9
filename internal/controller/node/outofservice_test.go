/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
	"github.com/hawser-io/hawser/internal/handshake"
)

// liveFences are what a live read of recorded fences returns, by source.
type liveFences struct {
	Fences
	holds map[string]error
}

func (l liveFences) Holds(_ context.Context, ref volumesv1alpha1.FenceReference, _ *corev1.Node,
	_ *volumesv1alpha1.NodeVolumeState) (bool, error) {
	err, known := l.holds[ref.Source]
	return known && err == nil, err
}

func TestTheTaintIsSetOnlyOnAFenceThatHoldsWhenItIsReadLive(t *testing.T) {
	for _, c := range []struct {
		name   string
		holds  map[string]error
		change func(*volumesv1alpha1.NodeVolumeState, *corev1.Node)
		want   bool
	}{
		{name: "it holds", holds: map[string]error{"bmc": nil}, want: true},
		{name: "it was lifted"},
		{name: "it cannot be read", holds: map[string]error{"bmc": errors.New("no answer")}},
		{name: "it cannot be read, and another one holds",
			holds: map[string]error{"bmc": errors.New("no answer"), "cloud": nil}, want: true},
		{name: "the agent is not silent", holds: map[string]error{"bmc": nil},
			change: func(s *volumesv1alpha1.NodeVolumeState, _ *corev1.Node) { s.Status.Conditions = nil }},
		{name: "the agent has begun a session since", holds: map[string]error{"bmc": nil},
			change: func(s *volumesv1alpha1.NodeVolumeState, _ *corev1.Node) { s.Status.Protocol.Session = 7 }},
		{name: "the Node is Ready", holds: map[string]error{"bmc": nil},
			change: func(_ *volumesv1alpha1.NodeVolumeState, n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			}},
		{name: "another taint of the kind is there", holds: map[string]error{"bmc": nil},
			change: func(_ *volumesv1alpha1.NodeVolumeState, n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nvs, node := stateOf("n"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			nvs.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady,
				Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentUnreachable}}
			for _, source := range []string{"bmc", "cloud"} {
				nvs.Status.Node.Fences = append(nvs.Status.Node.Fences, volumesv1alpha1.FenceObservation{
					FenceReference: volumesv1alpha1.FenceReference{Source: source, Name: "f"},
					LastSession:    nvs.Status.Protocol.Session})
			}
			if c.change != nil {
				c.change(nvs, node)
			}
			w := over(t, []client.Object{nvs, node}, []client.Object{nvs, node})
			w.ManageTaint, w.Fences = true, liveFences{holds: c.holds}
			w.Tracker.Silence("n")
			w.now.SetTime(w.now.Now().Add(liveness.DefaultDuration))
			if _, err := w.manageTaint(t.Context(), nvs); err != nil {
				t.Fatal(err)
			}
			now := &corev1.Node{}
			if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(node), now); err != nil {
				t.Fatal(err)
			}
			if got := handshake.SetByHawser(handshake.OutOfService(now)); got != c.want {
				t.Errorf("the manager has set its taint: %t, want %t", got, c.want)
			}
		})
	}
}

// TestTheTaintIsNotSetOnAFenceThatMayBeOfBeforeARestore: it would end the pods of a machine that runs.
func TestTheTaintIsNotSetOnAFenceThatMayBeOfBeforeARestore(t *testing.T) {
	for excuse, want := range map[string]bool{"an-earlier-restore": false, "this-restore": true} {
		nvs, node := stateOf("n", unreachable), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		metav1.SetMetaDataAnnotation(&nvs.ObjectMeta, volumesv1alpha1.ExcusedFromRestoreAnnotation, excuse)
		nvs.Status.Node.Fences = []volumesv1alpha1.FenceObservation{{
			FenceReference: volumesv1alpha1.FenceReference{Source: "bmc", Name: "f"}}}
		w := over(t, []client.Object{nvs, node}, []client.Object{nvs, node})
		w.ManageTaint, w.Fences = true, liveFences{holds: map[string]error{"bmc": nil}}
		livenesstest.Restore(t, w.Tracker, w.live, "b", "this-restore")
		w.Tracker.Silence("n")
		w.pass(liveness.DefaultDuration)
		again, err := w.manageTaint(t.Context(), nvs)
		if err != nil || (again == taintAgain) == want {
			t.Errorf("excused from %s: decided on again in %s, error %v; want in %s: %t", excuse, again, err, taintAgain, !want)
		}
		if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			t.Fatal(err)
		}
		if got := handshake.SetByHawser(handshake.OutOfService(node)); got != want {
			t.Errorf("excused from %s: the manager has set its taint: %t, want %t", excuse, got, want)
		}
	}
}

func TestTheTaintIsSetOnceThisManagerDoesNotHearTheAgentEither(t *testing.T) {
	nvs, node := stateOf("n"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	nvs.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady,
		Status: metav1.ConditionUnknown, Reason: volumesv1alpha1.ReasonAgentUnreachable}}
	nvs.Status.Node.Fences = []volumesv1alpha1.FenceObservation{{LastSession: nvs.Status.Protocol.Session,
		FenceReference: volumesv1alpha1.FenceReference{Source: "bmc", Name: "f"}}}
	w := over(t, []client.Object{nvs, node}, []client.Object{nvs, node})
	w.ManageTaint, w.Fences = true, liveFences{holds: map[string]error{"bmc": nil}}
	again, err := w.manageTaint(t.Context(), nvs)
	if err != nil || again != liveness.DefaultDuration {
		t.Errorf("the taint is decided on again in %s, error %v; want in %s: the mark may be of the past", again, err,
			liveness.DefaultDuration)
	}
	if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil ||
		handshake.OutOfService(node) != nil {
		t.Errorf("taints of node n: %v, error %v; want none", node.Spec.Taints, err)
	}
}
