/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
)

// on builds one node's facts: a node whose agent has reported, with what the options add.
func on(name string, options ...func(*Node)) *Node {
	n := &Node{Name: name, State: handshake.Node{Exists: true, Reported: true}}
	for _, o := range options {
		o(n)
	}
	return n
}

func wanted(names ...string) func(*Node) {
	return func(n *Node) {
		for _, name := range names {
			n.Wanted = append(n.Wanted, intentNamed(name))
		}
	}
}

func leaving(names ...string) func(*Node) {
	return func(n *Node) {
		for _, name := range names {
			n.Leaving = append(n.Leaving, intentNamed(name))
		}
	}
}

// intentNamed is an intent that resolves. Names sort by age; a name with a star is pinned already.
func intentNamed(name string) *Intent {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strings.TrimSuffix(name, "*")},
	}
	if strings.HasSuffix(name, "*") {
		intent.Status.UniqueVolumeName = "v"
	}
	return &Intent{
		Object: intent, Protected: true, Result: resolve.Result{
			OK: true, Pins: resolve.Pins{VolumeName: "pv"}, Source: volume.SourceOf(persistentVolume()),
		},
	}
}

// persistentVolume is the volume of the intents in the facts.
func persistentVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"},
		},
	}}
}

func unprotected(n *Node) { n.Wanted[0].Protected = false }

func entry(state handshake.State, uid types.UID) func(*Node) {
	return func(n *Node) {
		n.State.Entry = handshake.Entry{State: state, UID: uid}
		e := EntryOf(&Facts{Volume: "v"}, intentNamed("x"))
		e.State, e.AttachmentUID, e.AttachmentName = volumesv1alpha1.AttachmentState(state), uid, "va"
		e.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceAgentReleased}
		if state == handshake.Attached {
			e.Evidence = nil
		}
		n.Entry = &e
	}
}

func forced(n *Node) { n.State.Entry.Forced = true }

func detached(n *Node) { n.State.Entry.Detached = true }

func unreported(n *Node) { n.State.Reported = false }

func live(n *Node) { n.Live = true }

func pods(n *Node) { n.Pods = true }

func noDriver(n *Node) { n.DriverMissing = true }

func crowded(n *Node) { n.Limit = full }

func agentless(n *Node) { n.State.Blank, n.State.Reported = true, false }

func waits(n *Node) { n.SetWait("", "") }

func tainted(n *Node) {
	n.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
}

func outOfService(n *Node) { n.Tainted = true }

func unheard(n *Node) { n.State.Reported, n.Unheard = false, true }

func inUse(uid types.UID) func(*Node) {
	return func(n *Node) { n.State.Use = handshake.Use{UID: uid, InUse: true} }
}

// va adds an attachment; how is any of held, attached, terminating, name (held by our finalizer) and unpublished.
func va(uid types.UID, how ...string) func(*Node) {
	return func(n *Node) {
		is := func(s string) bool { return slices.Contains(how, s) }
		n.Attachments = append(n.Attachments,
			Attachment{Name: "va-" + string(uid), Held: is("held"), Attachment: handshake.Attachment{
				Exists: true, UID: uid, Attached: is("attached"), Terminating: is("terminating"), NameHeld: is("name"),
				Unpublished: is("unpublished"),
			}})
	}
}

func lockOn(node string) handshake.Lock { return handshake.Lock{Exists: true, Holder: node} }

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts Facts
		want  string
	}{
		{"nothing is wanted and nothing is there", Facts{Nodes: []*Node{on("a")}}, ""},
		{"what is wanted is attached", Facts{Nodes: []*Node{on("a", wanted("i"))}}, "Attach a"},
		{"what an unprotected intent wants is not", Facts{Nodes: []*Node{on("a", wanted("i"), unprotected)}}, ""},
		{"nothing is attached before the agent has reported", Facts{Nodes: []*Node{on("a", wanted("i"), unreported)}}, ""},
		{"nothing is attached where the driver is missing", Facts{Nodes: []*Node{on("a", wanted("i"), noDriver)}}, ""},
		{"an attachment under way is waited for", Facts{Nodes: []*Node{on("a", wanted("i"), va("1", "held"))}}, ""},
		{"an attachment that is attached is confirmed",
			Facts{Nodes: []*Node{on("a", wanted("i"), va("1", "held", "attached"))}}, "Confirm a 1"},
		{"a foreign attachment is held first", Facts{Nodes: []*Node{on("a", wanted("i"), va("1", "attached"))}}, "Hold a 1"},
		{"a terminating attachment is waited out",
			Facts{Nodes: []*Node{on("a", wanted("i"), va("1", "attached", "terminating"))}}, ""},
		{"of two attachments the one that stays is taken",
			Facts{Nodes: []*Node{on("a", wanted("i"), va("1", "terminating"), va("2", "held", "attached"))}}, "Confirm a 2"},
		{"what is attached and wanted stays", Facts{
			Nodes: []*Node{on("a", wanted("i"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))},
		}, ""},
		{"what is attached and lost its hold is held again", Facts{
			Nodes: []*Node{on("a", wanted("i"), va("1", "attached"), entry(handshake.Attached, "1"), inUse("1"))},
		}, "Hold a 1"},
		{"a foreign attachment that nobody wants is not touched", Facts{Nodes: []*Node{on("a", va("1", "attached"))}}, ""},
		{"a node whose act was refused is left alone",
			Facts{Nodes: []*Node{on("a", wanted("i"), waits), on("b", wanted("j"))}}, "Attach b"},

		{"what nobody wants any more is marked",
			Facts{Nodes: []*Node{on("a", va("1", "held", "attached"), entry(handshake.Attached, "1"))}}, "MarkDetaching a 1"},
		{"but not while it is in use",
			Facts{Nodes: []*Node{on("a", va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))}}, ""},
		{"nor while the agent has not reported",
			Facts{Nodes: []*Node{on("a", va("1", "held", "attached"), entry(handshake.Attached, "1"), unreported)}}, ""},
		{"unless there is evidence", Facts{
			Nodes: []*Node{on("a", va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"), tainted)},
		}, "MarkDetaching a 1 on evidence"},
		{"evidence detaches nothing that is wanted", Facts{Nodes: []*Node{
			on("a", wanted("i"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"), tainted),
		}}, ""},
		{"an attachment that was never confirmed is marked too", Facts{Nodes: []*Node{on("a", va("1", "held"))}},
			"MarkDetaching a 1"},
		{"what is marked is deleted",
			Facts{Nodes: []*Node{on("a", va("1", "held", "attached"), entry(handshake.Detaching, "1"))}}, "Delete a 1"},
		{"also when it is wanted again, because Detaching is final", Facts{
			Nodes: []*Node{on("a", wanted("i"), va("1", "held", "attached"), entry(handshake.Detaching, "1"))},
		}, "Delete a 1"},
		{"what terminates is waited for",
			Facts{Nodes: []*Node{on("a", va("1", "terminating"), entry(handshake.Detaching, "1"))}}, ""},
		{"the entry of what is gone is forgotten",
			Facts{Nodes: []*Node{on("a", entry(handshake.Detaching, "1"))}}, "Forget a"},
		{"what pods use keeps its hold",
			Facts{Nodes: []*Node{on("a", va("1", "held", "attached"), entry(handshake.Detaching, "1"), pods)}}, ""},
		{"what a pod took up meanwhile is held again",
			Facts{Nodes: []*Node{on("a", va("1", "attached"), entry(handshake.Detaching, "1"), pods)}}, "Hold a 1"},
		{"a detach is finished before anything is attached",
			Facts{Nodes: []*Node{on("a", wanted("i")), on("b", entry(handshake.Detaching, "1"))}}, "Forget b"},
		{"an attachment that is gone while it should be there is lost",
			Facts{Nodes: []*Node{on("a", wanted("i"), entry(handshake.Attached, "1"), inUse("1"))}}, "MarkLost a"},
		{"so is one that terminates",
			Facts{Nodes: []*Node{on("a", wanted("i"), va("1", "terminating"), entry(handshake.Attached, "1"))}}, "MarkLost a"},

		{"what was forced away is not attached again before the agent reported",
			Facts{Nodes: []*Node{on("a", wanted("i"), entry(handshake.Detaching, "1"), forced, detached, inUse("1"))}}, ""},
		{"and is forgotten once it has",
			Facts{Nodes: []*Node{on("a", wanted("i"), entry(handshake.Detaching, "1"), forced, detached)}}, "Forget a"},
		{"the name of what was forced away stays taken", Facts{Nodes: []*Node{on("a",
			va("1", "terminating", "name", "unpublished"), entry(handshake.Detaching, "1"), forced, detached, inUse("1"))}}, ""},
		{"and is freed once the agent has reported", Facts{Nodes: []*Node{
			on("a", va("1", "terminating", "name", "unpublished"), entry(handshake.Detaching, "1"), forced, detached),
		}}, "FreeName a 1"},
		{"a forced detach does not wait for pods", Facts{
			Nodes: []*Node{on("a", va("1", "held"), entry(handshake.Detaching, "1"), forced, inUse("1"), pods)},
		}, "Delete a 1"},

		{"an exclusive volume goes to the oldest intent",
			Facts{Exclusive: true, Nodes: []*Node{on("a", wanted("j")), on("b", wanted("i"))}}, "Attach b"},
		{"or to the node that holds the lock",
			Facts{Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{on("a", wanted("j")), on("b", wanted("i"))}}, "Attach a"},
		{"but not to a node without its driver", Facts{Exclusive: true,
			Nodes: []*Node{on("a", wanted("i"), noDriver), on("b", wanted("j"))}}, "Attach b"},
		{"nor to one with as many volumes as it takes", Facts{Exclusive: true,
			Nodes: []*Node{on("a", wanted("i"), crowded), on("b", wanted("j"))}}, "Attach b"},
		{"nor to one where no agent has ever been", Facts{Exclusive: true,
			Nodes: []*Node{on("a", wanted("i"), agentless), on("b", wanted("j"))}}, "Attach b"},
		{"it stays where it is while the driver is away", Facts{Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{
			on("a", wanted("i"), noDriver, va("1", "held")), on("b", wanted("j"))}}, ""},
		{"an exclusive volume waits for its holder", Facts{Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{
			on("a", wanted("j"), va("1", "held", "attached"), entry(handshake.Attached, "1")), on("b", wanted("i")),
		}}, ""},
		{"and for a holder that is in use without an intent",
			Facts{Exclusive: true, Nodes: []*Node{on("a", inUse("1")), on("b", wanted("i"))}}, ""},
		{"and for a foreign attachment, attached or not",
			Facts{Exclusive: true, Nodes: []*Node{on("a", va("1")), on("b", wanted("i"))}}, ""},
		{"and for one that terminates", Facts{Exclusive: true,
			Nodes: []*Node{on("a", va("1", "terminating"), entry(handshake.Detaching, "1")), on("b", wanted("i"))}}, ""},
		{"but not for one that was forced away and is unpublished", Facts{Exclusive: true, Nodes: []*Node{on(
			"a", va("1", "terminating", "name", "unpublished"), entry(handshake.Detaching, "1"), forced, detached, inUse("1"),
		), on("b", wanted("i"))}}, "Attach b"},
		{"who lost an exclusive volume gives its attachment up", Facts{Exclusive: true, Lock: lockOn("a"), Nodes: []*Node{
			on("a", wanted("i"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1")),
			on("b", wanted("j"), va("2", "held", "attached")),
		}}, "MarkDetaching b 2"},
		{"a shared volume is attached everywhere", Facts{Nodes: []*Node{on("a", wanted("i")), on("b", wanted("j"))}},
			"Attach a, Attach b"},

		{"leaving intents wait for the agent", Facts{
			Nodes: []*Node{on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"))},
		}, ""},
		{"Detaching comes before the release", Facts{
			Nodes: []*Node{on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Attached, "1"))},
		}, "MarkDetaching a 1"},
		{"the release needs a live look", Facts{
			Nodes: []*Node{on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Detaching, "1"))},
		}, "ReadState a"},
		{"and comes before the delete", Facts{
			Nodes: []*Node{on("a", leaving("i*"), va("1", "held", "attached"), entry(handshake.Detaching, "1"), live)},
		}, "Release a i"},
		{"where nothing was attached the intent may go", Facts{Nodes: []*Node{on("a", leaving("i*"), live)}}, "Release a i"},
		{"but not while the agent has not reported", Facts{Nodes: []*Node{on("a", leaving("i*"), live, unreported)}}, ""},
		{"nor while the volume is in use without an entry",
			Facts{Nodes: []*Node{on("a", leaving("i*"), live, inUse("1"))}}, ""},
		{"one of two is released when the agent uses nothing", Facts{Nodes: []*Node{
			on("a", leaving("i*"), wanted("j*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), live),
		}}, "Release a i"},
		{"but waits for an answer while it is in use", Facts{Nodes: []*Node{
			on("a", leaving("i*"), wanted("j*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1"), live),
		}}, ""},
		{"evidence releases intents too", Facts{
			Nodes: []*Node{on("a", leaving("i*"), va("1", "held"), entry(handshake.Detaching, "1"), forced, inUse("1"), live)},
		}, "Release a i"},

		{"a second intent for a single user is kept out",
			Facts{SingleUser: true, Exclusive: true, Nodes: []*Node{on("a", wanted("j", "i*"))}}, "Attach a"},
		{"also elsewhere, while the first is leaving", Facts{SingleUser: true, Exclusive: true, Nodes: []*Node{
			on("a", leaving("j*"), va("1", "held", "attached"), entry(handshake.Attached, "1"), inUse("1")),
			on("b", wanted("i")),
		}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.Volume, c.facts.AttachRequired = "v", true
			var got []string
			for _, s := range electAndDecide(&c.facts, handshake.Protocol{}) {
				got = append(got, describeStep(s))
			}
			if have := strings.Join(got, ", "); have != c.want {
				t.Errorf("steps for volume v: %q, want %q", have, c.want)
			}
		})
	}
}

func describeStep(s Step) string {
	d := fmt.Sprintf("%s %s", s.Act, s.Node.Name)
	if s.Attachment != nil {
		d += " " + string(s.Attachment.UID)
	}
	for _, i := range s.Intents {
		d += " " + i.Object.Name
	}
	if s.Evidence {
		d += " on evidence"
	}
	return d
}

func TestADriverWithoutAttachIsConfirmedAtOnce(t *testing.T) {
	f := Facts{Volume: "v", Nodes: []*Node{on("a", wanted("i"), noDriver)}}
	if steps := electAndDecide(&f, handshake.Protocol{}); len(steps) != 1 || describeStep(steps[0]) != "Confirm a" {
		t.Errorf("steps for volume v, whose driver has no attach: %v, want Confirm a", steps)
	}
}

func TestTheSecondIntentForASingleUserIsTheOneRefused(t *testing.T) {
	f := Facts{Volume: "v", SingleUser: true, Exclusive: true, AttachRequired: true,
		Nodes: []*Node{on("a", wanted("a-younger-name", "pinned*"))}}
	electAndDecide(&f, handshake.Protocol{})
	n := f.Nodes[0]
	if len(n.Wanted) != 1 || n.Wanted[0].Object.Name != "pinned" || len(n.Refused) != 1 {
		t.Errorf("intents of node a: wanted %v, refused %v; want pinned alone and one refused", n.Wanted, n.Refused)
	}
	if found := RefusalOf(&f, n, n.Refused[0]); found.Reason != volumesv1alpha1.ReasonReadWriteOncePod ||
		!strings.Contains(found.Message, "default/pinned on node a") {
		t.Errorf("finding for refused intent %s: %+v, want reason %s and intent default/pinned on node a",
			n.Refused[0].Object.Name, found, volumesv1alpha1.ReasonReadWriteOncePod)
	}
}

func TestAWaitForTheLockNamesNothingOfAnotherNamespace(t *testing.T) {
	f := Facts{Volume: "v", Exclusive: true, AttachRequired: true,
		Nodes: []*Node{on("a", leaving("theirs*")), on("b", wanted("i", "mine"))}}
	f.Nodes[0].Leaving[0].Object.Namespace = "secret"
	n, theirs := f.Nodes[1], f.Nodes[1].Wanted[0]
	theirs.Object.Namespace = "secret"
	n.WaitFor(f.Nodes[0], handshake.GuardNotInUse)
	if found := FindingOf(&f, n, theirs); !strings.Contains(found.Message, "secret/theirs") {
		t.Errorf("message for an intent of namespace secret: %q, want secret/theirs named", found.Message)
	}
	if found := FindingOf(&f, n, n.Wanted[1]); strings.Contains(found.Message, "secret") ||
		!strings.Contains(found.Message, "1 in other namespaces") {
		t.Errorf("message for an intent of another namespace: %q, want 1 in other namespaces, without secret", found.Message)
	}
}

func TestForceIsAllowedOnlyWhereEveryLeavingIntentAllowsIt(t *testing.T) {
	policy := func(d time.Duration) *Intent {
		i := intentNamed("i")
		if d > 0 {
			i.Object.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: d}}
		}
		return i
	}
	for _, c := range []struct {
		name    string
		leaving []*Intent
		after   time.Duration
		allowed bool
	}{
		{"no intent", nil, 0, false},
		{"no policy", []*Intent{policy(0)}, 0, false},
		{"one policy", []*Intent{policy(time.Minute)}, time.Minute, true},
		{"the longest of two", []*Intent{policy(time.Minute), policy(time.Hour)}, time.Hour, true},
		{"one of two without", []*Intent{policy(time.Minute), policy(0)}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if after, allowed := ForceAfter(c.leaving); after != c.after || allowed != c.allowed {
				t.Errorf("leaving intents (%s): force after %s, allowed %t; want %s, %t", c.name, after, allowed, c.after,
					c.allowed)
			}
		})
	}
}

// electAndDecide is one round of a pass.
func electAndDecide(f *Facts, p handshake.Protocol) []Step {
	KeepOneUser(f)
	return Decide(f, p)
}
