/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// claim creates a claim of a class that waits for its first consumer, on the node.
func (w *world) claim(name, node string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	class := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: "small"},
		Provisioner:          driverName,
		Parameters:           map[string]string{"colour": "red", "csi.storage.k8s.io/fstype": "xfs"},
		AllowVolumeExpansion: ptr.To(true),
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	_, err := w.client.StorageV1().StorageClasses().Create(w.Context(), class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Annotations: map[string]string{"volume.kubernetes.io/selected-node": node},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("small"),
			VolumeMode:       &mode,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	if _, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.Context(), claim,
		metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return w.awaitClaim(name, "bound",
		func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

func (w *world) awaitClaim(name, what string,
	holds func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	w.Helper()
	var claim *corev1.PersistentVolumeClaim
	w.eventually("claim "+name+" "+what, func(ctx context.Context) (bool, error) {
		var err error
		claim, err = w.client.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && holds(claim), err
	})
	return claim
}

func (w *world) volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	w.Helper()
	volume, err := w.client.CoreV1().PersistentVolumes().Get(w.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return volume
}

// grow lets the resizer start with the larger claim. One that runs drops a claim whose volume its cache does not
// have yet, and takes it up again only at its resync, minutes later.
func (w *world) grow(claim, size string) {
	w.run("stop", "csi-resizer-"+driverName)
	defer w.run("start", "csi-resizer-"+driverName)
	patch := []byte(`{"spec":{"resources":{"requests":{"storage":"` + size + `"}}}}`)
	_, err := w.client.CoreV1().PersistentVolumeClaims("default").
		Patch(w.Context(), claim, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) volumeLives() {
	volume := w.volume(w.claim("data", "node-b", corev1.PersistentVolumeFilesystem))
	source := volume.Spec.CSI
	if source.FSType != "xfs" || source.VolumeAttributes["colour"] != "red" {
		w.Errorf("the class's parameters got lost: %+v", source)
	}
	term := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	if term.Key != topologyKey || term.Values[0] != "node-b" {
		w.Errorf("the volume was made for %v", term)
	}
	if asked := w.driver.request(source.VolumeHandle); asked.GetParameters()["csi.storage.k8s.io/fstype"] != "" {
		w.Error("a parameter of the provisioner's own was handed to the driver")
	}

	attachment := w.attach(volume.Name, "node-b")

	w.grow("data", "2Gi")
	claim := w.awaitClaim("data", "waiting for the node", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizePending
	})
	if got := resizeConditions(claim); !slices.Contains(got, "FileSystemResizePending") {
		w.Errorf("conditions of the claim: %v", got)
	}
	if size := w.volume(claim).Spec.Capacity.Storage(); size.String() != "2Gi" {
		w.Errorf("the volume's capacity is %s", size)
	}
	if size := claim.Status.Capacity.Storage(); size.String() != "1Gi" {
		w.Errorf("the claim has %s before the node did its part", size)
	}

	// Deleted while attached: the driver's volume must stay until the attachment is gone.
	refused := w.watchEvents(volume.Name, "VolumeFailedDelete")
	if err := w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.Context(), "data",
		metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	refused("is still attached to node node-b")
	if !w.driver.has(source.VolumeHandle) {
		w.Error("the volume was deleted while attached")
	}
	if err := w.client.StorageV1().VolumeAttachments().Delete(w.Context(), attachment,
		metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.volumeGoes(volume)
}

// attach lets the external attacher carry out an attachment.
func (w *world) attach(volume, node string) string {
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "attach-" + volume},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}
	if _,
		err := w.client.StorageV1().VolumeAttachments().Create(w.Context(), attachment, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.eventually("attached", func(ctx context.Context) (bool, error) {
		a, err := w.client.StorageV1().VolumeAttachments().Get(ctx, attachment.Name, metav1.GetOptions{})
		return err == nil && a.Status.Attached && a.Status.AttachmentMetadata["to"] == "id-of-"+node, err
	})
	return attachment.Name
}

// watchEvents returns a function that waits for an event of that reason about the volume, with the message.
func (w *world) watchEvents(volume, reason string) func(message string) {
	w.Helper()
	selector := fields.Set{"involvedObject.name": volume, "reason": reason}.String()
	events, err := w.client.CoreV1().Events("default").Watch(w.Context(), metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(events.Stop)
	return func(message string) {
		w.Helper()
		limit := time.NewTimer(time.Minute)
		defer limit.Stop()
		for {
			select {
			case event := <-events.ResultChan():
				if e, ok := event.Object.(*corev1.Event); ok && strings.Contains(e.Message, message) {
					return
				}
			case <-limit.C:
				w.Fatalf("no event %s about %s says %q", reason, volume, message)
			}
		}
	}
}

func (w *world) volumeGoes(volume *corev1.PersistentVolume) {
	w.Helper()
	w.eventually("volume deleted", func(ctx context.Context) (bool, error) {
		_, err := w.client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), client404(err)
	})
	if w.driver.has(volume.Spec.CSI.VolumeHandle) {
		w.Error("the driver still has the volume")
	}
}

// client404 returns all errors except not found.
func client404(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (w *world) blockVolumeGrows() {
	w.claim("device", "node-a", corev1.PersistentVolumeBlock)
	w.grow("device", "3Gi")
	claim := w.awaitClaim("device", "grown", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().String() == "3Gi"
	})
	if len(resizeConditions(claim)) != 0 || len(claim.Status.AllocatedResourceStatuses) != 0 {
		w.Errorf("something of the resize is left: %+v", claim.Status)
	}
	volume := w.volume(claim)
	if err := w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.Context(), "device",
		metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.volumeGoes(volume)
}

// resizeConditions omits the conditions that other components set on claims.
func resizeConditions(claim *corev1.PersistentVolumeClaim) []string {
	var kinds []string
	for _, condition := range claim.Status.Conditions {
		if strings.Contains(string(condition.Type), "Resiz") {
			kinds = append(kinds, string(condition.Type))
		}
	}
	return kinds
}
