/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/liveness/livenesstest"
)

// inSession is node a, whose agent has begun a session and whose volume v no other node may use.
func inSession() *volumesv1alpha1.NodeVolumeState {
	return stateOf("a", attached("v", "1"), func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Protocol = volumesv1alpha1.AgentProtocol{ObservedUID: nvs.UID, Session: 3, Reports: 3}
	})
}

const listStates = "list *v1alpha1.NodeVolumeStateList"

func TestAVolumeThatAnotherNodeUsesKeepsASessionFromBeingConfirmed(t *testing.T) {
	used := func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Protocol.ObservedUID = nvs.UID
		nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "0", InUse: true}}
	}
	for name, c := range map[string]struct {
		other []func(*volumesv1alpha1.NodeVolumeState)
		down  string
		used  bool
	}{
		"nothing uses it":          {},
		"another node uses it":     {[]func(*volumesv1alpha1.NodeVolumeState){used}, "", true},
		"it was forced away there": {[]func(*volumesv1alpha1.NodeVolumeState){used, forcedAwayEntry}, "", false},
		"its users are not known":  {nil, listStates, false},
	} {
		objects := []client.Object{inSession(), stateOf("b", c.other...)}
		w := over(t, objects, objects)
		w.down = c.down
		conflict, err := w.conflict(t.Context(), inSession())
		if (conflict != "") != c.used || errors.Is(err, errDown) != (c.down != "") {
			t.Errorf("conflict of node a where %s: %q, error %v; want one: %t", name, conflict, err, c.used)
		}
	}
}

func TestANodeThatWaitsToBeConfirmedIsWokenWhateverHolds(t *testing.T) {
	for name, down := range map[string]string{"no agent was heard yet": "", "the states are not known": listStates} {
		w := over(t, []client.Object{inSession()}, []client.Object{inSession()})
		w.down = down
		if _, err := w.confirm(t.Context(), inSession()); errors.Is(err, errDown) != (down != "") {
			t.Errorf("confirming node a where %s: error %v, want %v only if the list fails", name, err, errDown)
		}
		if got := w.state(t, "a").Spec.Protocol.ConfirmedSession; got != 0 {
			t.Errorf("session of node a where %s: %d is confirmed, want none", name, got)
		}
		if _, waits := w.unconfirmed.nodes["a"]; !waits {
			t.Errorf("node a where %s is not woken when an agent is heard, want that it is", name)
		}
	}
}

// TestAnAgentWhoseReportsDoNotComeIsNamedToThoseThatWaitForIt, once, after the time in which a report comes.
func TestAnAgentWhoseReportsDoNotComeIsNamedToThoseThatWaitForIt(t *testing.T) {
	waits, behind := inSession(), stateOf("n")
	w := over(t, []client.Object{waits, behind}, []client.Object{waits, behind, second(1)})
	livenesstest.Listen(t, w.Tracker, w.live)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := w.Tracker.Listen(w.heard).Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{}
	if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(second(1)), lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = second(2).Spec.RenewTime
	lease.Annotations = map[string]string{volumesv1alpha1.LeaseReportsAnnotation: "9000000000000000000"}
	if err := w.live.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	queue.Get() // the renewal was heard
	for i, want := range []bool{false, true, false} {
		w.Tracker.Observe("n", second(3+i))
		if _, err := w.confirm(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		if note := w.note(t); strings.Contains(note, EventWaitingForReports+" ") != want ||
			want && !strings.Contains(note, "(n)") {
			t.Errorf("event %d of node a, which waits for reports of node n: %q, want one that names n: %t", i, note, want)
		}
		w.pass(liveness.DefaultDuration)
	}
	if got := w.state(t, "a").Spec.Protocol.ConfirmedSession; got != 0 {
		t.Errorf("session %d of node a is confirmed although reports of node n do not come, want none", got)
	}
}

func TestOnlyTheAgentOfANodeThatIsKnownToBeGoneIsNotWaitedFor(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	reported := stateOf("a", func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Protocol = volumesv1alpha1.AgentProtocol{ObservedUID: nvs.UID, Session: 3, Reports: 3}
	})
	off := node.DeepCopy()
	off.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	reported.Status.Node.OutOfService = &volumesv1alpha1.OutOfServiceObservation{Effect: corev1.TaintEffectNoExecute,
		LastSession: 3}
	for name, c := range map[string]struct {
		objects []client.Object
		down    error
		excuse  string
		never   bool
	}{
		"off by its taint, which the backup may contain": {[]client.Object{off}, nil, "", false},
		"excused from this restore":                      {[]client.Object{off}, nil, "this-restore", true},
		"excused from an earlier restore":                {[]client.Object{off}, nil, "an-earlier-restore", false},
		"there":                                          {[]client.Object{node}, nil, "", false},
		"gone":                                           {nil, nil, "", true},
		"not known to be so":                             {nil, errDown, "", false},
	} {
		metav1.SetMetaDataAnnotation(&reported.ObjectMeta, volumesv1alpha1.ExcusedFromRestoreAnnotation, c.excuse)
		w := over(t, c.objects, nil)
		w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, cache client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if c.down != nil {
					return c.down
				}
				return cache.Get(ctx, key, o, opts...)
			},
		})
		if got := w.neverSpeaks(t.Context(), reported, []types.UID{"this-restore"}); got != c.never {
			t.Errorf("agent of a Node that is %s never speaks: %t, want %t", name, got, c.never)
		}
	}
}
