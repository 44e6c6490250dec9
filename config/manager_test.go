/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// patched sends a merge patch, which names only what it changes.
func patched(t *testing.T, c client.Client, object client.Object, patch string) error {
	t.Helper()
	target := object.DeepCopyObject().(client.Object)
	return c.Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func patchedStatus(t *testing.T, c client.Client, object client.Object, patch string) error {
	t.Helper()
	target := object.DeepCopyObject().(client.Object)
	return c.Status().Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// testManagerCreates tries to create what the manager has no role for.
func (in installation) testManagerCreates(t *testing.T) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	storage := corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}
	meta := metav1.ObjectMeta{Namespace: in.namespace, Name: "by-the-manager"}
	manager := in.as(t, managerAccount)
	for name, object := range map[string]client.Object{
		"a Deployment": &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector,
			Template: template}},
		"a DaemonSet": &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector,
			Template: template}},
		"a Pod":    &corev1.Pod{ObjectMeta: meta, Spec: template.Spec},
		"a Secret": &corev1.Secret{ObjectMeta: meta},
		"a Node":   &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}},
		"a policy": &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}},
		"a binding of a policy": &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: meta.Name}},
		"a ClusterRole": &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}},
		"a claim": &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: storage}},
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, manager.Create(t.Context(), object)) })
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: in.name("hawser-manager-nodes")}}
	expectForbidden(t, manager.Delete(t.Context(), policy))
	expectForbidden(t, patched(t, manager, policy, `{"spec":{"failurePolicy":"Ignore"}}`))
}

// testManagerNodes tries what the manager may change of a Node: nothing without the components of mode Replace and of
// writes of Nodes, then only what the policy allows, whatever its roles are.
func (in installation) testManagerNodes(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "managed", Labels: map[string]string{"a": "b",
		readyLabel + "left": "odd"}}}
	expectAllowed(t, in.admin.Create(t.Context(), node))
	expectAllowed(t, patchedStatus(t, in.admin, node, `{"status":{"images":[{"names":["i"],"sizeBytes":1}],
		"conditions":[{"type":"Ready","status":"True","reason":"r","message":"m"}]}}`))
	manager := in.as(t, managerAccount)
	const attach = `{"metadata":{"annotations":{"volumes.hawser.io/unlistings":"1"}},
		"status":{"volumesAttached":[{"name":"v","devicePath":"d"}]}}`
	expectForbidden(t, patchedStatus(t, manager, node, attach), "cannot patch resource")
	expectForbidden(t, patched(t, manager, node, labelled("ns.set", "true")), "cannot patch resource")
	in.kubectl(t, "apply", "-k", in.overlay(t, "rbac", "replace", "node-writes"))
	eventually(t, "the manager may write Nodes with the component", func(context.Context) bool {
		return patched(t, manager, node, labelled("ns.set", "true")) == nil
	})
	for _, verb := range []string{"create", "update", "delete", "deletecollection"} {
		if in.allowed(t, managerAccount, verb, permission{resource: "nodes"}, "") {
			t.Errorf("the manager may %s nodes with the component, want no", verb)
		}
	}
	in.grantRules(t, managerAccount, "nodes",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}})
	expectAllowed(t, patchedStatus(t, manager, node, attach))
	expectAllowed(t, patchedStatus(t, manager, node, `{"status":{"volumesAttached":[]}}`))

	const only = "the manager may change nothing of a Node's status but volumesAttached"
	for name, patch := range map[string]string{
		"a condition":          `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"r","message":"m"}]}}`,
		"every condition":      `{"status":{"conditions":null}}`,
		"the volumes in use":   `{"status":{"volumesInUse":["v"]}}`,
		"the capacity":         `{"status":{"capacity":{"cpu":"1"}}}`,
		"the images":           `{"status":{"images":null}}`,
		"a label":              `{"metadata":{"labels":{"a":"c"}}}`,
		"a label of a set":     labelled("ns.other", "true"),
		"another annotation":   `{"metadata":{"annotations":{"other":"1"}}}`,
		"a finalizer":          `{"metadata":{"finalizers":["example.com/f"]}}`,
		"a change beside ours": `{"status":{"volumesAttached":[{"name":"v","devicePath":""}],"volumesInUse":["v"]}}`,
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, patchedStatus(t, manager, node, patch), only) })
	}
	const neither = "the manager may neither create nor delete a Node"
	expectForbidden(t, manager.Delete(t.Context(), node.DeepCopy()), neither)
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}
	expectForbidden(t, manager.Create(t.Context(), other), neither)
	expectAllowed(t, patchedStatus(t, in.admin, node, `{"status":{"volumesInUse":["v"]}}`))
	in.testManagerNodeLabels(t, manager, node)
	in.testManagerNodeSpec(t, manager, node)
}

const readyLabel = volumesv1alpha1.ReadyLabelPrefix

func labelled(set, value string) string {
	return `{"metadata":{"labels":{"` + readyLabel + set + `":"` + value + `"}}}`
}

// testManagerNodeLabels: of a Node's metadata, only the labels of sets.
func (in installation) testManagerNodeLabels(t *testing.T, manager client.Client, node *corev1.Node) {
	expectAllowed(t, patched(t, manager, node, labelled("ns.set", "true")))
	expectAllowed(t, patched(t, manager, node, `{"metadata":{"labels":{"`+readyLabel+`ns.set":null,"`+
		readyLabel+`ns.next":"true"}}}`))
	expectAllowed(t, patched(t, manager, node, `{"metadata":{"labels":{"`+readyLabel+`ns.next":null}}}`))
	for name, patch := range map[string]string{
		"another key":              `{"metadata":{"labels":{"other":"true"}}}`,
		"a key like ours":          `{"metadata":{"labels":{"ready.volumes.hawser.io":"true"}}}`,
		"a longer prefix":          `{"metadata":{"labels":{"not-ready.volumes.hawser.io/ns.set":"true"}}}`,
		"the label of a role":      `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
		"another value":            labelled("ns.set", "false"),
		"another value of a label": labelled("left", "other"),
		"another label changed":    `{"metadata":{"labels":{"a":"c"}}}`,
		"another label removed":    `{"metadata":{"labels":{"a":null}}}`,
		"another label beside ours": `{"metadata":{"labels":{"` + readyLabel +
			`ns.set":"true","other":"true"}}}`,
		"an annotation":      `{"metadata":{"annotations":{"other":"1"}}}`,
		"our own annotation": `{"metadata":{"annotations":{"volumes.hawser.io/unlistings":"2"}}}`,
		"a finalizer":        `{"metadata":{"finalizers":["example.com/f"]}}`,
		"an owner":           `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			expectForbidden(t, patched(t, manager, node, patch), "nothing of a Node's metadata but labels")
		})
	}
	expectAllowed(t, patched(t, manager, node, `{"metadata":{"labels":{"`+readyLabel+`left":null}}}`))
}

// testManagerNodeSpec: of a Node's spec, only the out-of-service taint with our value.
func (in installation) testManagerNodeSpec(t *testing.T, manager client.Client, node *corev1.Node) {
	const other = `{"key":"example.com/t","effect":"NoSchedule"}`
	taints := func(list string) string { return `{"spec":{"taints":[` + list + `]}}` }
	outOfService := func(value, effect string) string {
		return `{"key":"node.kubernetes.io/out-of-service","value":"` + value + `","effect":"` + effect + `"}`
	}
	ours := outOfService(volumesv1alpha1.OutOfServiceTaintValue, "NoExecute")
	// The API server itself has given the Node a taint.
	expectAllowed(t, patched(t, in.admin, node, taints(other)))
	expectAllowed(t, patched(t, manager, node, taints(other+","+ours)))
	expectAllowed(t, patched(t, manager, node, taints(other)))
	expectAllowed(t, patched(t, manager, node, taints(ours+","+other)))
	refused := map[string]string{
		"another taint added":       taints(ours + "," + other + `,{"key":"k","effect":"NoExecute"}`),
		"another taint removed":     taints(ours),
		"another taint changed":     taints(ours + `,{"key":"example.com/t","value":"v","effect":"NoSchedule"}`),
		"every taint removed":       `{"spec":{"taints":null}}`,
		"another value of ours":     taints(outOfService("nodeshutdown", "NoExecute") + "," + other),
		"no value of ours":          taints(outOfService("", "NoExecute") + "," + other),
		"another effect of ours":    taints(outOfService("volumes.hawser.io", "NoSchedule") + "," + other),
		"our value of another key":  taints(`{"key":"k","value":"volumes.hawser.io","effect":"NoExecute"},` + other),
		"that pods are not started": `{"spec":{"unschedulable":true}}`,
		"the network of its pods":   `{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`,
		"the provider's name":       `{"spec":{"providerID":"a://b"}}`,
	}
	const only = "nothing of a Node's spec but the taint"
	for name, patch := range refused {
		t.Run(name, func(t *testing.T) { expectForbidden(t, patched(t, manager, node, patch), only) })
	}
	foreign := taints(outOfService("nodeshutdown", "NoExecute") + "," + other)
	expectAllowed(t, patched(t, in.admin, node, foreign))
	for name, patch := range map[string]string{
		"an out-of-service taint of others removed":  taints(other),
		"an out-of-service taint of others replaced": taints(ours + "," + other),
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, patched(t, manager, node, patch), only) })
	}
}

func (in installation) testManagerClaims(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "managed", Labels: map[string]string{"a": "b"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	expectAllowed(t, in.admin.Create(t.Context(), claim))
	manager := in.as(t, managerAccount)
	const protect = `{"metadata":{"finalizers":["kubernetes.io/pvc-protection","volumes.hawser.io/claim-protection"]}}`
	expectAllowed(t, patched(t, manager, claim, protect))
	expectAllowed(t, patched(t, manager, claim, `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`))
	expectAllowed(t, patched(t, manager, claim,
		`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"a"}}}`))
	expectAllowed(t, patchedStatus(t, manager, claim, `{"status":{"capacity":{"storage":"1Gi"},
		"conditions":[{"type":"NodeResizeError","status":"True"}],
		"allocatedResourceStatuses":{"storage":"NodeResizeInfeasible"}}}`))
	const metadata = "nothing of a PersistentVolumeClaim's metadata but"
	for name, c := range map[string]struct{ patch, message string }{
		"the volume": {`{"spec":{"volumeName":"pv"}}`, "may not change the spec"},
		"upstream's finalizer": {
			`{"metadata":{"finalizers":["volumes.hawser.io/claim-protection"]}}`, metadata},
		"a label":            {`{"metadata":{"labels":{"a":"c"}}}`, metadata},
		"another annotation": {`{"metadata":{"annotations":{"other":"1"}}}`, metadata},
		"an owner": {`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`,
			metadata},
		"the node that was selected": {`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"b"}}}`,
			metadata},
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, patched(t, manager, claim, c.patch), c.message) })
	}
	in.expectNoGrowth(t, claim)
	for name, patch := range map[string]string{
		"the phase":        `{"status":{"phase":"Lost"}}`,
		"the access modes": `{"status":{"accessModes":["ReadWriteMany"]}}`,
		"what is allocated": `{"status":{"allocatedResources":{"storage":"3Gi"},
			"allocatedResourceStatuses":{"storage":"NodeResizeInProgress"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			expectForbidden(t, patchedStatus(t, manager, claim, patch), "nothing of a PersistentVolumeClaim's status but")
		})
	}
	expectForbidden(t, patchedStatus(t, manager, claim, `{"metadata":{"annotations":{"other":"1"}}}`), metadata)
	in.grantRules(t, managerAccount, "claims",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"*"}})
	expectForbidden(t, manager.Delete(t.Context(), claim.DeepCopy()), "may delete no PersistentVolumeClaim")
}

// expectNoGrowth expects that the manager cannot change the size of a claim like this one, once it is bound. Everyone
// else may.
func (in installation) expectNoGrowth(t *testing.T, like *corev1.PersistentVolumeClaim) {
	t.Helper()
	class := &storagev1.StorageClass{Provisioner: "example.com/none", AllowVolumeExpansion: ptr.To(true)}
	class.Name = "growing"
	expectAllowed(t, in.admin.Create(t.Context(), class))
	claim := &corev1.PersistentVolumeClaim{Spec: like.Spec}
	claim.Namespace, claim.Name = like.Namespace, "bound"
	claim.Spec.StorageClassName, claim.Spec.VolumeName = ptr.To(class.Name), "pv"
	expectAllowed(t, in.admin.Create(t.Context(), claim))
	expectAllowed(t, patchedStatus(t, in.admin, claim, `{"status":{"phase":"Bound"}}`))
	const grow = `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`
	expectForbidden(t, patched(t, in.as(t, managerAccount), claim, grow),
		"may not change the spec of a PersistentVolumeClaim")
	expectAllowed(t, patched(t, in.admin, claim, grow))
}

func (in installation) testManagerIntents(t *testing.T) {
	intent := newIntent("managed", "node-a")
	intent.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	expectAllowed(t, in.admin.Create(t.Context(), intent))
	manager := in.as(t, managerAccount)
	const metadata = "nothing of a VolumeAttachmentIntent's metadata but"
	for name, c := range map[string]struct{ patch, message string }{
		"the desired state":       {`{"spec":{"desiredState":"Attached"}}`, "may not change the spec"},
		"whether it is read-only": {`{"spec":{"readOnly":true}}`, "may not change the spec"},
		"the detach policy":       {`{"spec":{"detachPolicy":{"forceAfter":"1m"}}}`, "ValidatingAdmissionPolicy"},
		"a label":                 {`{"metadata":{"labels":{"volumes.hawser.io/pod-uid":"1"}}}`, metadata},
		"an annotation":           {`{"metadata":{"annotations":{"a":"b"}}}`, metadata},
		"a foreign finalizer":     {`{"metadata":{"finalizers":["volumes.hawser.io/release","example.com/f"]}}`, metadata},
	} {
		t.Run(name, func(t *testing.T) { expectForbidden(t, patched(t, manager, intent, c.patch), c.message) })
	}
	const ofPods = "only the VolumeAttachmentIntents of pods"
	expectForbidden(t, manager.Delete(t.Context(), intent.DeepCopy()), ofPods)
	expectForbidden(t, manager.Create(t.Context(), newIntent("by-the-manager", "node-a")), ofPods)
	leaves := newIntent("leaves-with-its-node", "node-a")
	leaves.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionRelease
	expectForbidden(t, manager.Create(t.Context(), leaves.DeepCopy()), ofPods)
	expectAllowed(t, in.admin.Create(t.Context(), leaves))
	expectAllowed(t, manager.Delete(t.Context(), leaves))
	pod := newIntent("of-a-pod", "node-a")
	pod.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
	expectForbidden(t, manager.Create(t.Context(), pod.DeepCopy()), ofPods)
	pod.Spec.Publisher, pod.Spec.DesiredState = volumesv1alpha1.PublisherKubelet, volumesv1alpha1.DesiredAttached
	expectAllowed(t, manager.Create(t.Context(), pod))
	expectAllowed(t, manager.Delete(t.Context(), pod))
	inline := newIntent("of-an-inline-volume", "node-a")
	inline.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
	inline.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "2",
		Controller: ptr.To(true)}}
	expectForbidden(t, manager.Create(t.Context(), inline.DeepCopy()), ofPods)
	inline.OwnerReferences[0].UID = "1"
	expectAllowed(t, manager.Create(t.Context(), inline))
	expectAllowed(t, manager.Delete(t.Context(), inline))

	// It removes its finalizer once the volume is released.
	expectAllowed(t, in.admin.Delete(t.Context(), intent))
	expectAllowed(t, patched(t, manager, intent, `{"metadata":{"finalizers":null}}`))
}

// testManagerNodeStates tries what the manager may change of a node state's status.
func (in installation) testManagerNodeStates(t *testing.T) {
	state := newNodeState("managed-state")
	expectAllowed(t, in.admin.Create(t.Context(), state))
	expectAllowed(t, patchedStatus(t, in.admin, state, `{"status":{"bootID":"1","protocol":{"reports":1},
		"volumes":[{"volumeName":"v","inUse":true}]}}`))
	manager := in.as(t, managerAccount)
	write := func(change func(*volumesv1alpha1.NodeVolumeStateStatus)) error {
		written := newNodeState(state.Name)
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(written), written))
		change(&written.Status)
		return manager.Status().Update(t.Context(), written)
	}
	expectAllowed(t, write(func(s *volumesv1alpha1.NodeVolumeStateStatus) {
		s.Node.Unready = &volumesv1alpha1.UnreadyObservation{Transition: metav1.Now()}
		s.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
			Reason: volumesv1alpha1.ReasonAgentUnreachable, LastTransitionTime: metav1.Now()}}
	}))
	expectAllowed(t, write(func(s *volumesv1alpha1.NodeVolumeStateStatus) { s.Node.Unready = nil }))
	for name, change := range map[string]func(*volumesv1alpha1.NodeVolumeStateStatus){
		"a use":              func(s *volumesv1alpha1.NodeVolumeStateStatus) { s.Volumes[0].InUse = false },
		"every volume":       func(s *volumesv1alpha1.NodeVolumeStateStatus) { s.Volumes = nil },
		"a report's number":  func(s *volumesv1alpha1.NodeVolumeStateStatus) { s.Protocol.Reports++ },
		"the state observed": func(s *volumesv1alpha1.NodeVolumeStateStatus) { s.Protocol.ObservedUID = state.UID },
		"the boot":           func(s *volumesv1alpha1.NodeVolumeStateStatus) { s.BootID = "2" },
		"a member that was not there": func(s *volumesv1alpha1.NodeVolumeStateStatus) {
			s.Summary = &volumesv1alpha1.NodeVolumeSummary{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectForbidden(t, write(change), "nothing of a NodeVolumeState's status but node and conditions")
		})
	}
}

// testManagerConfigMaps tries the ConfigMap from which every pod of the namespace takes the certificate of the API
// server.
func (in installation) testManagerConfigMaps(t *testing.T) {
	const only = "the manager may write only the ConfigMaps hawser-exclusive-locks-*"
	root := in.newConfigMap("kube-root-ca.crt")
	expectAllowed(t, in.admin.Create(t.Context(), root))
	manager := in.as(t, managerAccount)
	expectForbidden(t, manager.Update(t.Context(), root.DeepCopy()), only)
	expectForbidden(t, manager.Create(t.Context(), in.newConfigMap("another")), only)
	locks := in.newLocks(volumesv1alpha1.ExclusiveLocksPrefix + "configmaps")
	expectAllowed(t, manager.Create(t.Context(), locks))
	expectAllowed(t, manager.Update(t.Context(), locks))
}
