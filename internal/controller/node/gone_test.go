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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/handshake"
)

const aDay = 24 * time.Hour

var noon = metav1.NewMicroTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))

// leaseOf the agent of a node, made as uid and renewed then.
func leaseOf(node string, uid types.UID, renewed *metav1.MicroTime) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volumesv1alpha1.InstallNamespace, Name: volumesv1alpha1.AgentLeasePrefix + node, UID: uid,
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: renewed},
	}
}

// watched is what was written down of a node: that it has been gone for so long since this renewal.
func watched(word string, d time.Duration) func(*volumesv1alpha1.NodeVolumeState) {
	return func(nvs *volumesv1alpha1.NodeVolumeState) {
		nvs.Status.Node.Gone = &volumesv1alpha1.GoneObservation{LastRenewal: word, Observed: metav1.Duration{Duration: d}}
	}
}

func forcedAwayEntry(nvs *volumesv1alpha1.NodeVolumeState) {
	detached("v", "1", volumesv1alpha1.EvidenceNodeGone)(nvs)
}

// declarations are the attachments that were declared released on a state.
func declarations(nvs *volumesv1alpha1.NodeVolumeState) []string {
	var uids []string
	for key := range nvs.Annotations {
		if uid, ok := strings.CutPrefix(key, volumesv1alpha1.DeclaredReleasedPrefix); ok {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// value of a counter.
func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

func TestAnAbsentNodeIsForgottenOnceItWasWatchedForTheTimeOfThePolicy(t *testing.T) {
	nvs := stateOf("gone", forcedAwayEntry)
	w := over(t, []client.Object{nvs}, []client.Object{nvs, leaseOf("gone", "lease", &noon)})
	w.ForgetAfter = aDay
	before := value(t, metrics.Forgotten)
	for hour := range 25 {
		if got := declarations(w.state(t, "gone")); got != nil {
			t.Fatalf("declarations on node state gone after %d hours: %v, want none", hour, got)
		}
		for half := range 2 {
			// A pass between two reads waits for the next one.
			again, err := w.forgetGone(t.Context(), nvs)
			if want := time.Hour - time.Duration(half)*30*time.Minute; err != nil || again != want {
				t.Fatalf("node gone after %d hours: next check in %s, error %v; want %s", hour, again, err, want)
			}
			w.pass(30 * time.Minute)
		}
		if got := w.state(t, "gone").Status.Node.Gone; got == nil || got.Observed.Duration != time.Duration(hour)*time.Hour {
			t.Fatalf("absence recorded of node gone after %d hours: %+v, want %dh", hour, got, hour)
		}
		if w.observed != hour+1 {
			t.Fatalf("updates of node state gone after %d hours: %d, want %d", hour, w.observed, hour+1)
		}
	}
	if counted := value(t, metrics.Forgotten) - before; counted != 1 {
		t.Errorf("forgotten attachments that were counted: %v, want 1", counted)
	}
	after := w.state(t, "gone")
	reason := after.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"]
	if !strings.HasPrefix(reason, volumesv1alpha1.ForgetGoneReason+"24h0m0s") {
		t.Errorf("reason of the declaration of attachment 1: %q, want %q", reason, volumesv1alpha1.ForgetGoneReason+"24h0m0s")
	}
	if len(after.Spec.Attachments) != 1 || len(after.Finalizers) != 1 {
		t.Errorf("node state gone: %+v, want no more than a declaration written", after)
	}
	note := w.note(t)
	if !strings.HasPrefix(note, "Warning "+EventGoneNodeForgotten) || !strings.Contains(note, "node gone") ||
		!strings.HasSuffix(note, " 1") {
		t.Errorf("event about node gone: %q, want %s with attachment 1", note, EventGoneNodeForgotten)
	}
}

func TestTheAttachmentsThatAreForgottenWithANode(t *testing.T) {
	type with = []func(*volumesv1alpha1.NodeVolumeState)
	const (
		forced   = volumesv1alpha1.EvidenceForcedAfterTimeout
		released = volumesv1alpha1.EvidenceAgentReleased
		ours     = volumesv1alpha1.ForcedAwayFinalizer
		theirs   = "external-attacher/d"
	)
	published := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-1", UID: "1"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "gone"},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
	for _, c := range []struct {
		name   string
		is     with
		others []client.Object
		want   []string
	}{
		{"an entry that was forced away and is detached", with{detached("v", "1", forced)}, nil, []string{"1"}},
		{"each of several", with{detached("v", "1", forced), detached("w", "2", forced)}, nil, []string{"1", "2"}},
		{"not what is still being detached", with{detaching("v", "1", forced)}, nil, nil},
		{"not what is attached", with{attached("v", "1")}, nil, nil},
		{"not what the agent released", with{detached("v", "1", released)}, nil, nil},
		{"not what was declared before", with{detached("v", "1", forced), declared("1")}, nil, nil},
		{"what another declaration is not about", with{detached("v", "1", forced), declared("2")}, nil, []string{"1"}},
		{"not an entry whose attachment the driver has not unpublished", with{detached("v", "1", forced)},
			[]client.Object{leavingAttachment("1", "gone", ours, theirs)}, nil},
		{"not an entry whose attachment is there", with{detached("v", "1", forced)}, []client.Object{published}, nil},
		{"a use without an entry", with{line("v", "1", true)}, nil, []string{"1"}},
		{"not the use of an attachment that is there", with{line("v", "1", true)}, []client.Object{published}, nil},
		{"not a use that has ended", with{line("v", "1", false)}, nil, nil},
		{"a use that has ended does not hide the entry", with{detached("v", "1", forced), line("v", "2", false)}, nil,
			[]string{"1"}},
		{"an earlier use beside an entry that was forced away", with{detached("v", "1", forced), line("v", "2", true)}, nil,
			[]string{"1", "2"}},
		{"not a use of what is attached", with{attached("v", "1"), line("v", "1", true)}, nil, nil},
		{"not a use of what is still being detached", with{detaching("v", "1", forced), line("v", "1", true)}, nil, nil},
		{"not a use of what the agent released", with{detached("v", "1", released), line("v", "1", true)}, nil, nil},
		{"not a use that names no attachment", with{line("v", "", true)}, nil, nil},
		{"a name that is kept", nil, []client.Object{leavingAttachment("1", "gone", ours)}, []string{"1"}},
		{"not a name that is kept for a driver that has not unpublished", nil,
			[]client.Object{leavingAttachment("1", "gone", ours, theirs)}, nil},
		{"not a name that another one keeps", nil, []client.Object{leavingAttachment("1", "gone", theirs)}, nil},
		{"not a name that is kept on another node", nil, []client.Object{leavingAttachment("1", "here", ours)}, nil},
		{"an entry, a use and a name of one attachment, once", with{detached("v", "1", forced), line("v", "1", true)},
			[]client.Object{leavingAttachment("1", "gone", ours)}, []string{"1"}},
		{"not what an agent reports in use under another name", with{detached("v", "1", forced), detached("w", "2", forced)},
			[]client.Object{stateOf("renamed", line("v", "1", true))}, []string{"2"}},
		{"what another node uses by its own attachment", with{detached("v", "1", forced)},
			[]client.Object{stateOf("here", line("v", "2", true))}, []string{"1"}},
		{"what another node does not use any more", with{detached("v", "1", forced)},
			[]client.Object{stateOf("here", line("v", "1", false))}, []string{"1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nvs := stateOf("gone", append(c.is, watched("", aDay))...)
			w := over(t, append(c.others, nvs), []client.Object{nvs})
			w.ForgetAfter = aDay
			if _, err := w.forgetGone(t.Context(), nvs); err != nil {
				t.Fatal(err)
			}
			before := declarations(nvs)
			got := slices.DeleteFunc(declarations(w.state(t, "gone")), func(uid string) bool {
				return slices.Contains(before, uid)
			})
			if !slices.Equal(got, c.want) {
				t.Errorf("declarations on node state gone: %v, want %v", got, c.want)
			}
			_, told, _ := strings.Cut(w.note(t), "attachments ")
			if told != strings.Join(c.want, ", ") {
				t.Errorf("attachments in the event about node gone: %q, want %v", told, c.want)
			}
			if c.want == nil && w.looks+w.updates > 0 {
				t.Errorf("node gone with nothing to forget: %d live reads and %d updates, want none", w.looks, w.updates)
			}
		})
	}
}

func TestAnAbsentNodeIsForgottenOnlyOnALiveRead(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	silent := leaseOf("gone", "lease", &noon)
	heard := leaseOf("gone", "lease", &metav1.MicroTime{Time: noon.Add(time.Second)})
	gone := stateOf("gone", forcedAwayEntry, watched(handshake.Renewal(silent), aDay))
	leaving := node.DeepCopy()
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: noon.Time}, []string{"karpenter.sh/termination"}
	changed := gone.DeepCopy()
	changed.ResourceVersion = "8"
	byHand := changed.DeepCopy()
	declared("1")(byHand)
	for _, c := range []struct {
		name         string
		cached, live []client.Object
		want         []string
		again        time.Duration
	}{
		{"there is none, and its agent is silent", []client.Object{gone}, []client.Object{gone, silent},
			[]string{"1"}, time.Hour},
		{"the cache shows a Node that is gone", []client.Object{gone, node, heard}, []client.Object{gone, silent},
			[]string{"1"}, time.Hour},
		{"there is a Node that the cache does not show yet", []client.Object{gone, silent},
			[]client.Object{gone, node, silent}, nil, never},
		{"the agent was heard, and the cache does not show it yet", []client.Object{gone, silent},
			[]client.Object{gone, heard}, nil, time.Hour},
		{"another agent's silence", []client.Object{gone}, []client.Object{gone, leaseOf("here", "lease", &noon)},
			nil, time.Hour},
		{"another Lease of the name", []client.Object{gone}, []client.Object{gone, leaseOf("gone", "other", &noon)},
			nil, time.Hour},
		{"it is being deleted, and its agent is silent", []client.Object{gone, leaving},
			[]client.Object{gone, leaving, silent}, []string{"1"}, time.Hour},
		{"it is being deleted, and its agent was heard", []client.Object{gone, leaving},
			[]client.Object{gone, leaving, heard}, nil, time.Hour},
		{"its state has changed meanwhile", []client.Object{gone}, []client.Object{changed, silent},
			[]string{"1"}, time.Hour},
		{"its state is gone", []client.Object{gone}, []client.Object{silent}, nil, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := over(t, c.cached, c.live)
			w.ForgetAfter = aDay
			again, err := w.forgetGone(t.Context(), gone)
			if err != nil || again != c.again {
				t.Errorf("node gone: next check in %s, error %v; want %s", again, err, c.again)
			}
			var got []string
			if state := w.state(t, "gone"); state != nil {
				got = declarations(state)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("declarations on node state gone: %v, want %v", got, c.want)
			}
			if told := w.note(t) != ""; told != (c.want != nil) {
				t.Errorf("event about node gone: %t, want %t", told, c.want != nil)
			}
		})
	}
	t.Run("an administrator has declared it meanwhile", func(t *testing.T) {
		w := over(t, []client.Object{gone}, []client.Object{byHand, silent})
		w.ForgetAfter = aDay
		if _, err := w.forgetGone(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		if got := w.state(t, "gone").Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"1"]; got != "by hand" ||
			w.note(t) != "" {
			t.Errorf("reason of the declaration of attachment 1: %q, want by hand, and no event", got)
		}
	})
}

func TestANodeThatIsBeingDeletedIsForgottenToo(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	leaving := node.DeepCopy()
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: noon.Time}, []string{"karpenter.sh/termination"}
	silent := leaseOf("gone", "lease", &noon)
	gone := stateOf("gone", forcedAwayEntry, watched(handshake.Renewal(silent), aDay))
	for is, want := range map[*corev1.Node][]string{node: nil, leaving: {"1"}} {
		w := over(t, []client.Object{gone, is}, []client.Object{gone, is, silent})
		w.ForgetAfter = aDay
		if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(gone)}); err != nil {
			t.Fatal(err)
		}
		after := w.state(t, "gone")
		if got := declarations(after); !slices.Equal(got, want) || (after.Status.Node.Gone == nil) != (want == nil) {
			t.Errorf("declarations on the state of a node that is deleted at %s: %v, absence %+v; want %v", is.DeletionTimestamp,
				got, after.Status.Node.Gone, want)
		}
	}
}

func TestWithoutAPolicyAnAbsentNodeIsNotRead(t *testing.T) {
	nvs := stateOf("gone", forcedAwayEntry, watched("", aDay))
	w := over(t, []client.Object{nvs}, []client.Object{nvs})
	if again, err := w.forgetGone(t.Context(), nvs); again != never || err != nil || w.updates+w.observed+w.looks > 0 {
		t.Errorf("node gone without a policy: next check in %s, error %v, %d updates, %d reads; want none", again, err,
			w.updates+w.observed, w.looks)
	}
}

func TestAFailedReadOfAnAbsentNodeForgetsNothingAndItsTimeDoesNotCount(t *testing.T) {
	for _, request := range []string{
		"list *v1.VolumeAttachmentList", "list *v1alpha1.NodeVolumeStateList",
		"get *v1.Node", "get *v1.Lease", "update status of *v1alpha1.NodeVolumeState",
	} {
		t.Run(request, func(t *testing.T) {
			nvs := stateOf("gone", forcedAwayEntry, watched("", aDay))
			w := over(t, []client.Object{nvs}, []client.Object{nvs})
			w.ForgetAfter, w.down = 2*aDay, request
			for range 60 {
				if _, err := w.forgetGone(t.Context(), nvs); err == nil {
					t.Fatalf("forgetting node gone while %q fails: no error, want one", request)
				}
				w.pass(2 * time.Hour)
			}
			w.down = ""
			if _, err := w.forgetGone(t.Context(), nvs); err != nil {
				t.Fatal(err)
			}
			after := w.state(t, "gone")
			if declarations(after) != nil || after.Status.Node.Gone.Observed.Duration != aDay || w.note(t) != "" {
				t.Errorf("node gone after %q failed: declared %v, absence %s; want none and %s", request, declarations(after),
					after.Status.Node.Gone.Observed.Duration, aDay)
			}
		})
	}
}

func TestAnAbsentNodeIsNotForgottenWhileItsAttachmentsCannotBeListed(t *testing.T) {
	nvs := stateOf("gone", forcedAwayEntry, watched("", aDay))
	w := over(t, []client.Object{nvs}, []client.Object{nvs})
	w.ForgetAfter, w.down, w.spare = aDay, "list *v1.VolumeAttachmentList", 1
	if _, err := w.forgetGone(t.Context(), nvs); err == nil || w.updates > 0 || w.note(t) != "" {
		t.Errorf("node gone while attachments cannot be listed: error %v, %d updates; want an error alone", err, w.updates)
	}
}

func TestADeclarationThatFailsIsTriedAgain(t *testing.T) {
	nvs := stateOf("gone", forcedAwayEntry, watched("", aDay))
	w := over(t, []client.Object{nvs}, []client.Object{nvs})
	w.ForgetAfter, w.down = aDay, "update *v1alpha1.NodeVolumeState"
	if _, err := w.forgetGone(t.Context(), nvs); err == nil || declarations(w.state(t, "gone")) != nil {
		t.Fatalf("declared %v, error %v; want the failure and no declaration", declarations(w.state(t, "gone")), err)
	}
	w.down = ""
	if _, err := w.forgetGone(t.Context(), nvs); err != nil || len(declarations(w.state(t, "gone"))) != 1 {
		t.Errorf("declared %v, error %v; want one declaration", declarations(w.state(t, "gone")), err)
	}
}

func TestANodeThatRegistersBetweenTheObservationAndTheDeclarationIsNotForgotten(t *testing.T) {
	nvs := stateOf("gone", forcedAwayEntry, watched("", aDay))
	w := over(t, []client.Object{nvs}, []client.Object{nvs})
	w.ForgetAfter = aDay
	w.Observations.Client = interceptor.NewClient(w.live, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, live client.Client, part string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
			return errors.Join(live.SubResource(part).Update(ctx, o, opts...), live.Create(ctx, node))
		},
	})
	if _, err := w.forgetGone(t.Context(), nvs); err != nil || declarations(w.state(t, "gone")) != nil {
		t.Errorf("declared %v, error %v; want neither", declarations(w.state(t, "gone")), err)
	}
}

func TestTheLastSignOfAnAgentChangesWithEachRenewalAndWithNothingElse(t *testing.T) {
	elsewhere := metav1.NewMicroTime(noon.In(time.FixedZone("", 7200)))
	next := metav1.NewMicroTime(noon.Add(time.Microsecond))
	for _, c := range []struct {
		name string
		a, b *coordinationv1.Lease
		same bool
	}{
		{"the same renewal", leaseOf("n", "1", &noon), leaseOf("n", "1", &noon), true},
		{"the same renewal in another zone", leaseOf("n", "1", &noon), leaseOf("n", "1", &elsewhere), true},
		{"the next renewal", leaseOf("n", "1", &noon), leaseOf("n", "1", &next), false},
		{"another Lease", leaseOf("n", "1", &noon), leaseOf("n", "2", &noon), false},
		{"the first renewal", leaseOf("n", "1", nil), leaseOf("n", "1", &noon), false},
		{"two Leases that were not renewed", leaseOf("n", "1", nil), leaseOf("n", "2", nil), false},
		{"no Lease, and one that was not renewed", &coordinationv1.Lease{}, leaseOf("n", "1", nil), false},
		{"no Lease", &coordinationv1.Lease{}, &coordinationv1.Lease{}, true},
	} {
		if a, b := handshake.Renewal(c.a), handshake.Renewal(c.b); (a == b) != c.same {
			t.Errorf("%s: last signs %q and %q, want them equal: %t", c.name, a, b, c.same)
		}
	}
}

func TestAnAbsentNodeIsReadTwentyFourTimesButAtMostEveryTenSeconds(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		aDay: time.Hour, 4 * time.Minute: 10 * time.Second, time.Minute: 10 * time.Second,
	} {
		if got := (&Controller{ForgetAfter: after}).lookPeriod(); got != want {
			t.Errorf("absent nodes, forgotten after %s, are read each %s, want %s", after, got, want)
		}
	}
}

func TestWhatWasWatchedOfANodeThatIsBackIsVoid(t *testing.T) {
	gone := stateOf("gone", forcedAwayEntry, watched("", time.Hour))
	cleared := stateOf("gone", forcedAwayEntry)
	cleared.ResourceVersion = "8"
	for _, c := range []struct {
		name string
		// asked is the state that the pass began with.
		asked        *volumesv1alpha1.NodeVolumeState
		cached, live []client.Object
		updates      int
	}{
		{"something is written down", gone, []client.Object{gone}, []client.Object{gone}, 1},
		{"nothing is written down", cleared, []client.Object{cleared}, []client.Object{cleared}, 0},
		{"it was cleared meanwhile", gone, []client.Object{cleared}, []client.Object{cleared}, 0},
		{"its state is gone", gone, nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := over(t, c.cached, c.live)
			w.ForgetAfter = aDay
			w.absences.look("gone", "", nil, time.Hour, w.now.Now())
			w.pass(time.Hour)
			if again, err := w.returned(t.Context(), c.asked); again != never || err != nil {
				t.Fatalf("node gone, which is back: next check in %s, error %v; want none", again, err)
			}
			if c.asked.Status.Node.Gone == nil && w.looks > 0 {
				t.Errorf("node gone with nothing recorded: %d live reads, want none", w.looks)
			}
			if state := w.state(t, "gone"); w.observed != c.updates ||
				state != nil && (state.Status.Node.Gone != nil || len(state.Spec.Attachments) != 1) {
				t.Errorf("node state gone: %d updates, %+v; want %d, and no absence recorded", w.observed, state, c.updates)
			}
			w.pass(time.Hour)
			if got := w.absences.look("gone", "", nil, time.Hour, w.now.Now()); got.Observed.Duration != 0 {
				t.Errorf("absence measured of node gone, which was back: %s, want 0s", got.Observed.Duration)
			}
		})
	}
	t.Run("a failure is tried again", func(t *testing.T) {
		w := over(t, []client.Object{gone}, []client.Object{gone})
		w.down = "update status of *v1alpha1.NodeVolumeState"
		if _, err := w.returned(t.Context(), gone); err == nil {
			t.Error("clearing the absence of node gone while writes fail: no error, want one")
		}
	})
}
