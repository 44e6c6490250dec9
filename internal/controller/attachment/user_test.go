/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/intentstatus"
	"github.com/hawser-io/hawser/internal/handshake"
)

// single is a volume for a single user on node a, as a leader sees it whose cache shows these intents.
func single(names ...string) (*decision.Facts, *decision.Node) {
	n := on("a", wanted(names...))
	for _, i := range n.Wanted {
		i.Object.UID, i.Result.Pins.UniqueVolumeName = types.UID("uid-"+i.Object.Name), "v"
	}
	return &decision.Facts{
		Volume: "v", Driver: "d", VolumeHandle: "h", Exclusive: true, SingleUser: true, AttachRequired: true,
		Nodes: []*decision.Node{n},
	}, n
}

// stored are the intents of the facts as the API server has them.
func stored(facts ...*decision.Facts) (objects []client.Object) {
	for _, f := range facts {
		for _, i := range f.Nodes[0].Wanted {
			objects = append(objects, i.Object.DeepCopy())
		}
	}
	return objects
}

func TestOnlyOneOfTwoLeadersPinsItsIntentOfASingleUser(t *testing.T) {
	f1, n1 := single("x")
	f2, n2 := single("y")
	first, now := over(t, append(stored(f1, f2), reported("a"))...)
	second := &Controller{
		Client: first.Client, Reader: first.Reader, Writer: first.Writer, Tracker: first.Tracker, Clock: now,
		Locks: exclusive.New(first.Client, first.Reader, now, nil), ownWrites: ownWrites{clock: now},
	}
	for _, c := range []*Controller{first, second} {
		c.Reporter = &intentstatus.Reporter{Client: c.Client, Clock: now, Events: events.NewFakeRecorder(10)}
	}
	for _, o := range []client.Object{n1.Wanted[0].Object, n2.Wanted[0].Object} {
		if err := first.Reader.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, leader := range []struct {
		c *Controller
		f *decision.Facts
		n *decision.Node
	}{{first, f1, n1}, {second, f2, n2}} {
		if err := leader.c.createAttachment(t.Context(), leader.f, leader.n); err != nil {
			t.Fatal(err)
		}
		// What has only just begun is reported later.
		for range 2 {
			if _, err := leader.c.report(t.Context(), leader.f); err != nil {
				t.Fatal(err)
			}
			now.SetTime(now.Now().Add(time.Minute))
		}
	}
	var pinned []string
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := first.Reader.List(t.Context(), intents); err != nil {
		t.Fatal(err)
	}
	for i := range intents.Items {
		if intents.Items[i].Status.UniqueVolumeName != "" {
			pinned = append(pinned, intents.Items[i].Name)
		}
	}
	if !slices.Equal(pinned, []string{"x"}) {
		t.Errorf("intents pinned to a volume for a single user: %v, want x alone", pinned)
	}
}

// lockedFor is the lock of v as a store of its own writes it.
func lockedFor(t *testing.T, c *Controller, user exclusive.User) {
	t.Helper()
	lock, swapped, err := c.Locks.Swap(t.Context(), "v", exclusive.Lock{}, exclusive.Lock{Holder: "a", User: user})
	if err != nil || !swapped {
		t.Fatalf("writing the lock of volume v for user %q: swapped %t, %+v, error %v; want swapped", user.Name, swapped,
			lock, err)
	}
}

func TestTheLockPassesToAnotherUserOnlyOnceTheFirstIsGoneAndTheNodeIsFree(t *testing.T) {
	old := exclusive.User{Namespace: "default", Name: "x", UID: "uid-x"}
	for _, test := range []struct {
		name string
		user exclusive.User
		// change of what the API server has, and of what is known of the second intent.
		change  func(n *decision.Node, first *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState)
		there   bool
		taken   bool
		message string
	}{
		{name: "it is there, and the cache does not show it", user: old, there: true, message: "a single user"},
		{name: "it is gone", user: old, taken: true},
		{name: "another intent has its name", user: exclusive.User{Namespace: "default", Name: "x", UID: "uid-before"},
			there: true, taken: true},
		{name: "it was cut off, and its publication stays", user: old, message: "a single user",
			change: func(_ *decision.Node, _ *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "1", InUse: true}}
			}},
		{name: "a kubelet passes the volume from pod to pod", user: old, taken: true,
			change: func(n *decision.Node, _ *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState) {
				n.Wanted[0].Object.Spec.Publisher = volumesv1alpha1.PublisherKubelet
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{
					{VolumeName: "v", AttachmentUID: "1", InUse: true, PublishedBy: volumesv1alpha1.PublisherKubelet},
				}
			}},
		{name: "the kubelet uses what an intent is to use", user: old, message: "a single user",
			change: func(_ *decision.Node, _ *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{
					{VolumeName: "v", AttachmentUID: "1", InUse: true, PublishedBy: volumesv1alpha1.PublisherKubelet},
				}
			}},
		{name: "an older manager wrote no user, and the volume is free", taken: true},
		{name: "the kubelet's intent comes after one that an agent still publishes for", user: old, message: "a single user",
			change: func(n *decision.Node, _ *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState) {
				n.Wanted[0].Object.Spec.Publisher = volumesv1alpha1.PublisherKubelet
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "1", InUse: true}}
			}},
		{name: "it is pinned, and the lock names one that still has the volume", user: old, message: "a single user",
			change: func(n *decision.Node, _ *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState) {
				n.Wanted[0].Object.Status.UniqueVolumeName = "v"
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "1", InUse: true}}
			}},
		{name: "an older manager wrote no user, and pinned the intent that uses the volume", taken: true,
			change: func(n *decision.Node, _ *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState) {
				n.Wanted[0].Object.Status.UniqueVolumeName = "v"
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "1", InUse: true}}
			}},
		{name: "an older manager wrote no user, and another one uses the volume", message: "a single user",
			change: func(_ *decision.Node, _ *volumesv1alpha1.VolumeAttachmentIntent, nvs *volumesv1alpha1.NodeVolumeState) {
				nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "1", InUse: true}}
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, n := single("y")
			gone, _ := single("x")
			x, state := gone.Nodes[0].Wanted[0].Object, reported("a")
			if test.change != nil {
				test.change(n, x, state)
			}
			objects := []client.Object{state}
			if test.there {
				objects = append(objects, x)
			}
			c, _ := over(t, objects...)
			lockedFor(t, c, test.user)
			f.Lock = handshake.Lock{Exists: true, Holder: "a", User: test.user.UID}
			taken, err := c.takeLock(t.Context(), f, n)
			if err != nil || taken != test.taken || c.mayPin(f, n.Wanted[0]) != (test.taken || n.Wanted[0].Pinned()) {
				t.Errorf("lock of volume v for intent y: taken %t, intent may be pinned %t, error %v; want taken %t", taken,
					c.mayPin(f, n.Wanted[0]), err, test.taken)
			}
			if !test.taken && (n.Wait == nil || !strings.Contains(n.Wait.Message, test.message)) {
				t.Errorf("node a: wait %+v, want message %q", n.Wait, test.message)
			}
			lock, err := c.Locks.Read(t.Context(), "v")
			if err != nil || (lock.User.UID == "uid-y") != test.taken || lock.Holder != "a" {
				t.Errorf("lock of volume v: %+v, error %v; want holder a, user uid-y: %t", lock, err, test.taken)
			}
		})
	}
}

func TestTheWriteOfTheUserOfALockIsRetried(t *testing.T) {
	f, n := single("y")
	c, _ := over(t, append(stored(f), reported("a"))...)
	lockedFor(t, c, exclusive.User{})
	f.Lock = handshake.Lock{Exists: true, Holder: "a"}
	c.Locks.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return errDown },
	})
	if taken, err := c.takeLock(t.Context(), f, n); taken || !errors.Is(err, errDown) {
		t.Errorf("lock of volume v whose write fails: taken %t, error %v; want %v", taken, err, errDown)
	}
}

func TestTheLockDoesNotGoToAnotherNodeWhileItsUserIsThere(t *testing.T) {
	_, n := single("y")
	n.Name = "b"
	f := &decision.Facts{Volume: "v", Driver: "d", VolumeHandle: "h", Exclusive: true, SingleUser: true,
		Nodes: []*decision.Node{on("a"), n}}
	user, _ := single("x")
	c, _ := over(t, append(stored(user), reported("a"))...)
	lockedFor(t, c, exclusive.User{Namespace: "default", Name: "x", UID: "uid-x"})
	f.Lock = handshake.Lock{Exists: true, Holder: "a", User: "uid-x"}
	if taken, err := c.takeLock(t.Context(), f, n); taken || err != nil {
		t.Fatalf("lock of volume v, whose user x exists, for node b: taken %t, error %v; want neither", taken, err)
	}
	remove(t, c, stored(user)[0])
	n.Wait = nil
	if taken, err := c.takeLock(t.Context(), f, n); !taken || err != nil {
		t.Fatalf("lock of volume v, whose user x is gone, for node b: taken %t, error %v; want taken", taken, err)
	}
	lock, err := c.Locks.Read(t.Context(), "v")
	if err != nil || lock.Holder != "b" || lock.MovedFrom != "" || lock.User.UID != "uid-y" {
		t.Errorf("lock of volume v: %+v, error %v; want holder b, user uid-y and no move", lock, err)
	}
}

func TestTheLockDoesNotPassToAnAgentsIntentWhileTheNodeListsTheVolumeForPods(t *testing.T) {
	for _, listed := range []bool{true, false} {
		f, n := single("x")
		f.Replace = true
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node-uid"}}
		if listed {
			node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
		}
		c, _ := over(t, append(stored(f), reported("a"), node)...)
		lock := exclusive.Lock{Holder: "a", User: exclusive.User{Namespace: "default", Name: "gone", UID: "uid-gone"}}
		// The cache does not show the list yet.
		taken, err := c.takeLockUser(t.Context(), f, n, lock)
		refused := n.Wait != nil && n.Wait.Reason == volumesv1alpha1.ReasonReadWriteOncePod
		if err != nil || refused != listed || taken && listed || n.Lists.Attached != listed {
			t.Errorf("user of the lock on node a, Node lists volume v %t: taken %t, wait %+v, error %v; want it refused if "+
				"listed", listed, taken, n.Wait, err)
		}
	}
}
