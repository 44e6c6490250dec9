/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func (in installation) newLocks(name string) *corev1.ConfigMap {
	locks := in.newConfigMap(name)
	locks.Labels = map[string]string{volumesv1alpha1.ExclusiveLocksLabel: "true"}
	return locks
}

func (in installation) newConfigMap(name string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{Data: map[string]string{"locks.json": `{"writes": 1}`}}
	object.Namespace, object.Name = in.namespace, name
	return object
}

func (in installation) testExclusiveLocks(t *testing.T) {
	const message = "the locks of exclusive volumes"
	const name = volumesv1alpha1.ExclusiveLocksPrefix + "00"
	in.grantEverything(t, managerAccount)
	in.grantEverything(t, agentAccount)
	manager, agent := in.as(t, managerAccount), in.as(t, agentAccount, "node-a")
	locks := in.newLocks(name)

	for who, other := range map[string]client.Client{"an administrator": in.admin, "an agent": agent} {
		t.Run(who+" cannot create any", func(t *testing.T) {
			expectForbidden(t, other.Create(t.Context(), locks.DeepCopy()), name)
			expectForbidden(t, other.Create(t.Context(), in.newConfigMap(volumesv1alpha1.ExclusiveLocksPrefix+"01")),
				volumesv1alpha1.ExclusiveLocksPrefix+"01")
			expectForbidden(t, other.Create(t.Context(), in.newLocks("named-otherwise")), "named-otherwise")
		})
	}
	expectAllowed(t, manager.Create(t.Context(), locks))

	for who, other := range map[string]client.Client{"an administrator": in.admin, "an agent": agent} {
		t.Run(who+" cannot change any", func(t *testing.T) {
			moved := locks.DeepCopy()
			moved.Data["locks.json"] = `{"writes": 2}`
			expectForbidden(t, other.Update(t.Context(), moved), name)
			unmarked := locks.DeepCopy()
			unmarked.Labels = nil
			expectForbidden(t, other.Update(t.Context(), unmarked), name)
			expectForbidden(t, other.Delete(t.Context(), locks.DeepCopy()), name)
		})
	}
	ordinary := in.newConfigMap("ordinary")
	expectAllowed(t, in.admin.Create(t.Context(), ordinary))
	ordinary.Labels = locks.Labels
	expectForbidden(t, in.admin.Update(t.Context(), ordinary), message)
	expectAllowed(t, in.admin.Delete(t.Context(), ordinary))

	set := kubernetes.NewForConfigOrDie(in.config)
	err := set.CoreV1().ConfigMaps(in.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: volumesv1alpha1.ExclusiveLocksLabel})
	expectForbidden(t, err, message)

	elsewhere := in.newLocks(name)
	elsewhere.Namespace = "default"
	expectForbidden(t, in.admin.Create(t.Context(), elsewhere), message)

	locks.Data["locks.json"] = `{"writes": 2}`
	expectAllowed(t, manager.Update(t.Context(), locks))
	expectAllowed(t, manager.Delete(t.Context(), locks))
}
