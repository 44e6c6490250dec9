/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// inCoexist is a judge with an observer, on two nodes.
func inCoexist(t *testing.T) (*judge, *observer) {
	t.Helper()
	sys := &system.System{Options: system.Options{Dir: t.TempDir(), Nodes: []string{"a", "b"}}}
	w := newObserver(sys)
	j := newJudge(sys, w)
	if err := os.MkdirAll(sys.BackingDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	j.know([]*claim{{name: "c", handle: "v", volume: volumeName, exclusive: true}})
	return j, w
}

// deletes writes into the audit log that a user deleted the attachment to node a.
func (w *observer) deletes(t *testing.T, by string, at time.Time, code int) {
	t.Helper()
	r := system.Request{Verb: "delete", Received: at, Answered: at.Add(time.Millisecond)}
	r.User.Username, r.ResponseStatus.Code = by, code
	r.ObjectRef.Resource, r.ObjectRef.Name = "volumeattachments", volume.AttachmentName(system.DriverName, "v", "a")
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(w.sys.AuditLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func podOnA(deleted bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "p"},
		Spec: corev1.PodSpec{NodeName: "a", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
		}}}},
	}
	if deleted {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	return pod
}

func nodeA(inUse, out bool) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if inUse {
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{volumeName}
	}
	if out {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
	}
	return node
}

func TestTheObserverRelatesADetachToTheUseOfTheVolume(t *testing.T) {
	now := time.Now()
	type seen struct {
		before time.Duration
		object runtime.Object
	}
	for _, c := range []struct {
		name string
		by   string
		seen []seen
		want how
	}{
		{"nothing used it", system.ManagerUser, nil, free},
		{"a pod did, for a minute", system.ManagerUser, []seen{{time.Minute, podOnA(false)}}, blind},
		{"the kubelet did, for a minute", system.ManagerUser, []seen{{time.Minute, nodeA(true, false)}}, blind},
		{"first a pod and then the kubelet", system.ManagerUser,
			[]seen{{time.Minute, podOnA(false)}, {2 * time.Second, nodeA(true, false)}, {time.Second, podOnA(true)}}, blind},
		{"a pod came after the check", system.ManagerUser, []seen{{time.Second, podOnA(false)}}, inGap},
		{"a pod came with the delete", system.ManagerUser, []seen{{0, podOnA(false)}}, inGap},
		{"a pod came long after", system.ManagerUser, []seen{{-time.Minute, podOnA(false)}}, free},
		{"a pod is being deleted", system.ManagerUser, []seen{{time.Minute, podOnA(true)}}, free},
		{"a pod is gone", system.ManagerUser, []seen{{time.Minute, podOnA(false)}, {time.Second / 10, podOnA(true)}}, free},
		{"upstream, next to a pod", system.UpstreamUser, []seen{{time.Minute, podOnA(false)}}, free},
		{"upstream, on a node out of service", system.UpstreamUser, []seen{{time.Minute, nodeA(true, true)}}, outOfService},
		{"upstream, on one that is back for long", system.UpstreamUser,
			[]seen{{time.Hour, nodeA(true, true)}, {time.Minute, nodeA(true, false)}}, free},
		{"Hawser, on a node out of service", system.ManagerUser, []seen{{time.Minute, nodeA(true, true)}}, blind},
		{"a stranger", "somebody", []seen{{time.Minute, nodeA(true, true)}}, free},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, w := inCoexist(t)
			for _, s := range c.seen {
				w.see(watch.Event{Type: watch.Modified, Object: s.object}, now.Add(-s.before))
			}
			w.deletes(t, c.by, now, 200)
			w.deletes(t, c.by, now, 403)
			found, err := w.detaches()
			if err != nil || len(found) != 1 {
				t.Fatalf("detaches: %v, error %v; want one", found, err)
			}
			if got := w.judge(found[0]); got != c.want {
				t.Errorf("judgment of the detach (%s): %q, want %q", c.name, got, c.want)
			}
		})
	}
}

func TestTheJudgeOfCoexist(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	comes := func(w *observer, before time.Duration) {
		w.see(watch.Event{Type: watch.Added, Object: podOnA(false)}, ago(before))
	}
	taken := [][2]string{{publish, "a"}, {stage, "a"}, {unpublish, "a"}}
	for _, c := range []struct {
		name  string
		done  func(*testing.T, *judge, *observer)
		wrong string
		risks int
	}{
		{"a volume in use was detached without a DELETE", func(t *testing.T, j *judge, _ *observer) { calls(t, j, taken...) },
			"is staged there", 0},
		{"a volume in use was detached in the gap", func(t *testing.T, j *judge, w *observer) {
			comes(w, time.Second/2)
			w.deletes(t, system.ManagerUser, ago(0), 200)
			calls(t, j, taken...)
		}, "", 1},
		{"and is staged elsewhere", func(t *testing.T, j *judge, w *observer) {
			comes(w, time.Second/2)
			w.deletes(t, system.ManagerUser, ago(0), 200)
			calls(t, j, append(taken, [2]string{publish, "b"}, [2]string{stage, "b"})...)
		}, "", 2},
		{"but nothing is excused after its unstage", func(t *testing.T, j *judge, w *observer) {
			comes(w, time.Second/2)
			w.deletes(t, system.ManagerUser, ago(0), 200)
			calls(t, j, append(taken, [2]string{unstage, "a"}, [2]string{publish, "b"}, [2]string{stage, "b"},
				[2]string{publish, "a"}, [2]string{stage, "a"})...)
		}, "is published to node b", 1},
		{"a volume in use was detached after a blind DELETE", func(t *testing.T, j *judge, w *observer) {
			w.deletes(t, system.ManagerUser, ago(0), 200)
			calls(t, j, taken...)
		}, "is staged there", 0},
		{"Hawser asked to detach a volume that a pod uses", func(t *testing.T, _ *judge, w *observer) {
			comes(w, time.Minute)
			w.deletes(t, system.ManagerUser, ago(time.Second), 200)
		}, string(blind), 0},
		{"it was forced away from there", func(t *testing.T, j *judge, w *observer) {
			comes(w, time.Minute)
			taint := &volumesv1alpha1.DetachEvidence{Type: volumesv1alpha1.EvidenceOutOfServiceTaint,
				Time: metav1.NewTime(ago(2 * time.Second))}
			j.see(watch.Event{Type: watch.Modified,
				Object: nodeState("a", "1", volumesv1alpha1.AttachmentDetaching, true, taint)}, func(error) {})
			w.deletes(t, system.ManagerUser, ago(time.Second), 200)
			calls(t, j, taken...)
		}, "", 0},
		{"upstream took it from its own kubelet", func(t *testing.T, j *judge, w *observer) {
			w.deletes(t, system.UpstreamUser, ago(0), 200)
			calls(t, j, taken...)
		}, "is staged there", 0},
		{"upstream took it from a node out of service", func(t *testing.T, j *judge, w *observer) {
			w.see(watch.Event{Type: watch.Modified, Object: nodeA(true, true)}, ago(time.Minute))
			w.deletes(t, system.UpstreamUser, ago(0), 200)
			calls(t, j, taken...)
		}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, w := inCoexist(t)
			w.deletes(t, "somebody", ago(time.Hour), 200)
			c.done(t, j, w)
			var wrong []string
			j.check(func(err error) { wrong = append(wrong, err.Error()) })
			if c.wrong == "" && len(wrong) > 0 || c.wrong != "" && !strings.Contains(strings.Join(wrong, "\n"), c.wrong) {
				t.Errorf("violations: %q, want one with %q, or none if that is empty", wrong, c.wrong)
			}
			risks := 0
			j.reportRisks(func(string, ...any) { risks++ })
			if risks != c.risks {
				t.Errorf("risks that were reported: %d, want %d", risks, c.risks)
			}
		})
	}
}

func TestTheDriversOwnRefusalsAreCounted(t *testing.T) {
	j, _ := inCoexist(t)
	for _, code := range []string{"OK", "FailedPrecondition"} {
		if _, err := ledger.Append(j.sys.BackingDir(),
			ledger.Entry{Phase: ledger.Effect, Method: publish, Volume: "v", Node: "a", Code: code}); err != nil {
			t.Fatal(err)
		}
	}
	j.observer.deletes(t, "somebody", time.Now(), 200)
	j.check(func(err error) { t.Errorf("judge: violation %v, want none", err) })
	if !strings.Contains(j.summary(), "the last guard 1 times") {
		t.Errorf("summary: %s; want that the last guard acted once", j.summary())
	}
}
