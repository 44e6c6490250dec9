/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

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

// The tests here show that the judges of the tests with two leaders find what they are there for.

// careless writes upon whatever is there, as if there were no versions.
type careless struct{ next http.RoundTripper }

func (c careless) RoundTrip(r *http.Request) (*http.Response, error) {
	if describeRequest(r) != "PUT nodevolumestates" {
		return c.next.RoundTrip(r)
	}
	read := r.Clone(r.Context())
	read.Method, read.Body, read.ContentLength = http.MethodGet, nil, 0
	standing, err := c.next.RoundTrip(read)
	if err != nil {
		return nil, err
	}
	is, wanted := map[string]any{}, map[string]any{}
	err = errors.Join(json.NewDecoder(standing.Body).Decode(&is), standing.Body.Close(), json.NewDecoder(r.Body).Decode(&wanted), r.Body.Close())
	if err != nil {
		return nil, err
	}
	wanted["metadata"].(map[string]any)["resourceVersion"] = is["metadata"].(map[string]any)["resourceVersion"]
	body, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	write := r.Clone(r.Context())
	write.Body, write.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return c.next.RoundTrip(write)
}

// oneThatOverslept sleeps before it writes Attached, and meanwhile the volume moves to another node.
func oneThatOverslept(ignores bool) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		name := fmt.Sprintf("ignores-%t", ignores)
		l := &leaders{world: w, prefix: name, truth: newTruth(), witness: w.witness(t, name+"-sentinel")}
		w.attacher.tell(l.truth.driver)
		w.volume(t, name, volumeOptions{})
		l.truth.volumes["pv-"+name] = uniqueName(name)
		from, to := name+"-a", name+"-b"
		for _, node := range []string{from, to} {
			w.host(t, node, l.truth, 1)
		}
		told := strings.Join(l.overslept(t, name, from, to, ignores), "\n")
		switch {
		case !ignores && told != "":
			t.Errorf("found with a leader that keeps the rules: %s", told)
		case ignores && (!strings.Contains(told, "have it mounted on") || !strings.Contains(told, "is Attached without a live attachment")):
			t.Errorf("not found: %s", told)
		}
	}
}

func (l *leaders) overslept(t *testing.T, name, from, to string, ignores bool) []string {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	writes, woken := 0, atomic.Bool{}
	ofNode := func(what, node string) bool { return what == "PUT nodevolumestates" && node == from }
	g := newGate(ofNode)
	// What comes after the first write of the leader that slept would mend what it did, before anybody has used it.
	after := newGate(func(what, node string) bool {
		if ofNode(what, node) {
			writes++
		}
		return ignores && writes > 1
	})
	other := newGate(func(what, node string) bool { return ignores && woken.Load() && ofNode(what, node) })
	_, stop := l.manage(t, managerOptions{transport: func(next http.RoundTripper) http.RoundTripper {
		if ignores {
			next = careless{next}
		}
		return g.transport(after.transport(next))
	}})
	first := l.intent(t, name+"-first", from, name)
	<-g.held
	_, stopOther := l.manage(t, managerOptions{transport: other.transport})
	l.delete(t, first)
	second := l.intent(t, name+"-second", to, name)
	mounted := func(node string) func() bool {
		return func() bool { return l.truth.isMounted(place{uniqueName(name), node}) }
	}
	if err := l.truth.await(ctx, "the volume has moved", mounted(to)); err != nil {
		t.Fatal(err)
	}
	third := l.intent(t, name+"-third", from, name)
	until(t, l.world, third, "the intent waits", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.Status.UniqueVolumeName != "" })
	woken.Store(true)
	close(g.open)
	if !ignores {
		l.delete(t, second)
	}
	if err := l.truth.await(ctx, "the volume is used on the first node", mounted(from)); err != nil {
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
	return append(l.truth.violations(), judge(l.witness.story(ctx))...)
}

// story builds happenings for the judge.
type story struct {
	happenings []happening
}

func (s *story) add(o client.Object, gone bool) {
	s.happenings = append(s.happenings, happening{version: uint64(len(s.happenings) + 1), object: o, gone: gone})
}

const anyVolume = "kubernetes.io/csi/d^v"

func (s *story) state(node string, line types.UID, entries ...volumesv1alpha1.NodeAttachment) {
	nvs := stateOf(node)
	nvs.Spec.Attachments = entries
	if line != "" {
		nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: anyVolume, AttachmentUID: line, InUse: true, PublishedBy: volumesv1alpha1.PublisherAgent}}
	}
	s.add(nvs, false)
}

func entryFor(uid types.UID, state volumesv1alpha1.AttachmentState) volumesv1alpha1.NodeAttachment {
	return volumesv1alpha1.NodeAttachment{VolumeName: anyVolume, AttachmentUID: uid, State: state}
}

func (s *story) attachment(node string, uid types.UID, deleted, gone bool) {
	va := upstreamAttachment(string(uid), "v", node)
	va.UID, va.Status.Attached = uid, true
	if deleted {
		va.DeletionTimestamp = &metav1.Time{}
	}
	s.add(va, gone)
}

func (s *story) lock(holder, from string) {
	locks := fmt.Sprintf(`{"writes": 1, "locks": {%q: {"node": %q, "movedFrom": %q, "write": 1}}}`, anyVolume, holder, from)
	s.add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: exclusive.Key(anyVolume).Name}, Data: map[string]string{"locks.json": locks}}, false)
}

func (s *story) node(name string, listed ...string) {
	n := nodeNamed(name)
	for _, v := range listed {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(v)})
	}
	s.add(n, false)
}

// usedOn: the volume is attached to node a and used there.
func (s *story) usedOnA() {
	s.lock("a", "")
	s.attachment("a", "u1", false, false)
	s.state("a", "", entryFor("u1", volumesv1alpha1.AttachmentAttached))
	s.state("a", "u1", entryFor("u1", volumesv1alpha1.AttachmentAttached))
}

func TestTheJudgeOfStories(t *testing.T) {
	attached, detaching := volumesv1alpha1.AttachmentAttached, volumesv1alpha1.AttachmentDetaching
	for _, c := range []struct {
		name string
		tell func(*story)
		want string
	}{
		{"a life as it should be", func(s *story) {
			s.usedOnA()
			s.node("a", anyVolume)
			s.state("a", "", entryFor("u1", attached))
			s.state("a", "", entryFor("u1", detaching))
			s.node("a")
			s.attachment("a", "u1", true, false)
			s.attachment("a", "u1", true, true)
			s.state("a", "")
		}, ""},
		{"used on two nodes", func(s *story) {
			s.usedOnA()
			s.lock("b", "a")
			s.attachment("b", "u2", false, false)
			s.state("b", "u2", entryFor("u2", attached))
		}, `v is usable on ["a" "b"]`},
		{"deleted while in use", func(s *story) {
			s.usedOnA()
			s.state("a", "u1", entryFor("u1", detaching))
			s.attachment("a", "u1", true, false)
		}, "is deleted while Agent uses it"},
		{"deleted and gone at once while in use", func(s *story) {
			s.usedOnA()
			s.state("a", "u1", entryFor("u1", detaching))
			s.attachment("a", "u1", true, true)
		}, "is deleted while Agent uses it"},
		{"deleted on evidence", func(s *story) {
			s.usedOnA()
			forced := entryFor("u1", detaching)
			forced.Evidence = &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint}
			s.state("a", "u1", forced)
			s.attachment("a", "u1", true, false)
		}, ""},
		{"deleted without Detaching", func(s *story) {
			s.lock("a", "")
			s.attachment("a", "u1", false, false)
			s.state("a", "")
			s.attachment("a", "u1", true, false)
		}, "is deleted without Detaching"},
		{"Detaching taken back", func(s *story) {
			s.usedOnA()
			s.state("a", "", entryFor("u1", detaching))
			s.state("a", "", entryFor("u1", attached))
		}, "Detaching of v on a was taken back"},
		{"Attached without its attachment", func(s *story) {
			s.lock("a", "")
			s.state("a", "", entryFor("u1", attached))
		}, "is Attached without a live attachment"},
		{"Attached against the lock", func(s *story) {
			s.usedOnA()
			s.lock("b", "")
		}, "is Attached while the lock is"},
		{"listed without an entry", func(s *story) {
			s.usedOnA()
			s.state("b", "")
			s.node("b", anyVolume)
		}, "is listed in volumesAttached of b, and no entry speaks of it"},
		{"said to be unlisted", func(s *story) {
			s.usedOnA()
			s.node("a", anyVolume)
			e := entryFor("u1", detaching)
			e.UnlistedGeneration = 3
			s.state("a", "", e)
		}, "is said to be unlisted and is listed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &story{}
			c.tell(s)
			told := strings.Join(judge(s.happenings), "\n")
			if c.want == "" && told != "" || !strings.Contains(told, c.want) {
				t.Errorf("told %q, want %q", told, c.want)
			}
		})
	}
}

func TestTheJudgeOfMounts(t *testing.T) {
	a, b := place{"v", "a"}, place{"v", "b"}
	attachment := func(p place, uid types.UID) *storagev1.VolumeAttachment {
		va := upstreamAttachment("", "v", p.node)
		va.UID = uid
		return va
	}
	for _, c := range []struct {
		name string
		act  func(*truth)
		want string
	}{
		{"one after the other", func(w *truth) {
			w.mount(a, byAgent, "u1")
			w.unmount(a, byAgent)
			w.driver(attachment(a, "u1"), false)
			w.driver(attachment(b, "u2"), true)
			w.mount(b, byKubelet, "")
		}, ""},
		{"on two nodes", func(w *truth) {
			w.driver(attachment(b, "u2"), true)
			w.mount(a, byAgent, "u1")
			w.mount(b, byAgent, "u2")
		}, "have it mounted on a"},
		{"detached while mounted", func(w *truth) {
			w.mount(a, byKubelet, "")
			w.driver(attachment(a, "u1"), false)
		}, "is detached from a while mounted"},
		{"mounted while not attached", func(w *truth) { w.mount(b, byKubelet, "") }, "while \"\" is published there"},
		{"mounted under an earlier attachment", func(w *truth) { w.mount(a, byAgent, "u0") }, "while \"u1\" is published there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTruth()
			w.volumes["pv-v"] = "v"
			w.driver(attachment(a, "u1"), true)
			c.act(w)
			told := strings.Join(w.violations(), "\n")
			if c.want == "" && told != "" || !strings.Contains(told, c.want) {
				t.Errorf("told %q, want %q", told, c.want)
			}
		})
	}
}
