/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// TestWhatAnEarlierRuleLetThroughIsRefusedByTheAgent stores intents under a CRD that does not restrict mount yet.
func TestWhatAnEarlierRuleLetThroughIsRefusedByTheAgent(t *testing.T) {
	c := newCluster(t)
	for _, test := range []struct {
		name   string
		mount  volumesv1alpha1.MountSpec
		mended volumesv1alpha1.MountSpec
		reason string
		says   string
	}{
		{"an option of a filesystem", volumesv1alpha1.MountSpec{Options: []string{"nodev", "password=hidden"}},
			volumesv1alpha1.MountSpec{Options: []string{"nodev"}},
			volumesv1alpha1.ReasonMountNotAllowed, `the mount option "password", only for noexec, nodev`},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := c.node(t)
			v := testVolume{handle: "vol"}
			n.attach(v, "uid-1")
			restore := n.withoutMountRules()
			i := n.want(v, "data", func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.Mount = &test.mount })
			restore()
			n.start()
			got := n.condition(i, volumesv1alpha1.ConditionPublished, test.reason)
			message := meta.FindStatusCondition(got.Status.Conditions, volumesv1alpha1.ConditionReady).Message
			if !strings.Contains(message, test.says) || strings.Contains(message, "hidden") {
				t.Errorf("message of intent %s: %q, want it to have %q and no value of an option", i.Name, message, test.says)
			}
			if !meta.IsStatusConditionTrue(got.Status.Conditions, volumesv1alpha1.ConditionStalled) {
				t.Errorf("intent %s: conditions %+v, want it Stalled", got.Name, got.Status.Conditions)
			}
			if calls := n.driver.made(); slices.Contains(calls, "publish vol") {
				t.Errorf("calls on node %s: %v, want no publish", n.name, calls)
			}
			n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.Mount = &test.mended })
			n.ready(i)
			n.release(i)
			n.gone(v)
			n.nothingLeft()
		})
	}
}

// withoutMountRules takes the CRD's rules about mount away until they are restored.
func (n *node) withoutMountRules() (restore func()) {
	n.t.Helper()
	var rules map[string]any
	n.changeMountRules(func(mount map[string]any) {
		rules = maps.Clone(mount)
		clear(mount)
		mount["type"], mount["x-kubernetes-preserve-unknown-fields"] = "object", true
	}, false)
	return func() {
		n.changeMountRules(func(mount map[string]any) {
			clear(mount)
			maps.Copy(mount, rules)
		}, true)
	}
}

// changeMountRules returns once the API server obeys, and so refuses a forbidden option or does not.
func (n *node) changeMountRules(change func(mount map[string]any), refuses bool) {
	n.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"})
	n.must(n.client.Get(n.t.Context(), clientKey("volumeattachmentintents.volumes.hawser.io"), crd))
	change(mountSchemaOf(crd))
	n.must(n.client.Update(n.t.Context(), crd))
	probe := &volumesv1alpha1.VolumeAttachmentIntent{}
	probe.Namespace, probe.Name, probe.Spec.NodeName = "default", "probe", "elsewhere"
	probe.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "claim"}
	probe.Spec.Mount = &volumesv1alpha1.MountSpec{Options: []string{"suid"}}
	n.eventually("the rules", func() bool {
		return (n.client.Create(n.t.Context(), probe.DeepCopy(), client.DryRunAll) != nil) == refuses
	})
}

// mountSchemaOf points into the CRD.
func mountSchemaOf(crd *unstructured.Unstructured) map[string]any {
	version := crd.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	at := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	for _, name := range []string{"spec", "mount"} {
		at = at["properties"].(map[string]any)[name].(map[string]any)
	}
	return at
}
