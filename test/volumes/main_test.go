/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/pkg/volumes"
	"github.com/hawser-io/hawser/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

const namespace = "default"

// limited is a context for what has to end in the test's time.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newClient is the client under test.
func newClient(t *testing.T, config *rest.Config) *volumes.Client {
	t.Helper()
	c, err := volumes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(limited(t), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

func newIntent(name, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node-a", Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}}},
	}
}

// observe writes a status of the intent's present spec with a condition.
func observe(t *testing.T, c client.Client, i *volumesv1alpha1.VolumeAttachmentIntent, kind string,
	value metav1.ConditionStatus, reason, message string) {
	t.Helper()
	i.Status.ObservedGeneration = i.Generation
	meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: kind, Status: value, Reason: reason,
		Message: message, ObservedGeneration: i.Generation})
	if err := c.Status().Update(limited(t), i); err != nil {
		t.Fatalf("writing the status of intent %s: %v", i.Name, err)
	}
}

func newClaim(name, volume string) *corev1.PersistentVolumeClaim {
	none := ""
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &none, VolumeName: volume,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func newVolume(name, group string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: name}},
		},
	}
	if group != "" {
		pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": group}
	}
	return pv
}
