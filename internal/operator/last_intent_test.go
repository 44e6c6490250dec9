/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator"
)

// TestIntentsThatOnlyShowWhatPodsUseGoWithoutDrain removes an installation that observes. The mark counts the intent of
// the user and not the one of a pod.
func TestIntentsThatOnlyShowWhatPodsUseGoWithoutDrain(t *testing.T) {
	s := newServer(t)
	s.kubectl(t, "apply", "-k", "overlays/observe")
	stop := s.run(t, operator.Options{Images: released, InitialSpec: s.initialSpec(t)})
	s.awaitMark(t, volumeManager, "", "cluster", "0")
	s.await(t, deployment, namespace, "hawser-manager", "it is installed", there)
	shows, user := newIntent("shows"), newIntent("user")
	shows.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "1"}
	shows.Spec.Publisher, shows.Spec.DesiredState = volumesv1alpha1.PublisherKubelet, volumesv1alpha1.DesiredAttached
	check(t, s.asManager(t).Create(t.Context(), shows))
	check(t, s.admin.Create(t.Context(), user))
	s.awaitMark(t, volumeManager, "", "cluster", "1")
	stop()
	s.kubectl(t, "label", "hvm", "cluster", volumesv1alpha1.InUseLabel+"-") // as if the user's intent came a moment later
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.run(t, operator.Options{Images: released})

	// The intent of the user is the user's to delete. Until then the installation works as before.
	s.awaitCondition(t, "Removed", "False", "VolumesInUse",
		"1 volume(s) on 1 node(s): node node-b, the volume of default/user (intent default/user). Release them, or set")
	s.args(t, deployment, "hawser-manager", "it still writes the intents of pods", func(args []string) bool {
		return slices.Contains(args, "--pod-intents=true")
	})
	check(t, s.admin.Delete(t.Context(), user))
	s.release(t, user)

	s.awaitCondition(t, "Removed", "False", "Draining", "waiting for the end of 1 intent(s) of pods")
	s.args(t, deployment, "hawser-manager", "it takes the intents of pods back", func(args []string) bool {
		return slices.Contains(args, "--pod-intents=false")
	})
	s.await(t, intentKind, "default", "shows", "the operator deletes it", func(o *unstructured.Unstructured) bool {
		return o.GetDeletionTimestamp() != nil
	})
	s.release(t, shows)
	s.awaitGone(t, volumeManager, "", "cluster", "nothing is left")
	s.expectNothingInstalled(t)
}

// TestAnIntentOfTheLastMomentIsReleased creates one when the operator has found nothing in use, and has deleted the
// policy that refuses it.
func TestAnIntentOfTheLastMomentIsReleased(t *testing.T) {
	s := newServer(t)
	last := newIntent("last")
	create := sync.OnceValue(func() error { return s.createOnceAccepted(t.Context(), last) })
	s.rights.after = func(request *http.Request, _ *http.Response) {
		if request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "policies/hawser-draining") {
			if err := create(); err != nil {
				t.Errorf("creating intent default/last once the policy hawser-draining is deleted: error %v, want none", err)
			}
		}
	}
	s.kubectl(t, "apply", "-k", "default")
	s.run(t, operator.Options{Images: released})
	s.awaitMark(t, volumeManager, "", "cluster", "0")
	pod := s.agentPod(t)
	s.kubectl(t, "delete", "hvm", "cluster", "--wait=false")
	s.awaitCondition(t, "Removed", "False", "StoppingPrograms", "pod hawser-agent-x on node node-a")
	s.await(t, binding, "", "hawser-draining", "new intents are refused without Drain too", there)
	s.awaitIntentsRefused(t)
	s.awaitInlinePodsRefused(t)
	check(t, s.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))

	s.awaitCondition(t, "Removed", "False", "VolumesInUse",
		"1 volume(s) on 1 node(s): node node-b, the volume of default/last (intent default/last)")
	s.await(t, deployment, namespace, "hawser-manager", "the manager comes back", there)
	s.await(t, binding, "", "hawser-hold", "the policies come back", there)
	s.awaitMark(t, crdKind, "", "volumeattachmentintents.volumes.hawser.io", "1")
	check(t, s.admin.Delete(t.Context(), last))
	s.release(t, last)
	s.awaitGone(t, volumeManager, "", "cluster", "the intent is released")
	s.expectNothingInstalled(t)
}

// createOnceAccepted waits until the API server does not apply a policy any more. That has no event.
func (s server) createOnceAccepted(ctx context.Context, intent client.Object) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			err := s.admin.Create(ctx, intent)
			if apierrors.IsForbidden(err) {
				return false, nil
			}
			return err == nil, err
		})
}
