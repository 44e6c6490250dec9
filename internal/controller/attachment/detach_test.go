/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/handshake"
)

// outOfService is a Node with the taint that vouches for it being off.
func outOfService(name string) *corev1.Node {
	node := nodeNamed(name)
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	return node
}

func declaring(nvs *volumesv1alpha1.NodeVolumeState, uid types.UID) *volumesv1alpha1.NodeVolumeState {
	nvs.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + string(uid): "scrapped"}
	return nvs
}

func TestTheEvidenceOfADetach(t *testing.T) {
	attached := func() *volumesv1alpha1.NodeVolumeState { return entryIn(reported("a"), isThere, "1", "") }
	ended := func(evidence volumesv1alpha1.EvidenceType) *volumesv1alpha1.NodeVolumeState {
		state := entryIn(reported("a"), leavesIt, "0", evidence)
		state.Spec.Attachments[0].DetachedTime = ptr.To(metav1.Now())
		return state
	}
	tableOnly := usedIn(attached(), "1")
	tableOnly.Status.MountTableReleases = []volumesv1alpha1.MountTableRelease{{VolumeName: "v", AttachmentUID: "1"}}
	for _, test := range []struct {
		name     string
		state    *volumesv1alpha1.NodeVolumeState
		evidence bool
		want     volumesv1alpha1.EvidenceType
		// message that the evidence has, or a part of it.
		message string
		// kept: nothing is written, because the entry says it already.
		kept bool
	}{
		{name: "the agent's word", state: attached(), want: byAgent, message: "node a reports the volume not in use"},
		{name: "the agent's word, also where there is evidence", state: attached(), evidence: true, want: byAgent},
		{name: "the evidence, while the volume is in use",
			state: usedIn(attached(), "1"), evidence: true, want: byTaint, message: "taint"},
		{name: "and nothing but that, though the agent had only its mount table",
			state: tableOnly, evidence: true, want: byTaint, message: "taint"},
		{name: "no evidence that was not asked for", state: usedIn(attached(), "1")},
		{name: "an administrator's word",
			state: declaring(usedIn(attached(), "1"), "1"), evidence: true,
			want: volumesv1alpha1.EvidenceDeclaredByAdministrator, message: "scrapped"},
		{name: "not one that came meanwhile, where the agent's is enough", state: declaring(attached(), "1"), want: byAgent},
		{name: "evidence about another attachment's use says nothing", state: usedIn(reported("a"), "2"), evidence: true},
		{name: "an entry of another attachment is not replaced",
			state: entryIn(reported("a"), isThere, "2", ""), evidence: true},
		{name: "unless that one is over", state: ended(byAgent), want: byAgent},
		{name: "also where it was forced away", state: ended(byTaint), want: byAgent},
		{name: "a node that has no state says nothing", evidence: true},
		{name: "what was forced stays as it was decided",
			state: entryIn(reported("a"), leavesIt, "1", volumesv1alpha1.EvidenceNodeGone), evidence: true,
			want: volumesv1alpha1.EvidenceNodeGone, message: "as it was first found", kept: true},
		{name: "what the agent released stays so",
			state: entryIn(reported("a"), leavesIt, "1", byAgent), want: byAgent, message: "as it was first found", kept: true},
		{name: "unless evidence is to stand in for it",
			state: entryIn(reported("a"), leavesIt, "1", byAgent), evidence: true, want: byTaint, message: "taint"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, now := over(t, outOfService("a"), attachedTo("va-1", "1"))
			if test.state != nil {
				silenced(test.state).Status.BootID = "boot"
				if err := c.Client.Create(t.Context(), test.state.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			notHeard(c, now, "a")
			recorder := events.NewFakeRecorder(10)
			c.Events = recorder
			f, n := factsOf(t, c)
			n.State.Entry = handshake.Entry{State: handshake.Attached, UID: "1"} // as the cache has it
			if err := c.markDetaching(t.Context(), f,
				decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0],
					Evidence: test.evidence}); err != nil {
				t.Fatal(err)
			}
			marked := decision.MarkedDetaching(n.State, "1")
			if marked != (test.want != "") || (n.Wait != nil) == marked {
				t.Fatalf("volume v on node a: marked as detaching %t, wait %+v; want %t, or a wait", marked, n.Wait,
					test.want != "")
			}
			if told := len(recorder.Events) == 1; told != (marked && !test.kept) {
				t.Errorf("events about the detach of volume v from node a: %d, want one: %t", len(recorder.Events),
					marked && !test.kept)
			}
			if !marked {
				return
			}
			e := handshake.AttachmentOf(liveState(t, c, "a"), "v")
			if e.Evidence.Type != test.want || !strings.Contains(e.Evidence.Message, test.message) ||
				e.AttachmentName != "va-1" || e.Evidence.MountTableOnly {
				t.Errorf("entry of volume v on node a: attachment %s, evidence %+v; want va-1 and %s with %q", e.AttachmentName,
					e.Evidence, test.want, test.message)
			}
			if !test.kept && (e.Evidence.BootID != "boot" || e.Evidence.Time.Unix() != now.Now().Unix()) {
				t.Errorf("evidence of volume v on node a: found %s in boot %q, want %s in boot %q", e.Evidence.Time,
					e.Evidence.BootID, now.Now(), "boot")
			}
		})
	}
}

// TestAReleaseFromBeforeANodeWentIsNoneOfWhatItsKubeletMountedAfterwards: only what it covers counts.
func TestAReleaseFromBeforeANodeWentIsNoneOfWhatItsKubeletMountedAfterwards(t *testing.T) {
	for _, test := range []struct {
		name     string
		given    []func(*decision.Node)
		absence  bool
		evidence bool
		want     volumesv1alpha1.EvidenceType
	}{
		{name: "the kubelet had not mounted it", given: []func(*decision.Node){covered}, want: byAgent},
		{name: "it may have"},
		{name: "the absence is no evidence", evidence: true},
		{name: "the absence is evidence", absence: true, evidence: true, want: volumesv1alpha1.EvidenceNodeGone},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := silenced(entryIn(reported("a"), isThere, "1", ""))
			if test.absence {
				departed(state, noon)
			}
			c, now := over(t, attachedTo("va-1", "1"), state, renewedLease("a", noon))
			c.Events = events.NewFakeRecorder(10)
			f, n := factsOf(t, c)
			n.Missing = true
			for _, change := range test.given {
				change(n)
			}
			if _, err := c.leased(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			c.unready.Observe("a", c.spellOf("a", nil), 0, time.Hour, now.Now())
			now.SetTime(now.Now().Add(time.Hour))
			if err := c.markDetaching(t.Context(), f, decision.Step{Act: decision.MarkDetaching, Node: n,
				Attachment: &n.Attachments[0], Evidence: test.evidence}); err != nil {
				t.Fatal(err)
			}
			var got volumesv1alpha1.EvidenceType
			if e := handshake.AttachmentOf(liveState(t, c, "a"), "v").Evidence; e != nil {
				got = e.Type
			}
			if got != test.want {
				t.Errorf("evidence of the detach of volume v from node a: %q, want %q", got, test.want)
			}
		})
	}
}

func TestADetachOnEvidenceIsUnprotectedUnlessTheDriverCutsTheNodesAccess(t *testing.T) {
	for _, test := range []struct {
		name              string
		inUse, cuts, want bool
	}{
		{"the agent released it", false, false, false},
		{"evidence, and the driver cuts", true, true, false},
		{"evidence, and it does not", true, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := silenced(entryIn(reported("a"), isThere, "1", ""))
			if test.inUse {
				usedIn(state, "1")
			}
			c, now := over(t, outOfService("a"), attachedTo("va-1", "1"), state)
			notHeard(c, now, "a")
			c.Events = events.NewFakeRecorder(10)
			f, n := factsOf(t, c)
			f.CutsAccess = test.cuts
			if err := c.markDetaching(t.Context(), f,
				decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0],
					Evidence: true}); err != nil {
				t.Fatal(err)
			}
			if e := handshake.AttachmentOf(liveState(t, c, "a"), "v").Evidence; e.Unprotected != test.want {
				t.Errorf("evidence of volume v on node a: %+v, want unprotected %t", e, test.want)
			}
		})
	}
}

func TestADetachWithoutAnAttachmentHasAUIDOfItsOwn(t *testing.T) {
	for _, test := range []struct {
		name  string
		state *volumesv1alpha1.NodeVolumeState
		want  types.UID
	}{
		{"a driver without attach keeps the one that it was confirmed under", entryIn(reported("a"), isThere, "1", ""), "1"},
		{"what the Node lists though nothing is attached gets one", reported("a"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, test.state)
			c.Events = events.NewFakeRecorder(10)
			f, n := factsOf(t, c)
			if err := c.markDetaching(t.Context(), f,
				decision.Step{Act: decision.MarkDetaching, Node: n}); err != nil {
				t.Fatal(err)
			}
			if uid := n.State.Entry.UID; n.State.Entry.State != handshake.Detaching || uid == "" || test.want != "" &&
				uid != test.want {
				t.Errorf("entry of volume v on node a: %+v, want Detaching with UID %q, or any if that is empty", n.State.Entry,
					test.want)
			}
		})
	}
}

// TestADetachThatAnotherLeaderWroteIsReportedOnce, by that leader, though this one's cache is behind.
func TestADetachThatAnotherLeaderWroteIsReportedOnce(t *testing.T) {
	c, _ := over(t, entryIn(reported("a"), leavesIt, "1", byTaint), attachedTo("va-1", "1"))
	old := entryIn(reported("a"), isThere, "1", "")
	old.ResourceVersion = "1"
	behind(t, c, old)
	recorder := events.NewFakeRecorder(10)
	c.Events = recorder
	f, n := factsOf(t, c)
	if err := c.markDetaching(t.Context(), f, decision.Step{Act: decision.MarkDetaching, Node: n,
		Attachment: &n.Attachments[0]}); err != nil {
		t.Fatal(err)
	}
	if len(recorder.Events) != 0 || n.Wait != nil || !n.State.Entry.Forced {
		t.Errorf("detach of volume v that another leader wrote: %d events, wait %+v, entry %+v; want none, none and forced",
			len(recorder.Events), n.Wait, n.State.Entry)
	}
}

func TestOnlyAnOutageCastsDoubtOnANodesSilence(t *testing.T) {
	for _, test := range []struct {
		name     string
		evidence bool
		// fails is the number of the request that is not answered, after the Node and the Lease it is the write.
		fails   int
		doubted bool
	}{
		{name: "it is marked on evidence", evidence: true},
		{name: "the API server is down, but no evidence is asked for", fails: 1},
		{name: "the Node cannot be read", evidence: true, fails: 1, doubted: true},
		{name: "the Lease cannot be read", evidence: true, fails: 2, doubted: true},
		{name: "all is read, and the write is not answered", evidence: true, fails: 3, doubted: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, now := over(t, outOfService("a"), silenced(usedIn(entryIn(reported("a"), isThere, "1", ""), "1")),
				attachedTo("va-1", "1"))
			c.Events = events.NewFakeRecorder(10)
			f, n := factsOf(t, c)
			c.Tracker.Silence("a")
			now.SetTime(now.Now().Add(time.Hour))
			r := &requests{fails: test.fails}
			r.through(c)
			err := c.markDetaching(t.Context(), f,
				decision.Step{Act: decision.MarkDetaching, Node: n, Attachment: &n.Attachments[0],
					Evidence: test.evidence})
			if fails := test.fails > 0; fails != errors.Is(err, errDown) {
				t.Fatalf("marking volume v on node a as detaching: error %v, want %v: %t", err, errDown, fails)
			}
			if doubted := c.Tracker.Silence("a") < 0; doubted != test.doubted {
				t.Errorf("silence of node a is doubted: %t, want %t", doubted, test.doubted)
			}
		})
	}
}

// TestAWriteThatTheAPIServerDidNotDecideOnCastsDoubtOnTheSilence: it takes no renewal of an agent then either.
func TestAWriteThatTheAPIServerDidNotDecideOnCastsDoubtOnTheSilence(t *testing.T) {
	noSpace := errors.New("etcdserver: mvcc: database space exceeded")
	states := schema.GroupResource{Group: "volumes.hawser.io", Resource: "nodevolumestates"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no answer":                {errDown, true},
		"etcd has no space":        {apierrors.NewInternalError(noSpace), true},
		"etcd is slow":             {apierrors.NewTimeoutError("request timed out", 1), true},
		"the API server is slow":   {apierrors.NewServerTimeout(states, "update", 1), true},
		"it has too many requests": {apierrors.NewTooManyRequests("later", 1), true},
		"it is unavailable":        {apierrors.NewServiceUnavailable("starting"), true},
		"a conflict":               {apierrors.NewConflict(states, "a", errors.New("changed")), false},
		"it is forbidden":          {apierrors.NewForbidden(states, "a", errors.New("policy")), false},
		"it is invalid":            {apierrors.NewInvalid(schema.GroupKind{Kind: "NodeVolumeState"}, "a", nil), false},
		"there is no state":        {apierrors.NewNotFound(states, "a"), false},
	} {
		if got := undecided(fmt.Errorf("writing Detaching: %w", c.err)); got != c.want {
			t.Errorf("%s: the API server did not decide on the write: %t, want %t", name, got, c.want)
		}
	}
}

func TestWhatIsWrittenOfAnAttachmentThatIsLost(t *testing.T) {
	terminating := attachedTo("va-1", "1")
	terminating.Finalizers, terminating.DeletionTimestamp = []string{"driver"}, ptr.To(metav1.Now())
	attached := func() *volumesv1alpha1.NodeVolumeState { return entryIn(reported("a"), isThere, "1", "") }
	for _, test := range []struct {
		name       string
		state      *volumesv1alpha1.NodeVolumeState
		attachment *storagev1.VolumeAttachment
		given      []func(*decision.Node)
		want       volumesv1alpha1.EvidenceType
		message    string
	}{
		{"it is gone under a use", usedIn(attached(), "1"), nil, nil, byLoss, "va-1 was deleted"},
		{"it is going under a use",
			usedIn(attached(), "1"), terminating, nil, byLoss, "va-1 was deleted"},
		{"another one has its name",
			usedIn(attached(), "1"), attachedTo("va-1", "2"), nil, byLoss, "va-1 was deleted"},
		{"nobody used it", attached(), nil, nil, byAgent, ""},
		{"nobody used it, but the kubelet of a Node that is gone may have mounted it since", attached(), nil,
			[]func(*decision.Node){missing}, byLoss, "va-1 was deleted"},
		{"nobody used it, nor had the kubelet of a Node that is gone mounted it", attached(), nil,
			[]func(*decision.Node){missing, covered}, byAgent, ""},
		{"it is there after all", usedIn(attached(), "1"), attachedTo("va-1", "1"), nil, "", ""},
		{"it was marked meanwhile", entryIn(reported("a"), leavesIt, "1", byTaint), nil, nil, byTaint,
			"as it was first found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := over(t, test.state)
			if test.attachment != nil {
				c, _ = over(t, test.state, test.attachment)
			}
			c.Events = events.NewFakeRecorder(10)
			n := on("a", append(test.given, entry(handshake.Attached, "1"))...)
			n.Entry.AttachmentName = "va-1"
			if err := c.markLost(t.Context(), &decision.Facts{Volume: "v", Nodes: []*decision.Node{n}},
				n); err != nil {
				t.Fatal(err)
			}
			e := handshake.AttachmentOf(liveState(t, c, "a"), "v")
			if lost := e.State == leavesIt; lost != (test.want != "") || lost && (e.Evidence.Type != test.want ||
				!strings.Contains(e.Evidence.Message, test.message)) {
				t.Errorf("entry of volume v on node a: %s, evidence %+v; want evidence %q with %q", e.State, e.Evidence, test.want,
					test.message)
			}
			if (n.Wait == nil) != (test.want != "") {
				t.Errorf("volume v on node a: wait %+v, want one: %t", n.Wait, test.want == "")
			}
		})
	}
}
