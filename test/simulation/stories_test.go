/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
)

// Stories that chance does not tell often enough.

// TestTwoIntentsAreNotBothTheSingleUserOfAVolume: one manager, which knows of the first intent only, sleeps before it
// writes to it. The clock of the API server is set back, so that the next manager takes a second intent for the older.
// It sleeps before it writes to the first one, too, and a third one comes.
func TestTwoIntentsAreNotBothTheSingleUserOfAVolume(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, scratch())
			defer w.remove()
			w.chance.cease()
			w.populate([]string{"a"}, []string{"pod"})
			time.Sleep(2 * time.Minute)
			w.mu.Lock()
			w.leader.tired.Store(&nap{before: "pod-a-1", sleep: 25 * time.Second, then: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.api.now = func() metav1.Time { return metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second)) }
				w.later(0, func() { w.want("pod-a-0", "a", "pod") })
				w.heir = &nap{before: "pod-a-1", sleep: time.Minute, then: func() {}}
			}})
			w.mu.Unlock()
			w.want("pod-a-1", "a", "pod")
			time.Sleep(5 * time.Minute)
			w.withdraw(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return !w.compatible(i) })
			w.await("what is wanted is not there", w.missing)
			w.withdraw(func(*volumesv1alpha1.VolumeAttachmentIntent) bool { return true })
			w.await("something is left over", w.leftovers)
			w.end()
			if f := w.failure(); f != "" {
				t.Errorf("simulation of seed %d failed, want no failure: %s", seed, f)
			}
		})
	}
}

// TestATenantThatFillsANodeKeepsNoOtherVolumeWaiting: more intents of one volume than a node takes wait for each other,
// and a volume beside them comes and goes.
func TestATenantThatFillsANodeKeepsNoOtherVolumeWaiting(t *testing.T) {
	const most, more = volumesv1alpha1.MaxUses, 10
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, scratch())
		defer w.remove()
		w.chance.cease()
		w.populate([]string{"a"}, []string{"rwo", "rwx"})
		for k := range most + more {
			w.want(fmt.Sprintf("rwx-a-%03d", k), "a", "rwx")
		}
		waiting := func() (names []string) {
			for _, i := range w.intents() {
				c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
				if c != nil && c.Reason == volumesv1alpha1.ReasonTooManyUses {
					names = append(names, i.Name)
				}
			}
			return names
		}
		expect := func(missing int) func() []string {
			return func() []string {
				if n := len(waiting()); n != missing || len(w.missing()) != missing {
					return []string{fmt.Sprintf("%d intents wait and %d are missing, want %d", n, len(w.missing()), missing)}
				}
				return nil
			}
		}
		w.await("not as many as the node takes are there", expect(more))
		w.want("rwo-a-0", "a", "rwo")
		w.await("another volume is not there", expect(more))
		w.unwant("rwo-a-0")
		for k := range more {
			w.unwant(fmt.Sprintf("rwx-a-%03d", k))
		}
		w.await("those that waited are not there", expect(0))
		w.withdraw(func(*volumesv1alpha1.VolumeAttachmentIntent) bool { return true })
		w.await("something is left over", w.leftovers)
		w.end()
		if f := w.failure(); f != "" {
			t.Errorf("simulation of seed 1 failed, want no failure: %s", f)
		}
	})
}

// TestAnAttacherTakesAnAttachmentForAnEarlierOneOfItsName: it has read one for another PersistentVolume of the handle,
// and sleeps until that is replaced. Its patch goes by name. The volume is attached and detached all the same.
func TestAnAttacherTakesAnAttachmentForAnEarlierOneOfItsName(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, scratch())
			defer w.remove()
			w.chance.cease()
			w.twins = true
			name := volume.AttachmentName(driverName, handleOf(twin), "a")
			w.asleep[name] = true
			w.populate([]string{"a"}, []string{"rwx"})
			w.want("first", "a", twin)
			time.Sleep(time.Minute)
			w.mu.Lock()
			read := w.attachmentNamed(name)
			w.must(w.api.delete(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: twin}}, nil))
			w.mu.Unlock()
			w.want("second", "a", "rwx")
			time.Sleep(time.Minute)
			w.mu.Lock()
			now := w.attachmentNamed(name)
			if now.UID == read.UID {
				t.Errorf("the attachment of a PersistentVolume that is gone still has UID %s, want another", read.UID)
			}
			w.patchFinalizer(read)
			delete(w.asleep, name)
			w.carryOut(name)
			w.mu.Unlock()
			w.unwant("first")
			w.await("what is wanted is not there", w.missing)
			w.withdraw(func(*volumesv1alpha1.VolumeAttachmentIntent) bool { return true })
			w.await("something is left over", w.leftovers)
			w.end()
			if f := w.failure(); f != "" {
				t.Errorf("simulation of seed %d failed, want no failure: %s", seed, f)
			}
		})
	}
}

// attachmentNamed is a copy of the attachment, which exists.
func (w *World) attachmentNamed(name string) *storagev1.VolumeAttachment {
	o, err := w.api.get(&storagev1.VolumeAttachment{}, client.ObjectKey{Name: name})
	w.must(err)
	return o.DeepCopyObject().(*storagev1.VolumeAttachment)
}

// TestAPodGetsItsVolume in mode Replace, beside an intent of the agent, when nothing goes wrong, and nothing is left
// after it.
func TestAPodGetsItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, scratch())
		defer w.remove()
		w.chance.cease()
		w.replace, w.verbose = true, testing.Verbose()
		w.populate([]string{"a"}, []string{"rwo"})
		w.wantPod("pod", "a", "rwo")
		w.await("the pod does not run", w.missing)
		w.want("rwo-a-0", "a", "rwo")
		w.await("the intent does not get what the pod has", w.missing)
		w.deletePod("pod", false)
		time.Sleep(5 * time.Minute)
		w.await("the intent loses what the pod had", w.missing)
		w.withdraw(func(*volumesv1alpha1.VolumeAttachmentIntent) bool { return true })
		w.await("something is left over", w.leftovers)
		w.end()
		if f := w.failure(); f != "" {
			t.Errorf("simulation of seed 1 failed, want no failure: %s", f)
		} else if testing.Verbose() {
			t.Log("\n" + strings.Join(w.trace, "\n"))
		}
	})
}

// TestAnAgentDoesNotWaitForADeviceThatTheKubeletHasMounted: a process holds the device after the agent has unstaged it.
// Before that process ends a pod comes, for which the kubelet mounts the device.
func TestAnAgentDoesNotWaitForADeviceThatTheKubeletHasMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, scratch())
		defer w.remove()
		w.chance.cease()
		w.replace = true
		w.populate([]string{"a"}, []string{"rwo"})
		w.want("rwo-a-0", "a", "rwo")
		w.await("what is wanted is not there", w.missing)
		w.mu.Lock()
		m := w.nodes["a"]
		m.held[m.devices["vol-rwo"].seq] = time.Now().Add(5 * time.Minute)
		w.mu.Unlock()
		w.unwant("rwo-a-0")
		time.Sleep(time.Minute)
		w.mu.Lock()
		if left := m.of("vol-rwo"); len(left) > 0 || w.intent("rwo-a-0") == nil {
			t.Errorf("mounted on a after a minute is %v, want nothing, and that the agent waits for the device", left)
		}
		w.mu.Unlock()
		w.wantPod("pod", "a", "rwo")
		w.await("the pod does not run, or the intent is not let go", w.missing)
		w.deletePod("pod", false)
		w.await("something is left over", w.leftovers)
		w.end()
		if f := w.failure(); f != "" {
			t.Errorf("simulation of seed 1 failed, want no failure: %s", f)
		}
	})
}
