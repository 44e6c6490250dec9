/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/internal/status"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list;create;delete
// +kubebuilder:rbac:groups=volumes.hawser.io,resources=volumeattachmentintents,verbs=create

// probe is the name of what a dry run would create.
const probe = "hawser-policy-probe"

// trial is what a try needs.
type trial struct {
	// dryRun changes nothing, reader is the cache.
	dryRun client.Client
	reader client.Reader
	// names that the policy has in this cluster: an overlay may have changed them.
	names []string
}

// errNotInForce: the answer shows that the policy does not work.
var errNotInForce = errors.New("it does not act on a dry run of what it is for")

// expectRefused returns nil where err is the policy's own refusal. One that cannot be evaluated refuses too, as
// Invalid.
func (t trial) expectRefused(err error) error {
	switch {
	case err == nil:
		return errNotInForce
	case apierrors.IsForbidden(err) && slices.ContainsFunc(t.names, func(name string) bool {
		return strings.Contains(err.Error(), fmt.Sprintf("ValidatingAdmissionPolicy '%s'", name))
	}):
		return nil
	}
	return fmt.Errorf("the dry run failed: %w", err)
}

// tryHold tries to create an attachment that is held and, where there is one, to delete one that is.
func tryHold(ctx context.Context, t trial) error {
	if err := t.expectRefused(t.dryRun.Create(ctx, attachment())); err != nil {
		return err
	}
	list := &storagev1.VolumeAttachmentList{}
	if err := t.reader.List(ctx, list); err != nil {
		return fmt.Errorf("listing attachments: %w", err)
	}
	for i := range list.Items {
		va := &list.Items[i]
		if _, held := va.Annotations[volumesv1alpha1.HoldAnnotation]; !held || !va.DeletionTimestamp.IsZero() {
			continue
		}
		shown := client.Preconditions{UID: ptr.To(va.UID), ResourceVersion: ptr.To(va.ResourceVersion)}
		err := t.dryRun.Delete(ctx, va, shown)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			// It is not what the cache shows any more.
			continue
		}
		return t.expectRefused(err)
	}
	return nil
}

// tryFinalizer tries whether an intent gets its finalizer when it is created.
func tryFinalizer(ctx context.Context, t trial) error {
	object := intent()
	if err := t.dryRun.Create(ctx, object); err != nil {
		return fmt.Errorf("the dry run failed: %w", err)
	}
	if !status.Finalized(object) {
		return errNotInForce
	}
	return nil
}

func attachment() *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: probe, Annotations: map[string]string{volumesv1alpha1.HoldAnnotation: "probe"}},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "probe.volumes.hawser.io", NodeName: probe,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(probe)},
		},
	}
}

func intent() *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: probe},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: probe,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: probe},
			},
		},
	}
}
