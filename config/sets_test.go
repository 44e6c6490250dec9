/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const setsNamespace = "sets"

func newSet(name string) *volumesv1alpha1.VolumeAttachmentIntentSet {
	return &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: setsNamespace, Name: name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{
			NodeSelector: &metav1.LabelSelector{},
			Template: volumesv1alpha1.IntentTemplate{Spec: volumesv1alpha1.IntentTemplateSpec{
				Volume: &volumesv1alpha1.TemplateVolumeSource{
					PersistentVolumeClaim: volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}},
			}},
		},
	}
}

func changed(set *volumesv1alpha1.VolumeAttachmentIntentSet, change func(*volumesv1alpha1.IntentTemplate),
) *volumesv1alpha1.VolumeAttachmentIntentSet {
	change(&set.Spec.Template)
	return set
}

// ofSet is an intent as the manager makes it.
func ofSet(set *volumesv1alpha1.VolumeAttachmentIntentSet, name, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	intent := newIntent(name, node)
	intent.Namespace = set.Namespace
	intent.Labels = map[string]string{volumesv1alpha1.IntentSetLabel: set.Name,
		volumesv1alpha1.IntentSetUIDLabel: string(set.UID)}
	intent.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: volumesv1alpha1.GroupVersion.String(), Kind: "VolumeAttachmentIntentSet", Name: set.Name, UID: set.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	return intent
}

// testSets checks that a set is no way around what the namespace allows to intents.
func (in installation) testSets(t *testing.T) {
	namespace := &corev1.Namespace{}
	namespace.Name = setsNamespace
	expectAllowed(t, in.admin.Create(t.Context(), namespace))
	manager := in.as(t, managerAccount)
	const force, kubelet = "volumes.hawser.io/allow-force-detach=true", "volumes.hawser.io/allow-publisher-kubelet=true"
	forcing := func(i *volumesv1alpha1.IntentTemplate) {
		i.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: time.Hour}}
	}
	mounting := func(i *volumesv1alpha1.IntentTemplate) {
		i.Spec.Publisher, i.Spec.DesiredState = volumesv1alpha1.PublisherKubelet, volumesv1alpha1.DesiredAttached
	}
	set := newSet("plain")
	expectAllowed(t, in.admin.Create(t.Context(), set))
	expectForbidden(t, in.admin.Create(t.Context(), changed(newSet("forced"), forcing)), force)
	expectForbidden(t, in.admin.Create(t.Context(), changed(newSet("kubelet"), mounting)), kubelet)
	expectForbidden(t, patched(t, in.admin, set,
		`{"spec":{"template":{"spec":{"detachPolicy":{"forceAfter":"1h"}}}}}`), force)

	// The manager may create what an author may, and nothing else.
	expectAllowed(t, manager.Create(t.Context(), ofSet(set, "plain-node-a", "node-a")))
	expectForbidden(t, manager.Create(t.Context(), forced(ofSet(set, "plain-node-b", "node-b"))), force)
	expectForbidden(t, manager.Create(t.Context(), byKubelet(ofSet(set, "plain-node-b", "node-b"))), kubelet)
	both := byKubelet(ofSet(set, "plain-node-b", "node-b"))
	both.Labels[volumesv1alpha1.PodUIDLabel] = "1"
	expectForbidden(t, manager.Create(t.Context(), both), kubelet)
	unowned := ofSet(set, "unowned", "node-b")
	unowned.OwnerReferences = nil
	expectForbidden(t, manager.Create(t.Context(), unowned), "of pods and of sets")
	expectForbidden(t, manager.Delete(t.Context(), in.byHand(t, "foreign", "node-a")), "of pods and of sets")
	in.kubectl(t, "annotate", "namespace", setsNamespace, "volumes.hawser.io/allowed-nodes=node-b")
	in.eventuallyForbidden(t, manager, ofSet(set, "plain-node-c", "node-c"), "may not use node node-c")
	expectAllowed(t, manager.Delete(t.Context(), ofSet(set, "plain-node-a", "node-a")))
	in.testAdoption(t, manager, set)
	in.testClaimsOfSets(t, manager, set)
	in.testAuthorsOfClaimTemplates(t)
	for name, change := range map[string]func(*volumesv1alpha1.IntentTemplate){
		"labels": func(i *volumesv1alpha1.IntentTemplate) {
			i.Metadata.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
		},
		"annotations": func(i *volumesv1alpha1.IntentTemplate) {
			i.Metadata.Annotations = map[string]string{"volumes.hawser.io/a": "1"}
		},
	} {
		err := in.admin.Create(t.Context(), changed(newSet(name), change))
		expectInvalid(t, err, name+" of hawser.io are set by Hawser alone")
	}
	for name, selector := range map[string]*metav1.LabelSelector{
		"ready-label": {MatchLabels: map[string]string{volumesv1alpha1.ReadyLabelPrefix + "ns.set": "true"}},
		"ready-expression": {MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: volumesv1alpha1.ReadyLabelPrefix + "ns.set", Operator: metav1.LabelSelectorOpDoesNotExist}}},
	} {
		selecting := newSet(name)
		selecting.Spec.NodeSelector = selector
		expectInvalid(t, in.admin.Create(t.Context(), selecting), "must not select by labels ready.volumes.hawser.io/")
	}
	neither := newSet("neither")
	neither.Spec.Template.Spec.Volume, neither.Spec.Template.Spec.ReadOnly = nil, true
	expectInvalid(t, in.admin.Create(t.Context(), neither), "set exactly one: claimTemplate")
}

// byHand is an intent that a person has created.
func (in installation) byHand(t *testing.T, name, node string) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	intent := newIntent(name, node)
	intent.Namespace = setsNamespace
	expectAllowed(t, in.admin.Create(t.Context(), intent))
	return intent
}

// testAdoption checks that the manager becomes the controller only of an intent whose label names the set.
func (in installation) testAdoption(
	t *testing.T, manager client.Client, set *volumesv1alpha1.VolumeAttachmentIntentSet,
) {
	t.Helper()
	orphan := ofSet(set, "plain-orphan", "node-b")
	owners := orphan.OwnerReferences
	orphan.OwnerReferences = nil
	expectAllowed(t, in.admin.Create(t.Context(), orphan))
	adopted := orphan.DeepCopy()
	adopted.OwnerReferences = owners
	expectAllowed(t, manager.Patch(t.Context(), adopted, client.MergeFrom(orphan)))
	foreign := in.byHand(t, "not-labelled", "node-b")
	taken := foreign.DeepCopy()
	taken.OwnerReferences = owners
	expectForbidden(t, manager.Patch(t.Context(), taken, client.MergeFrom(foreign)), "adopt it for the set")
}

// testAuthorsOfClaimTemplates checks that a set makes no claims for a user who may not create any.
func (in installation) testAuthorsOfClaimTemplates(t *testing.T) {
	t.Helper()
	const name, message = "set-author", "set or change claimTemplate, or change the nodeSelector"
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{"volumes.hawser.io"},
		Resources: []string{"volumeattachmentintentsets"}, Verbs: []string{"create", "patch"}}}}
	role.Name = "test-" + name
	in.grant(t, role.Name, name, role)
	author := in.person(t, name)
	in.eventuallyAllowed(t, author, newSet("shared"))
	templated := newSet("templated")
	templated.Spec.Template.Spec.Volume = nil
	templated.Spec.ClaimTemplate = &volumesv1alpha1.ClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	expectForbidden(t, author.Create(t.Context(), templated.DeepCopy()), message)
	expectAllowed(t, in.admin.Create(t.Context(), templated))
	expectForbidden(t, patched(t, author, templated,
		`{"spec":{"claimTemplate":{"spec":{"storageClassName":"expensive"}}}}`), message)
	// More nodes are more claims, and no policy can tell how many nodes a selector matches.
	expectForbidden(t, patched(t, author, templated, `{"spec":{"nodeSelector":{"matchLabels":{"a":"b"}}}}`), message)
	expectAllowed(t, patched(t, author, templated, `{"spec":{"template":{"spec":{"readOnly":true}}}}`))
	shared := newSet("shared")
	expectAllowed(t, patched(t, author, shared, `{"spec":{"nodeSelector":{"matchLabels":{"a":"b"}}}}`))
	expectForbidden(t, patched(t, author, shared, `{"spec":{"template":{"spec":{"volume":null}},"claimTemplate":{"spec":{
		"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}}`), message)
}

func expectInvalid(t *testing.T, err error, part string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v, want it invalid with %q", err, part)
	}
}

// testClaimsOfSets checks which claims the manager may create, and that it deletes none.
func (in installation) testClaimsOfSets(
	t *testing.T, manager client.Client, set *volumesv1alpha1.VolumeAttachmentIntentSet,
) {
	t.Helper()
	claim := func(name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: setsNamespace, Name: name,
				Labels: map[string]string{volumesv1alpha1.IntentSetLabel: set.Name}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
		}
		change(c)
		return c
	}
	const message = "create only those of a VolumeAttachmentIntentSet"
	made := claim("plain-node-b", func(*corev1.PersistentVolumeClaim) {})
	expectAllowed(t, manager.Create(t.Context(), made))
	expectForbidden(t, manager.Create(t.Context(), claim("unlabelled", func(c *corev1.PersistentVolumeClaim) {
		c.Labels = nil
	})), message)
	expectForbidden(t, manager.Create(t.Context(), claim("with-volume", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "pv"
	})), message)
	expectForbidden(t, manager.Delete(t.Context(), made))
}

// testQuota checks the quota of config/samples/gitops. No controller counts here, so the test sets what it would.
func (in installation) testQuota(t *testing.T) {
	t.Helper()
	const namespace, intents = "hawser-gitops", "count/volumeattachmentintents.volumes.hawser.io"
	quota := &corev1.ResourceQuota{}
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "volumes"}, quota))
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{intents: quota.Spec.Hard[intents],
		"count/volumeattachmentintentsets.volumes.hawser.io": resource.MustParse("1")}
	expectAllowed(t, in.admin.Status().Update(t.Context(), quota))
	another := newIntent("one-too-many", "node-a")
	another.Namespace = namespace
	in.eventuallyForbidden(t, in.admin, another, "exceeded quota: volumes")
}
