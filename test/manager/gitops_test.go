/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// inGit are an intent, and a set that wants the same volume on the same node.
const inGit = `
apiVersion: volumes.hawser.io/v1alpha1
kind: VolumeAttachmentIntent
metadata: {namespace: default, name: by-git}
spec:
  nodeName: git-a
  readOnly: true
  volume:
    persistentVolumeClaim: {claimName: git}
---
apiVersion: volumes.hawser.io/v1alpha1
kind: VolumeAttachmentIntentSet
metadata: {namespace: default, name: by-git}
spec:
  nodeSelector:
    matchLabels: {pool: git}
  template:
    metadata:
      labels: {revision: first}
    spec:
      readOnly: true
      volume:
        persistentVolumeClaim: {claimName: git}
`

// TestGitAppliesBesideTheControllers: what a tool applies on the server's side never conflicts with what the manager
// writes, and nothing differs from Git while everything runs.
func TestGitAppliesBesideTheControllers(t *testing.T) {
	w := newWorld(t)
	defer w.describeOnFailure(t)
	w.manage(t, managerOptions{})
	w.volume(t, "git", shared())
	w.node(t, "git-a")
	w.pool(t, "git-a", "git")
	kubeconfig := apiserver.Kubeconfig(t, w.config)
	apply := func(manifest string) {
		t.Helper()
		apiserver.Kubectl(t, kubeconfig, manifest, "apply", "--server-side", "--field-manager=git", "-f", "-")
	}
	// A write of a controller between the two reads of kubectl diff is a difference too, but not in the next attempt.
	same := func(manifest string) {
		t.Helper()
		var err error
		for range 5 {
			_, err = apiserver.TryKubectl(t, kubeconfig, manifest, "diff", "--server-side", "--field-manager=git", "-f", "-")
			if err == nil {
				return
			}
		}
		t.Errorf("what is in Git differs from what runs, want no difference: %v", err)
	}
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "by-git"}}
	set := newSet("by-git", "git", "git")

	apply(inGit)
	w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, volumesv1alpha1.ReasonReady)
	w.awaitSet(t, set, 1)
	same(inGit)
	apply(inGit)
	same(inGit)

	later := strings.Replace(inGit, "revision: first", "revision: second", 1)
	apply(later)
	same(later)
	made := until(t, w, intentOf("by-git", "git-a"), "the set's intent has the label of the second revision",
		func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i.Labels["revision"] == "second" })
	w.reason(t, made, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, volumesv1alpha1.ReasonReady)
	w.awaitSet(t, set, 1)
	same(later)
	apply(later)
}

// describeOnFailure logs what the API server has, if the test failed.
func (w *world) describeOnFailure(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, list := range []client.ObjectList{
		&volumesv1alpha1.VolumeAttachmentIntentList{}, &volumesv1alpha1.VolumeAttachmentIntentSetList{},
		&volumesv1alpha1.NodeVolumeStateList{}, &eventsv1.EventList{},
	} {
		if err := w.client.List(t.Context(), list); err != nil {
			t.Logf("listing %T: %v", list, err)
			continue
		}
		t.Logf("%T: %s", list, dump(list))
	}
}
