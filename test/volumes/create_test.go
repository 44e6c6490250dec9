/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/pkg/volumes"
	"github.com/hawser-io/hawser/test/apiserver"
)

// everyField is an intent with a value in every field of its spec that an author may set beside a claim.
func everyField(name string) *volumesv1alpha1.VolumeAttachmentIntent {
	i := newIntent(name, "data")
	i.Spec.DesiredState, i.Spec.ReadOnly = volumesv1alpha1.DesiredStaged, true
	i.Spec.OnNodeDeletion = volumesv1alpha1.OnNodeDeletionRelease
	i.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: 90 * time.Minute}}
	i.Spec.Mount = &volumesv1alpha1.MountSpec{Options: []string{"noexec"}, FSGroup: new(int64(1000)), SubPath: "a/b",
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SELinuxOptions:      &corev1.SELinuxOptions{Level: "s0:c1,c2"}}
	return i
}

// What the API server stores is compared with what was asked for: with defaults of the API that the package does not
// have, the second creation of an intent would be refused.
func TestAnIntentCanBeCreatedAgain(t *testing.T) {
	config, c := apiserver.Borrow(t)
	client := newClient(t, config)
	for _, intent := range []*volumesv1alpha1.VolumeAttachmentIntent{newIntent("minimal", "data"), everyField("every")} {
		asked := intent.DeepCopy()
		first, err := client.Create(limited(t), intent)
		if err != nil {
			t.Fatalf("creating intent %s: %v", intent.Name, err)
		}
		first.Labels = map[string]string{"added": "since"}
		if err := c.Update(limited(t), first.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		again, err := client.Create(limited(t), intent)
		if err != nil || again.UID != first.UID || again.Labels["added"] == "" {
			t.Errorf("intent %s, created again: %v, %v; want the same intent, unchanged", intent.Name, again, err)
		}
		if diff := cmp.Diff(asked, intent); diff != "" {
			t.Errorf("the argument was changed (-before +after):\n%s", diff)
		}
	}
}

func TestAnIntentThatExistsOtherwiseIsNotChanged(t *testing.T) {
	config, c := apiserver.Borrow(t)
	client := newClient(t, config)
	existing := everyField("taken")
	create(t, c, existing)
	changes := map[string]func(i *volumesv1alpha1.VolumeAttachmentIntent){
		"spec.nodeName": func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.NodeName = "node-b" },
		"spec.volume": func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.Volume.PersistentVolumeClaim.ClaimName = "other"
		},
		"spec.desiredState":   func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = "" },
		"spec.readOnly":       func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = false },
		"spec.onNodeDeletion": func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.OnNodeDeletion = "" },
		"spec.detachPolicy":   func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DetachPolicy = nil },
		"spec.mount":          func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.Mount.SubPath = "a" },
		"metadata.ownerReferences": func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Cache", Name: "taken",
				UID: "another", Controller: new(true)}}
		},
	}
	for _, field := range slices.Sorted(maps.Keys(changes)) {
		t.Run(field, func(t *testing.T) {
			wanted := everyField("taken")
			changes[field](wanted)
			_, err := client.CreateAndWait(limited(t), wanted)
			if volumes.ReasonOf(err) != volumes.ReasonExists || !strings.HasSuffix(err.Error(), "differs in "+field) {
				t.Errorf("error %v, want %s because of %s", err, volumes.ReasonExists, field)
			}
		})
	}
	now := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := c.Get(limited(t), keyOf("taken"), now); err != nil || now.ResourceVersion != existing.ResourceVersion {
		t.Errorf("the intent is at version %s (%v), want %s as before", now.ResourceVersion, err, existing.ResourceVersion)
	}
}

func TestAnIntentThatIsBeingDeletedIsNotTakenForANewOne(t *testing.T) {
	config, c := apiserver.Borrow(t)
	leaving := newIntent("leaving", "data")
	leaving.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	create(t, c, leaving)
	if err := c.Delete(limited(t), leaving); err != nil {
		t.Fatal(err)
	}
	_, err := newClient(t, config).Create(limited(t), newIntent("leaving", "data"))
	if volumes.ReasonOf(err) != volumes.ReasonBeingDeleted {
		t.Errorf("error %v, want %s", err, volumes.ReasonBeingDeleted)
	}
}

func TestWhatTheAPIServerRefusesIsItsOwnError(t *testing.T) {
	config, _ := apiserver.Borrow(t)
	nowhere := newIntent("nowhere", "data")
	nowhere.Spec.NodeName = "Not A Node"
	if _, err := newClient(t, config).CreateAndWait(limited(t), nowhere); !apierrors.IsInvalid(err) {
		t.Errorf("error %v, want Invalid", err)
	}
}

func TestACreatorGetsTheIntentOnceItIsReady(t *testing.T) {
	config, c := apiserver.Borrow(t)
	ctx := limited(t)
	watches, ended := begin(t, config, func(client *volumes.Client) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
		return client.CreateAndWait(ctx, newIntent("new", "data"))
	})
	receive(t, watches, "the watch")
	notEnded(t, ended, "the intent was not Ready")
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := c.Get(ctx, keyOf("new"), i); err != nil {
		t.Fatal(err)
	}
	i.Status.Path = "/var/lib/hawser/published/default/new"
	observe(t, c, i, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Published", "")
	o := receive(t, ended, "the end of the wait")
	if o.err != nil || o.intent.Status.Path != i.Status.Path {
		t.Errorf("the wait ended with the intent %v and the error %v, want the path %s", o.intent, o.err, i.Status.Path)
	}
}

// Another intent of the same name may be for another node.
func TestACreatorDoesNotWaitForAnotherIntentOfTheSameName(t *testing.T) {
	config, c := apiserver.Borrow(t)
	ctx := limited(t)
	watches, ended := begin(t, config, func(client *volumes.Client) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
		return client.CreateAndWait(ctx, newIntent("replaced", "data"))
	})
	receive(t, watches, "the watch")
	if err := c.Delete(ctx, newIntent("replaced", "data")); err != nil {
		t.Fatal(err)
	}
	var deleted *volumes.Error
	if o := receive(t, ended, "the end of the wait"); !errors.As(o.err, &deleted) ||
		deleted.Reason != volumes.ReasonDeleted || deleted.Intent != keyOf("replaced") {
		t.Errorf("the wait ended with the intent %v and the error %v, want %s", o.intent, o.err, volumes.ReasonDeleted)
	}
}
