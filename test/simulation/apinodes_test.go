/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func allQuestions() map[string]func(*asker) {
	all := maps.Clone(questions)
	maps.Copy(all, questionsOfNodes)
	return all
}

// questionsOfNodes are about Nodes and the pods on them.
var questionsOfNodes = map[string]func(*asker){
	"a patch of a Node's status takes its annotations along, at a version": func(a *asker) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "patched"}}
		a.done(a.c.Create(a.ctx, n))
		old := n.ResourceVersion
		patch := merge(`{"metadata":{"resourceVersion":"` + old + `","annotations":{"a":"1"}},` +
			`"spec":{"unschedulable":true},"status":{"volumesInUse":["v"],"volumesAttached":[{"name":"v","devicePath":""}]}}`)
		a.done(a.c.Status().Patch(a.ctx, n, patch))
		a.done(a.c.Get(a.ctx, client.ObjectKeyFromObject(n), n))
		a.is("1", n.Annotations["a"])
		a.is(1, len(n.Status.VolumesInUse))
		a.is(corev1.UniqueVolumeName("v"), n.Status.VolumesAttached[0].Name)
		a.is(false, n.Spec.Unschedulable)
		a.refused(a.c.Status().Patch(a.ctx, n.DeepCopy(), patch), apierrors.IsConflict)
		a.done(a.c.Status().Patch(a.ctx, n, merge(`{"status":{"volumesInUse":[]}}`)))
		a.is(0, len(n.Status.VolumesInUse))
	},
	"a pod that is bound to a node stays until it is deleted without grace": func(a *asker) {
		p := a.pod("graceful")
		a.done(a.c.Delete(a.ctx, p))
		a.done(a.c.Get(a.ctx, client.ObjectKeyFromObject(p), p))
		if p.DeletionTimestamp == nil {
			a.t.Fatal("pod graceful, deleted with grace, has no deletion time, want one")
		}
		ended := merge(`{"status":{"containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0}}}]}}`)
		a.done(a.c.Status().Patch(a.ctx, p, ended))
		a.done(a.c.Get(a.ctx, client.ObjectKeyFromObject(p), p))
		a.done(a.c.Delete(a.ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID}))
		a.refused(a.c.Get(a.ctx, client.ObjectKeyFromObject(p), p), apierrors.IsNotFound)
	},
	"a pod that is deleted with force is gone at once": func(a *asker) {
		p := a.pod("forced")
		a.done(a.c.Delete(a.ctx, p, client.GracePeriodSeconds(0)))
		a.refused(a.c.Get(a.ctx, client.ObjectKeyFromObject(p), p), apierrors.IsNotFound)
	},
}

// pod makes a pod that is bound to a node.
func (a *asker) pod(name string) *corev1.Pod {
	a.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: "node", Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
	}
	a.done(a.c.Create(a.ctx, p))
	return p
}
