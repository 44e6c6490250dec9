/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
)

// The tests here show that the checkers of the tests with two leaders find each violation.

// versionIgnorer writes node states whatever their version is.
type versionIgnorer struct{ next http.RoundTripper }

func (c versionIgnorer) RoundTrip(r *http.Request) (*http.Response, error) {
	if describeRequest(r) != "PUT nodevolumestates" {
		return c.next.RoundTrip(r)
	}
	wanted := map[string]any{}
	if err := errors.Join(json.NewDecoder(r.Body).Decode(&wanted), r.Body.Close()); err != nil {
		return nil, err
	}
	for {
		answer, err := c.overwrite(r, wanted)
		if err != nil || answer.StatusCode != http.StatusConflict {
			return answer, err
		}
		// Another client wrote between the read and the write.
		if err := answer.Body.Close(); err != nil {
			return nil, err
		}
	}
}

// overwrite sends the object under the version that is stored.
func (c versionIgnorer) overwrite(r *http.Request, wanted map[string]any) (*http.Response, error) {
	read := r.Clone(r.Context())
	read.Method, read.Body, read.ContentLength = http.MethodGet, nil, 0
	current, err := c.next.RoundTrip(read)
	if err != nil {
		return nil, err
	}
	stored := map[string]any{}
	if err := errors.Join(json.NewDecoder(current.Body).Decode(&stored), current.Body.Close()); err != nil {
		return nil, err
	}
	wanted["metadata"].(map[string]any)["resourceVersion"] = stored["metadata"].(map[string]any)["resourceVersion"]
	body, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	write := r.Clone(r.Context())
	write.Body, write.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return c.next.RoundTrip(write)
}

// leaderWithLateWrite writes Attached late: the volume has moved to another node meanwhile.
func leaderWithLateWrite(ignores bool) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		name := fmt.Sprintf("ignores-%t", ignores)
		l := &leaders{world: w, prefix: name, mounts: newMountChecker(), recorder: w.record(t, name+"-sentinel")}
		w.attacher.setDriver(l.mounts.driver)
		w.volume(t, name, volumeOptions{})
		l.mounts.volumes["pv-"+name] = uniqueName(name)
		from, to := name+"-a", name+"-b"
		for _, node := range []string{from, to} {
			w.host(t, node, l.mounts, 1)
		}
		found := strings.Join(l.lateWrite(t, name, from, to, ignores), "\n")
		switch {
		case !ignores && found != "":
			t.Errorf("checkers of a leader that respects conflicts: %q, want no violation", found)
		case ignores && (!strings.Contains(found, "have it mounted on") ||
			!strings.Contains(found, "is Attached without a live attachment")):
			t.Errorf("the leader ignores conflicts; want violations of both checkers, got %q", found)
		}
	}
}

func (l *leaders) lateWrite(t *testing.T, name, from, to string, ignores bool) []string {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	writes, released := 0, atomic.Bool{}
	ofNode := func(what, node string) bool { return what == "PUT nodevolumestates" && node == from }
	g := newGate(ofNode)
	// The later writes of the late leader would repair what it did before an agent has used it.
	after := newGate(func(what, node string) bool {
		if ofNode(what, node) {
			writes++
		}
		return ignores && writes > 1
	})
	other := newGate(func(what, node string) bool { return ignores && released.Load() && ofNode(what, node) })
	_, stop := l.manage(t, managerOptions{transport: func(next http.RoundTripper) http.RoundTripper {
		if ignores {
			next = versionIgnorer{next}
		}
		return g.transport(after.transport(next))
	}})
	first := l.intent(t, name+"-first", from, name)
	<-g.held
	_, stopOther := l.manage(t, managerOptions{transport: other.transport})
	l.delete(t, first)
	second := l.intent(t, name+"-second", to, name)
	mounted := func(node string) func() bool {
		return func() bool { return l.mounts.isMounted(place{uniqueName(name), node}) }
	}
	if err := l.mounts.await(ctx, "the volume has moved", mounted(to)); err != nil {
		t.Fatal(err)
	}
	third := l.intent(t, name+"-third", from, name)
	until(t, l.world, third, "the intent waits", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Status.UniqueVolumeName != ""
	})
	released.Store(true)
	close(g.open)
	if !ignores {
		l.delete(t, second)
	}
	if err := l.mounts.await(ctx, "the volume is used on the first node", mounted(from)); err != nil {
		t.Fatal(err)
	}
	if !ignores {
		l.delete(t, third)
		gone(t, l.world, third)
	}
	close(after.open)
	close(other.open)
	stop()
	stopOther()
	return append(l.mounts.violations(), checkHistory(l.recorder.history(ctx))...)
}

// historyBuilder builds histories for checkHistory.
type historyBuilder struct {
	changes []apiChange
}

func (s *historyBuilder) add(o client.Object, gone bool) {
	s.changes = append(s.changes, apiChange{version: uint64(len(s.changes) + 1), object: o, deleted: gone})
}

// begin marks everything until now as what was there when the recorder began.
func (s *historyBuilder) begin() {
	for i := range s.changes {
		s.changes[i].initial = true
	}
}

const anyVolume = "kubernetes.io/csi/d^v"

func (s *historyBuilder) state(node string, line types.UID, entries ...volumesv1alpha1.NodeAttachment) {
	nvs := stateOf(node)
	nvs.Spec.Attachments = entries
	if line != "" {
		nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{
			{VolumeName: anyVolume, AttachmentUID: line, InUse: true, PublishedBy: volumesv1alpha1.PublisherAgent},
		}
	}
	s.add(nvs, false)
}

func entryFor(uid types.UID, state volumesv1alpha1.AttachmentState) volumesv1alpha1.NodeAttachment {
	return volumesv1alpha1.NodeAttachment{VolumeName: anyVolume, AttachmentUID: uid, State: state}
}

func (s *historyBuilder) attachment(node string, uid types.UID, deleted, gone bool) {
	va := upstreamAttachment(string(uid), "v", node)
	va.UID, va.Status.Attached = uid, true
	if deleted {
		va.DeletionTimestamp = &metav1.Time{}
	}
	s.add(va, gone)
}

func (s *historyBuilder) lock(holder, from string) {
	locks := fmt.Sprintf(`{"writes": 1, "locks": {%q: {"node": %q, "movedFrom": %q, "write": 1}}}`,
		anyVolume, holder, from)
	s.add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: exclusive.Key(anyVolume).Name},
		Data: map[string]string{"locks.json": locks}}, false)
}

func (s *historyBuilder) node(name string, listed ...string) {
	n := nodeNamed(name)
	for _, v := range listed {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(v)})
	}
	s.add(n, false)
}

// attachAndUse: the volume is attached to node a and used there.
func (s *historyBuilder) attachAndUse() {
	s.lock("a", "")
	s.attachment("a", "u1", false, false)
	s.state("a", "", entryFor("u1", volumesv1alpha1.AttachmentAttached))
	s.state("a", "u1", entryFor("u1", volumesv1alpha1.AttachmentAttached))
}

func TestTheInvariantsOfRecordedHistories(t *testing.T) {
	attached, detaching := volumesv1alpha1.AttachmentAttached, volumesv1alpha1.AttachmentDetaching
	for _, c := range []struct {
		name  string
		build func(*historyBuilder)
		want  string
	}{
		{"attached, used and detached by the rules", func(s *historyBuilder) {
			s.attachAndUse()
			s.node("a", anyVolume)
			s.state("a", "", entryFor("u1", attached))
			s.state("a", "", entryFor("u1", detaching))
			s.node("a")
			s.attachment("a", "u1", true, false)
			s.attachment("a", "u1", true, true)
			s.state("a", "")
		}, ""},
		{"usable on two nodes", func(s *historyBuilder) {
			s.attachAndUse()
			s.lock("b", "a")
			s.attachment("b", "u2", false, false)
			s.state("b", "u2", entryFor("u2", attached))
		}, `v is usable on ["a" "b"]`},
		{"deleted while in use", func(s *historyBuilder) {
			s.attachAndUse()
			s.state("a", "u1", entryFor("u1", detaching))
			s.attachment("a", "u1", true, false)
		}, "is deleted while Agent uses it"},
		{"deleted and gone at once while in use", func(s *historyBuilder) {
			s.attachAndUse()
			s.state("a", "u1", entryFor("u1", detaching))
			s.attachment("a", "u1", true, true)
		}, "is deleted while Agent uses it"},
		{"deleted on evidence", func(s *historyBuilder) {
			s.attachAndUse()
			forced := entryFor("u1", detaching)
			forced.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
			s.state("a", "u1", forced)
			s.attachment("a", "u1", true, false)
		}, ""},
		{"deleted without Detaching", func(s *historyBuilder) {
			s.lock("a", "")
			s.attachment("a", "u1", false, false)
			s.state("a", "")
			s.attachment("a", "u1", true, false)
		}, "is deleted without Detaching"},
		{"Detaching reverted", func(s *historyBuilder) {
			s.attachAndUse()
			s.state("a", "", entryFor("u1", detaching))
			s.state("a", "", entryFor("u1", attached))
		}, "Detaching of v on a was taken back"},
		{"two entries of one volume", func(s *historyBuilder) {
			s.attachAndUse()
			s.state("a", "u1", entryFor("u1", attached), entryFor("u1", attached))
		}, "has two entries on a"},
		{"Attached without its attachment", func(s *historyBuilder) {
			s.lock("a", "")
			s.state("a", "", entryFor("u1", attached))
		}, "is Attached without a live attachment"},
		{"Attached against the lock", func(s *historyBuilder) {
			s.attachAndUse()
			s.lock("b", "")
		}, "is Attached while the lock is"},
		{"listed without an entry", func(s *historyBuilder) {
			s.attachAndUse()
			s.state("b", "")
			s.node("b", anyVolume)
		}, "is listed in volumesAttached of b, and has no entry there"},
		{"listed before its entry was read, at the beginning", func(s *historyBuilder) {
			s.node("a", anyVolume)
			s.attachAndUse()
			s.begin()
			s.node("a")
		}, ""},
		{"listed without an entry from the beginning", func(s *historyBuilder) {
			s.node("b", anyVolume)
			s.begin()
			s.attachAndUse()
		}, "is listed in volumesAttached of b, and has no entry there"},
		{"marked as unlisted while it is listed", func(s *historyBuilder) {
			s.attachAndUse()
			s.node("a", anyVolume)
			e := entryFor("u1", detaching)
			e.Protocol.UnlistedGeneration = 3
			s.state("a", "", e)
		}, "is marked as unlisted and is listed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &historyBuilder{}
			c.build(s)
			got := strings.Join(checkHistory(s.changes), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("violations of this history: %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheMountChecker(t *testing.T) {
	a, b := place{"v", "a"}, place{"v", "b"}
	attachment := func(p place, uid types.UID) *storagev1.VolumeAttachment {
		va := upstreamAttachment("", "v", p.node)
		va.UID = uid
		return va
	}
	for _, c := range []struct {
		name string
		act  func(*mountChecker)
		want string
	}{
		{"one after the other", func(w *mountChecker) {
			w.mount(a, byAgent, "u1")
			w.unmount(a, byAgent)
			w.driver(attachment(a, "u1"), false)
			w.driver(attachment(b, "u2"), true)
			w.mount(b, byKubelet, "")
		}, ""},
		{"on two nodes", func(w *mountChecker) {
			w.driver(attachment(b, "u2"), true)
			w.mount(a, byAgent, "u1")
			w.mount(b, byAgent, "u2")
		}, "have it mounted on a"},
		{"detached while mounted", func(w *mountChecker) {
			w.mount(a, byKubelet, "")
			w.driver(attachment(a, "u1"), false)
		}, "is detached from a while mounted"},
		{"mounted while not attached", func(w *mountChecker) { w.mount(b, byKubelet, "") }, "while \"\" is published there"},
		{"mounted under an earlier attachment", func(w *mountChecker) {
			w.mount(a, byAgent, "u0")
		}, "while \"u1\" is published there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newMountChecker()
			w.volumes["pv-v"] = "v"
			w.driver(attachment(a, "u1"), true)
			c.act(w)
			got := strings.Join(w.violations(), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("violations of this history: %q, want %q", got, c.want)
			}
		})
	}
}
