/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/test/apiserver"
)

// documented returns the commands under a heading of a page of docs, with what is to be replaced in them.
func documented(t *testing.T, page, heading string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "docs", page))
	if err != nil {
		t.Fatalf("reading docs/%s: %v", page, err)
	}
	_, section, found := strings.Cut(string(text), "# "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	var script strings.Builder
	for line := range strings.Lines(section) {
		if command, indented := strings.CutPrefix(line, "    "); indented {
			script.WriteString(command)
		}
	}
	if !found || script.Len() == 0 {
		t.Fatalf("docs/%s, heading %q: no commands, want some", page, heading)
	}
	return strings.NewReplacer(replace...).Replace(script.String())
}

// walk runs commands as an administrator does in the top folder.
func (w *world) walk(t *testing.T, commands string) {
	t.Helper()
	assets, err := filepath.Abs(os.Getenv(apiserver.AssetsVariable))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", apiserver.Commands(t, commands))
	cmd.Dir = apiserver.Root()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+apiserver.Kubeconfig(t, w.config), "PATH="+assets+":"+os.Getenv("PATH"))
	message, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("running the documented commands: error %v, want success: %s\n%s", err, message, commands)
	}
	t.Logf("%s", message)
}

func TestAMissingAttacherIsReportedAndItsFinalizerCanBeRemovedAsDocumented(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	w.node(t, "here")
	w.volume(t, "data", volumeOptions{})
	intent := w.intent(t, "data", "here", "data")
	until(t, w, intent, "the intent is Ready", isReady)
	w.attacher.set("pv-data", "", true)
	w.delete(t, intent)
	gone(t, w, intent)
	va := until(t, w, attachmentOf("data", "here"), "it is to be detached", terminating)

	c.advance(3 * time.Minute)
	w.change(t, va, func() { va.Labels = map[string]string{"look": "again"} })
	says := until(t, w, stateOf("here"), "the entry says what it waits for",
		func(s *volumesv1alpha1.NodeVolumeState) bool {
			return entryIn(s, "data").DetachError != ""
		})
	for _, part := range []string{driverName, va.DeletionTimestamp.UTC().Format(time.RFC3339), attacherFinalizer} {
		if message := entryIn(says, "data").DetachError; !strings.Contains(message, part) {
			t.Errorf("detachError of volume data: %q; want %q in it", message, part)
		}
	}
	if note := w.awaitEvent(t, "here", "FailedDetachVolume"); !strings.Contains(note, driverName) ||
		!strings.Contains(note, va.Name) {
		t.Errorf("event of node state here: %q; want driver %s and attachment %s", note, driverName, va.Name)
	}
	again := w.intent(t, "again", "here", "data")
	if message := w.reason(t, again, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttacherSilent); !strings.Contains(message, driverName) {
		t.Errorf("message of intent %s: %q; want driver %s", again.Name, message, driverName)
	}

	until(t, w, stateOf("here"), "a condition reports the attacher", hasReason(
		volumesv1alpha1.ConditionAttachmentsHealthy, volumesv1alpha1.ReasonAttacherSilent))

	uid := va.UID
	w.walk(t, documented(t, "troubleshoot.md", "An attacher that is gone", "csi-a46d7a27...", va.Name,
		"external-attacher/loop-csi-hawser-io", attacherFinalizer))
	until(t, w, va, "there is another attachment", func(va *storagev1.VolumeAttachment) bool {
		return exists(va) && va.UID != uid
	})
	w.attacher.set("pv-data", "", false)
	w.attached(t, again)
	until(t, w, stateOf("here"), "nothing is wrong any more", hasReason(
		volumesv1alpha1.ConditionAttachmentsHealthy, volumesv1alpha1.ReasonAsExpected))
}

func TestAnAttachThatNoAttacherAnswersIsReported(t *testing.T) {
	w := newWorld(t)
	c := newStepClock()
	w.manage(t, managerOptions{clock: c})
	w.node(t, "here")
	w.volume(t, "unanswered", volumeOptions{})
	w.attacher.set("pv-unanswered", "", true)
	intent := w.intent(t, "unanswered", "here", "unanswered")
	va := until(t, w, attachmentOf("unanswered", "here"), "it exists", exists[*storagev1.VolumeAttachment])
	c.advance(3 * time.Minute)
	w.change(t, va, func() { va.Labels = map[string]string{"look": "again"} })
	if message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttacherSilent); !strings.Contains(message, driverName) ||
		!strings.Contains(message, va.Name) {
		t.Errorf("message of intent %s: %q; want driver %s and attachment %s", intent.Name, message, driverName, va.Name)
	}
	until(t, w, stateOf("here"), "a condition reports the attacher", hasReason(
		volumesv1alpha1.ConditionAttachmentsHealthy, volumesv1alpha1.ReasonAttacherSilent))
	w.attacher.set("pv-unanswered", "", false)
	w.attached(t, intent)
	until(t, w, stateOf("here"), "nothing is wrong any more", hasReason(
		volumesv1alpha1.ConditionAttachmentsHealthy, volumesv1alpha1.ReasonAsExpected))
}

func TestADeletedNodeStateReportsWhatItWaitsForAndIsCreatedAgain(t *testing.T) {
	w := newWorld(t)
	w.manage(t, managerOptions{})
	w.node(t, "here")
	w.volume(t, "data", volumeOptions{})
	intent := w.intent(t, "data", "here", "data")
	until(t, w, intent, "the intent is Ready", isReady)
	state := stateOf("here")
	w.delete(t, state)
	note := w.awaitEvent(t, "here", "DeletionWaits")
	for _, part := range []string{uniqueName("data"), "kubectl get vai -A --field-selector spec.nodeName=here"} {
		if !strings.Contains(note, part) {
			t.Errorf("event of the deleted node state: %q; want %q in it", note, part)
		}
	}
	until(t, w, state, "it stays", terminatingState)
	uid := state.UID

	w.delete(t, intent)
	until(t, w, state, "there is another", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.UID != uid
	})
	w.attached(t, w.intent(t, "again", "here", "data"))
	// An empty one is deleted at once.
	w.node(t, "empty")
	empty := until(t, w, stateOf("empty"), "the agent has reported", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return s.Status.Protocol.Reports > 0
	})
	uid = empty.UID
	w.delete(t, empty)
	until(t, w, empty, "there is another", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return exists(s) && s.UID != uid
	})
}

func terminatingState(s *volumesv1alpha1.NodeVolumeState) bool {
	return exists(s) && s.DeletionTimestamp != nil
}

func TestUnreadableLocksAreReportedAndRepairedAsDocumented(t *testing.T) {
	w := newWorld(t)
	kubectl := w.kubectl(t)
	kubectl("", "apply", "-k", "rbac")
	kubectl("", "apply", "-k", "manager")
	_, stop := w.manage(t, managerOptions{})
	w.node(t, "here")
	w.node(t, "there")
	for _, name := range []string{"data", "other"} {
		w.volume(t, name, volumeOptions{})
	}
	here := w.intent(t, "data", "here", "data")
	until(t, w, here, "the intent is Ready", isReady)

	locks := &corev1.ConfigMap{}
	locks.Namespace, locks.Name = exclusive.Key(uniqueName("data")).Namespace, exclusive.Key(uniqueName("data")).Name
	w.change(t, locks, func() { locks.Data = map[string]string{"locks.json": `{"writes": 1, "locks": {`} })
	if note := w.awaitEvent(t, locks.Name, "LocksUnreadable"); !strings.Contains(note, "unexpected end of JSON input") {
		t.Errorf("event of ConfigMap %s: %q; want the error of the JSON", locks.Name, note)
	}
	there := w.intent(t, "there", "there", "data")
	if message := w.reason(t, there, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		"LocksUnreadable"); !strings.Contains(message, locks.Name) {
		t.Errorf("message of intent %s: %q; want ConfigMap %s", there.Name, message, locks.Name)
	}
	// What is attached stays, and so does what needs other locks.
	w.attached(t, here)
	w.attached(t, w.intent(t, "other", "here", "other"))

	stop()
	w.walk(t, documented(t, "troubleshoot.md", "Locks that cannot be read", "hawser-exclusive-locks-3f", locks.Name))
	w.manage(t, managerOptions{})
	w.reason(t, there, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
	w.attached(t, here)
	w.delete(t, here)
	gone(t, w, here)
	w.attached(t, there)
}

func TestAVolumeWhoseLockCannotBeReadIsStillReleased(t *testing.T) {
	w := newWorld(t)
	w.manage(t, managerOptions{})
	w.node(t, "here")
	w.volume(t, "data", volumeOptions{})
	intent := w.intent(t, "data", "here", "data")
	until(t, w, intent, "the intent is Ready", isReady)
	locks := &corev1.ConfigMap{}
	locks.Namespace, locks.Name = exclusive.Key(uniqueName("data")).Namespace, exclusive.Key(uniqueName("data")).Name
	w.change(t, locks, func() { locks.Data = map[string]string{"locks.json": "?"} })
	w.awaitEvent(t, locks.Name, "LocksUnreadable")
	w.delete(t, intent)
	gone(t, w, intent)
	gone(t, w, attachmentOf("data", "here"))
}
