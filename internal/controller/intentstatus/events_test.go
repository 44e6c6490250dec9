/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentstatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/status"
)

// recorder keeps what is recorded.
type recorder struct {
	events []recorded
}

type recorded struct {
	regarding          *corev1.ObjectReference
	related            runtime.Object
	kind, reason, note string
}

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, _, note string, args ...any) {
	r.events = append(r.events,
		recorded{regarding.(*corev1.ObjectReference), related, kind, reason, fmt.Sprintf(note, args...)})
}

// take returns the events since it was last called.
func (r *recorder) take() []recorded {
	events := r.events
	r.events = nil
	return events
}

func fixture() (*Reporter, *recorder, *clocktesting.FakePassiveClock) {
	events, clock := &recorder{}, clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	return &Reporter{Events: events, Clock: clock}, events, clock
}

func intent(version string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "intent-uid", ResourceVersion: version},
	}
}

// with returns the intent in its next version, in which Attached says this.
func with(
	i *volumesv1alpha1.VolumeAttachmentIntent, version string, value metav1.ConditionStatus, reason, message string,
) *volumesv1alpha1.VolumeAttachmentIntent {
	next := i.DeepCopy()
	next.ResourceVersion = version
	status.Set(next, volumesv1alpha1.ConditionAttached, value, reason, message)
	return next
}

func TestAWaitIsReportedAgainAtGrowingIntervalsUntilItIsOver(t *testing.T) {
	r, events, clock := fixture()
	first := intent("1")
	waiting := with(first, "2", metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse, "held by node a")
	r.tell(first, waiting)
	if got := events.take(); len(got) != 1 || got[0].note != "VolumeInUseElsewhere: held by node a" ||
		got[0].reason != EventFailedAttach || got[0].kind != corev1.EventTypeWarning {
		t.Fatalf("events about a wait: %+v, want one Warning %s that node a holds the volume", got, EventFailedAttach)
	}
	remind := func() time.Duration { return r.Remind(waiting, volumesv1alpha1.ReasonVolumeInUse, "held by node a") }
	for _, interval := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute,
		5 * time.Minute, 5 * time.Minute} {
		if again := remind(); again != interval || len(events.take()) > 0 {
			t.Fatalf("first call of Remind: next reminder in %s, want %s and no event", again, interval)
		}
		clock.SetTime(clock.Now().Add(interval))
		next := remind()
		got := events.take()
		if len(got) != 1 || got[0].regarding.ResourceVersion != "2" {
			t.Fatalf("events %s later: %+v, want one about version 2 of the intent", interval, got)
		}
		if next <= 0 || next > 5*time.Minute {
			t.Fatalf("next reminder in %s, want at most 5m", next)
		}
	}
	attached := with(waiting, "3", metav1.ConditionTrue, volumesv1alpha1.ReasonAttached, "attached to node b")
	r.tell(waiting, attached)
	if got := events.take(); len(got) != 1 || got[0].reason != EventSuccessfulAttach ||
		got[0].kind != corev1.EventTypeNormal {
		t.Errorf("events after the attach: %+v, want one Normal %s", got, EventSuccessfulAttach)
	}
	if again := r.Remind(attached, volumesv1alpha1.ReasonAttached, "attached to node b"); again != 0 {
		t.Errorf("next reminder after the attach in %s, want none", again)
	}
}

func TestSuccessIsAnEventOnlyAfterAFailure(t *testing.T) {
	r, events, _ := fixture()
	unresolved := intent("1")
	status.Set(unresolved, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse,
		volumesv1alpha1.ReasonClaimNotFound, "no claim")
	for _, c := range []struct {
		name   string
		before *volumesv1alpha1.VolumeAttachmentIntent
		told   bool
	}{
		{"nothing was said", intent("1"), false},
		{"it was on its way",
			with(intent("1"), "2", metav1.ConditionFalse, volumesv1alpha1.ReasonAttaching, "under way"), false},
		{"it waited for another node",
			with(intent("1"), "2", metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse, "held by node a"), true},
		{"there was no claim", unresolved, true},
	} {
		r.tell(c.before, with(c.before, "9", metav1.ConditionTrue, volumesv1alpha1.ReasonAttached, "attached"))
		if got := events.take(); (len(got) > 0) != c.told {
			t.Errorf("%s: events %+v, want one: %t", c.name, got, c.told)
		}
	}
}

func TestAnotherMessageIsAnotherEvent(t *testing.T) {
	r, events, _ := fixture()
	first := intent("1")
	a := with(first, "2", metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse, "held by node a")
	b := with(a, "7", metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse, "held by node b")
	r.tell(first, a)
	r.tell(a, b)
	got := events.take()
	if len(got) != 2 || *got[0].regarding == *got[1].regarding || !strings.Contains(got[1].note, "node b") {
		t.Errorf("events about two holders: %+v, want 2 that a recorder does not count as one", got)
	}
	if again := r.Remind(a, volumesv1alpha1.ReasonVolumeInUse, "held by node b"); again != 0 {
		t.Errorf("next reminder of a message that the cache does not have yet: in %s, want none", again)
	}
}

func TestAnotherErrorOfTheDriverIsReportedAtOnceAsTheSameEvent(t *testing.T) {
	r, events, _ := fixture()
	first := intent("1")
	failed := with(first, "2", metav1.ConditionFalse, volumesv1alpha1.ReasonAttachFailed, "no such disk")
	failed.Status.LastError = &volumesv1alpha1.OperationError{Operation: OperationAttach, Attempts: 1}
	again := failed.DeepCopy()
	again.ResourceVersion, again.Status.LastError.Attempts = "3", 2
	r.tell(first, failed)
	r.tell(failed, again)
	r.tell(again, again)
	if got := events.take(); len(got) != 2 || *got[0].regarding != *got[1].regarding || got[0].note != got[1].note {
		t.Errorf("events about two errors of the driver: %+v, want 2 that a recorder counts as one", got)
	}
}

func TestWhatIsOnItsWayIsNoFailure(t *testing.T) {
	for _, reason := range []string{volumesv1alpha1.ReasonAttaching, volumesv1alpha1.ReasonDetaching,
		volumesv1alpha1.ReasonDetached} {
		r, events, _ := fixture()
		first := intent("1")
		next := with(first, "2", metav1.ConditionFalse, reason, "soon")
		r.tell(first, next)
		if again := r.Remind(next, reason, "soon"); again != 0 || len(events.take()) > 0 {
			t.Errorf("reason %s: reminder in %s, want neither a reminder nor an event", reason, again)
		}
	}
}

func TestARestartedManagerContinuesToReport(t *testing.T) {
	r, events, clock := fixture()
	waiting := with(intent("1"), "2", metav1.ConditionFalse, volumesv1alpha1.ReasonNodeLimitReached, "full")
	again := r.Remind(waiting, volumesv1alpha1.ReasonNodeLimitReached, "full")
	if again != 30*time.Second || len(events.take()) > 0 {
		t.Errorf("first reminder of a restarted manager in %s, want 30s and no event", again)
	}
	clock.SetTime(clock.Now().Add(again))
	r.Remind(waiting, volumesv1alpha1.ReasonNodeLimitReached, "full")
	if len(events.take()) != 1 {
		t.Errorf("a restarted manager did not report the wait once after %s, want one event", again)
	}
}

func TestAPodGetsTheEventsOfItsIntent(t *testing.T) {
	r, events, _ := fixture()
	first := intent("1")
	first.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "pod-uid"}
	first.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: "db-0", UID: "pod-uid", Controller: ptr.To(true)},
	}
	r.tell(first, with(first, "2", metav1.ConditionFalse, volumesv1alpha1.ReasonAttachFailed, strings.Repeat("ä", 1000)))
	got := events.take()
	if len(got) != 1 {
		t.Fatalf("events about the intent of pod db-0: %+v, want one", got)
	}
	want := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "db-0", UID: "pod-uid"}
	related, ok := got[0].related.(*corev1.ObjectReference)
	if *got[0].regarding != want || !ok || related.Name != "data" || related.Kind != "VolumeAttachmentIntent" {
		t.Errorf("event regarding %+v, related %+v; want %+v and the intent data", got[0].regarding, got[0].related, want)
	}
	if n := got[0].note; len(n) > 1024 || !strings.HasSuffix(n, "ä...") {
		t.Errorf("note of %d bytes ends with %q, want at most 1024 and a whole character with dots", len(n), n[len(n)-8:])
	}
}
