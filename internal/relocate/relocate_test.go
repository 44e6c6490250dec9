/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func intent(name, node string, options ...func(*volumesv1alpha1.VolumeAttachmentIntent),
) *volumesv1alpha1.VolumeAttachmentIntent {
	i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Generation: 1}}
	i.UID = "uid-of-shop"
	i.Spec.NodeName = node
	i.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}
	for _, o := range options {
		o(i)
	}
	return i
}

func with(conditions ...metav1.Condition) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Status.ObservedGeneration, i.Status.Conditions = 1, conditions
	}
}

func onVolume(name, unique string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Status.VolumeName, i.Status.UniqueVolumeName = name, unique
	}
}

func terminating(i *volumesv1alpha1.VolumeAttachmentIntent) {
	i.DeletionTimestamp = ptr.To(metav1.Now())
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason}
}

func TestASourceIsDeletedOnlyOnceNothingElseHoldsItsReplacementBack(t *testing.T) {
	resolved := condition(volumesv1alpha1.ConditionResolved, metav1.ConditionTrue, "Resolved")
	for name, tt := range map[string]struct {
		at   Progress
		want Step
		why  string
	}{
		"there is no replacement": {Progress{Source: intent("a", "node-a")}, Create, ""},
		"the manager has not seen the replacement": {
			Progress{Source: intent("a", "node-a"), Replacement: intent("b", "node-b")}, AwaitResolved, "not resolved"},
		"the manager cannot tell yet": {Progress{Source: intent("a", "node-a"), Replacement: intent("b", "node-b",
			with(condition(volumesv1alpha1.ConditionResolved, metav1.ConditionUnknown, "Progressing")))}, AwaitResolved, ""},
		"the manager refuses the replacement": {Progress{Source: intent("a", "node-a"), Replacement: intent("b", "node-b",
			with(condition(volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, "NodeAffinityMismatch")))},
			Failed, "NodeAffinityMismatch"},
		"the other node is full": {Progress{Source: intent("a", "node-a"),
			Replacement: intent("b", "node-b", with(resolved,
				condition(volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, "NodeLimitReached")))},
			Failed, "NodeLimitReached"},
		"the replacement is stalled": {Progress{Source: intent("a", "node-a"),
			Replacement: intent("b", "node-b", with(resolved,
				condition(volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, "StageFailed")))}, Failed, "StageFailed"},
		"the replacement waits for the source": {Progress{Source: intent("a", "node-a"), Replacement: intent("b", "node-b",
			with(resolved, condition(volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, "VolumeInUseElsewhere")))},
			Delete, ""},
		"the replacement waits for more than the source": {Progress{Source: intent("a", "node-a"),
			Replacement: intent("b", "node-b", with(resolved, condition(volumesv1alpha1.ConditionAttached,
				metav1.ConditionUnknown, "AgentUnreachable"), condition(volumesv1alpha1.ConditionReady,
				metav1.ConditionUnknown, "AgentUnreachable")))}, AwaitTarget, "AgentUnreachable"},
		"the manager has only resolved the replacement": {Progress{Source: intent("a", "node-a"),
			Replacement: intent("b", "node-b", with(resolved))}, AwaitTarget, ""},
		"the replacement has another volume": {Progress{Source: intent("a", "node-a", onVolume("pv-1", "a")),
			Replacement: intent("b", "node-b", onVolume("pv-2", "b"), with(resolved,
				condition(volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")))}, Failed, "has volume pv-2"},
		"the replacement has another volume under the same name": {
			Progress{Source: intent("a", "node-a", onVolume("pv-1", "a")),
				Replacement: intent("b", "node-b", onVolume("pv-1", "b"), with(resolved,
					condition(volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, "VolumeInUseElsewhere")))}, Failed, ""},
		"the replacement is published beside the source": {Progress{Source: intent("a", "node-a"),
			Replacement: intent("b", "node-b", with(resolved,
				condition(volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")))}, Delete, ""},
		"the source is released": {Progress{Source: intent("a", "node-a", terminating,
			with(condition(volumesv1alpha1.ConditionReady, metav1.ConditionFalse, "UsedByPods"))),
			Replacement: intent("b", "node-b", with(resolved))}, AwaitReleased, "UsedByPods"},
		"the source is gone": {Progress{Replacement: intent("b", "node-b", with(resolved,
			condition(volumesv1alpha1.ConditionReady, metav1.ConditionFalse, "Attaching")))}, AwaitReady, "Attaching"},
		"the replacement is Ready": {Progress{Replacement: intent("b", "node-b",
			with(condition(volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")))}, Done, ""},
		"an older generation is Ready": {Progress{Replacement: intent("b", "node-b",
			with(condition(volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")),
			func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Generation = 2 })}, AwaitReady, ""},
		"the replacement is deleted by another": {
			Progress{Source: intent("a", "node-a"), Replacement: intent("b", "node-b", terminating)}, Failed, "being deleted"},
		"both are gone":           {Progress{}, Failed, "neither"},
		"without a replacement":   {Progress{Source: intent("a", "node-a"), Drop: true}, Delete, ""},
		"dropped and terminating": {Progress{Source: intent("a", "node-a", terminating), Drop: true}, AwaitReleased, ""},
		"dropped and gone":        {Progress{Drop: true}, Done, ""},
	} {
		if got, why := tt.at.Next(); got != tt.want || !strings.Contains(why, tt.why) {
			t.Errorf("%s: next step %s (%s), want %s (%s)", name, got, why, tt.want, tt.why)
		}
	}
}

func TestAnIntentOfAnotherManagerIsRecognised(t *testing.T) {
	owner := func(kind string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
		return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "web", Controller: ptr.To(true)}}
		}
	}
	label := func(key string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
		return func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Labels = map[string]string{key: "x"} }
	}
	annotation := func(key string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
		return func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Annotations = map[string]string{key: "x"} }
	}
	manager := func(name, subresource string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
		return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: name, Subresource: subresource}}
		}
	}
	for name, tt := range map[string]struct {
		option func(*volumesv1alpha1.VolumeAttachmentIntent)
		want   string
	}{
		"a pod":                         {owner("Pod"), "pod web"},
		"a pod that is only labelled":   {label(volumesv1alpha1.PodUIDLabel), "the pod that"},
		"a set":                         {owner("VolumeAttachmentIntentSet"), "VolumeAttachmentIntentSet web"},
		"another controller":            {owner("Database"), "Database web"},
		"Flux, by its label":            {label("kustomize.toolkit.fluxcd.io/name"), "Flux"},
		"Argo CD, by its annotation":    {annotation("argocd.argoproj.io/tracking-id"), "Argo CD"},
		"Argo CD, by its field manager": {manager("argocd-controller", ""), "Argo CD"},
		"Helm":                          {annotation("meta.helm.sh/release-name"), "Helm"},
		"kubectl":                       {manager("kubectl-client-side-apply", ""), ""},
		"a tool that wrote the status":  {manager("kustomize-controller", "status"), ""},
		"a label that people set too":   {label("app.kubernetes.io/instance"), ""},
	} {
		got := ManagerOf(intent("a", "node-a", tt.option))
		switch {
		case tt.want == "" && got != nil:
			t.Errorf("%s: managed by %s, want by nobody", name, got.Name)
		case tt.want != "" && (got == nil || !strings.HasPrefix(got.Name, tt.want) || got.Instead == ""):
			t.Errorf("%s: managed by %+v, want by %s, with what to do instead", name, got, tt.want)
		}
	}
}

func TestAReplacementAsksForTheSameOnTheOtherNode(t *testing.T) {
	source := intent("data-on-node-a", "node-a", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.ReadOnly = true
		i.Labels = map[string]string{"app": "web"}
		i.Annotations = map[string]string{"team": "shop", "kubectl.kubernetes.io/last-applied-configuration": "{}",
			"volumes.hawser.io/x": "y"}
		i.Finalizers = []string{"volumes.hawser.io/release"}
	})
	got, err := Replacement(source, "node-b", "")
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "data-on-node-b" || !got.Spec.ReadOnly || got.Spec.NodeName != "node-b" || got.Labels["app"] != "web" ||
		len(got.Annotations) != 1 || len(got.Finalizers) != 0 || got.UID != "" {
		t.Errorf("replacement %+v, want data-on-node-b, read-only, with the labels and annotations of people only", got)
	}
	if !replaces(got, source, "node-b") {
		t.Errorf("the replacement %+v is not recognised as that of its source", got)
	}
	for name, tt := range map[string]struct{ source, given, want, err string }{
		"a name without the node": {"data", "", "data-node-b", ""},
		"a name that is given":    {"data", "other", "other", ""},
		"the same name":           {"data", "data", "", "choose another"},
		"a name that is too long": {strings.Repeat("a", 250), "", "", "--name"},
	} {
		got, err := Replacement(intent(tt.source, "node-a"), "node-b", tt.given)
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: error %v, want one with %q", name, err, tt.err)
		case tt.err == "" && (err != nil || got.Name != tt.want):
			t.Errorf("%s: replacement %+v, error %v, want the name %s", name, got, err, tt.want)
		}
	}
}

func TestOnlyAnIntentOfTheNameThatAsksForTheSameIsTheReplacement(t *testing.T) {
	const name = "data-on-node-b"
	source := intent("data-on-node-a", "node-a")
	ours := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.UID = "1" }
	readOnly := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true }
	for name, tt := range map[string]struct {
		intent *volumesv1alpha1.VolumeAttachmentIntent
		taken  map[string]bool
		want   string
	}{
		"an earlier run created it":       {intent(name, "node-b", ours), nil, name},
		"another state is asked for":      {intent(name, "node-b", readOnly), nil, ""},
		"another program asks for a same": {intent("y", "node-b", ours), nil, ""},
		"it is being deleted":             {intent(name, "node-b", terminating), nil, ""},
		"it replaces another one":         {intent(name, "node-b", ours), map[string]bool{"1": true}, ""},
		"it is the pod's own, not ours":   {podIntent(intent(name, "node-b", ours)), nil, ""},
	} {
		got := ""
		all := []volumesv1alpha1.VolumeAttachmentIntent{*tt.intent}
		if match := Match(source, "node-b", "", all, tt.taken); match != nil {
			got = match.Name
		}
		if got != tt.want {
			t.Errorf("%s: the replacement is %q, want %q", name, got, tt.want)
		}
	}
}

func podIntent(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	i = i.DeepCopy()
	i.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "u"}
	return i
}
