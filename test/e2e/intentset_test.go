/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/intentset"
	"github.com/hawser-io/hawser/test/record"
	"github.com/hawser-io/hawser/test/system"
)

func TestASetGivesEachNodeItsVolumeAndKeepsTheClaimsWhenItIsDeleted(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scratch"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{NodeSelector: &metav1.LabelSelector{},
			ClaimTemplate: &volumesv1alpha1.ClaimTemplate{Spec: claimSpec()}},
	}
	sets := record.Start(t, sys.Client, &volumesv1alpha1.VolumeAttachmentIntentSetList{}, client.InNamespace(namespace))
	if err := sys.Client.Create(ctx, set); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(set)
	if _, err := system.Await(ctx, sys, &volumesv1alpha1.VolumeAttachmentIntentSetList{}, key,
		func(s *volumesv1alpha1.VolumeAttachmentIntentSet) bool { return s != nil && s.Status.Ready == 2 }); err != nil {
		t.Fatal(err)
	}
	volumes := map[string]*volume{}
	for _, node := range []string{nodeA, nodeB} {
		v := &volume{t: t, name: intentset.IntentName(set.Name, node)}
		v.bind(ctx)
		write(t, v.ready(v.name)) // the intent has the name of the claim
		volumes[node] = v
	}
	if err := sys.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	if _, err := system.Await(ctx, sys, &volumesv1alpha1.VolumeAttachmentIntentSetList{}, key,
		func(s *volumesv1alpha1.VolumeAttachmentIntentSet) bool { return s == nil }); err != nil {
		t.Fatal(err)
	}
	record.Keep(t, "set", sets())
	for node, v := range volumes {
		// A set that is deleted in the foreground goes last.
		err := sys.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v.name},
			&volumesv1alpha1.VolumeAttachmentIntent{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("reading intent %s after its set is gone: %v, want that it is not found", v.name, err)
		}
		if _, err := sys.AwaitNode(ctx, node, func(s *volumesv1alpha1.NodeVolumeState) bool {
			return s != nil && !slices.ContainsFunc(s.Spec.Attachments,
				func(a volumesv1alpha1.NodeAttachment) bool { return a.VolumeHandle == v.handle })
		}); err != nil {
			t.Error(err)
		}
		v.remove() // fails if the claim is not there any more
	}
}
