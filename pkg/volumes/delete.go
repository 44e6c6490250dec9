/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// DeleteAndWait deletes the intent that has the name now, and returns once it is gone. It succeeds at once if there is
// none. Another intent that gets the name in the meantime is neither deleted nor waited for.
//
// An intent that had its volume staged or published is gone once its node has released the volume. The volume may still
// be attached then, and other intents may use it: an intent with the desired state Attached is gone at once. Whether a
// volume is still attached is in the VolumeAttachments and in the NodeVolumeState of the node.
//
// If ctx ends, the error is an *Error with what the release waits for, such as ReasonUsedByPods of the API. The intent
// is still being deleted then: the deletion cannot be undone. The other errors are those of the API server.
func (c *Client) DeleteAndWait(ctx context.Context, key types.NamespacedName) error {
	intents := c.Intents(key.Namespace)
	intent, err := intents.Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading VolumeAttachmentIntent %s, which is to be deleted: %w", key, err)
	}
	only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(intent.UID))}
	err = intents.Delete(ctx, key.Name, only)
	// Conflict: another intent has the name. The wait finds that.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting VolumeAttachmentIntent %s: %w", key, err)
	}
	_, err = c.wait(ctx, key, func(now *volumesv1alpha1.VolumeAttachmentIntent) (bool, *Error) {
		if now == nil || now.UID != intent.UID {
			return true, nil
		}
		return false, explain(now)
	})
	return err
}
