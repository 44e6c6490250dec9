/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestADirectoryShowsWhatIsSelectedAndTakesAwayOnlyWhatIsKnownToGo(t *testing.T) {
	db := labels.SelectorFromSet(labels.Set{"app": "db"})
	labelled := func(value string) *volumesv1alpha1.VolumeAttachmentIntent {
		return intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Labels = map[string]string{"app": value} })
	}
	deleted := labelled("db")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	ofPod := labelled("db")
	ownedBy("uid-2", "data")(ofPod)
	ofPod.Labels["app"] = "db"
	published, bind := &Publication{AttachmentUID: "uid-1"}, &record.PodBind{AttachmentUID: "uid-1"}
	for name, c := range map[string]struct {
		facts placeFacts
		want  act
	}{
		"published and selected":       {placeFacts{selector: db, intent: labelled("db"), published: published}, show},
		"selected, not yet published":  {placeFacts{selector: db, intent: labelled("db")}, leave},
		"published under other labels": {placeFacts{selector: db, intent: labelled("web"), published: published}, leave},
		"published for a pod's claim":  {placeFacts{selector: db, intent: ofPod, published: published}, leave},
		"no intent":                    {placeFacts{selector: db}, leave},
		"shown, as it is to be": {placeFacts{selector: db, intent: labelled("db"), published: published, bind: bind,
			mounted: true}, leave},
		"shown, and not published for the moment": {placeFacts{selector: db, intent: labelled("db"), bind: bind,
			mounted: true}, leave},
		"shown, and its intent is not there": {placeFacts{selector: db, bind: bind, mounted: true}, leave},
		"shown by a directory whose record was lost": {placeFacts{intent: labelled("web"), bind: bind, mounted: true},
			leave},
		"shown and relabelled": {placeFacts{selector: db, intent: labelled("web"), published: published, bind: bind,
			mounted: true}, takeAway},
		"shown and deleted": {placeFacts{selector: db, intent: deleted, bind: bind, mounted: true}, takeAway},
		"shown, of an earlier attachment": {placeFacts{selector: db, intent: labelled("db"),
			published: &Publication{AttachmentUID: "uid-2"}, bind: bind, mounted: true}, takeAway},
		"shown and forced away": {placeFacts{selector: db, intent: labelled("db"), bind: bind, mounted: true,
			forcedAway: true}, takeAway},
		"recorded, and nothing is mounted": {placeFacts{selector: db, intent: labelled("db"), published: published,
			bind: bind}, takeAway},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(c.facts); got != c.want {
				t.Errorf("place of an intent that is %s: %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestADirectoryIsRefusedWhereItCannotBeUsed(t *testing.T) {
	receives := corev1.VolumeMount{Name: "disks", MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)}
	with := func(mount corev1.VolumeMount, change func(*corev1.PodSpec)) *corev1.Pod {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
			VolumeMounts: []corev1.VolumeMount{{Name: "other", SubPath: "part"}, mount}}}}}
		if change != nil {
			change(&pod.Spec)
		}
		return pod
	}
	group := func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](1)} }
	users := func(hosts bool) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.HostUsers = ptr.To(hosts) }
	}
	reader := receives
	reader.ReadOnly = true
	part, expr, deaf, none := receives, receives, receives, receives
	part.SubPath, expr.SubPathExpr = "db", "$(NAME)"
	deaf.MountPropagation, none.MountPropagation = nil, ptr.To(corev1.MountPropagationNone)
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		readOnly bool
		problem  string
		deaf     []string
	}{
		"that receives mounts":                {with(receives, nil), false, "", nil},
		"that receives none":                  {with(deaf, nil), false, "", []string{"main"}},
		"that mounts it read-only":            {with(reader, nil), false, "with readOnly", nil},
		"that mounts it read-only, and it is": {with(reader, nil), true, "", nil},
		"that asks for none":                  {with(none, nil), false, "", []string{"main"}},
		"with a sub path":                     {with(part, nil), false, "subPath", nil},
		"with a sub path from its name":       {with(expr, nil), false, "subPath", nil},
		"with users of its own":               {with(receives, users(false)), true, "hostUsers", nil},
		"with the users of its host":          {with(receives, users(true)), false, "", nil},
		"with a group for all files":          {with(receives, group), false, "fsGroup", nil},
		"with a group, and it reads only":     {with(receives, group), true, "", nil},
		"whose init container has no part": {with(receives, func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init"}}
		}), false, "", nil},
		"whose init container is deaf": {with(receives, func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init", VolumeMounts: []corev1.VolumeMount{deaf, deaf}}}
		}), false, "", []string{"init"}},
		"with a sub path for debugging": {with(receives, func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", VolumeMounts: []corev1.VolumeMount{part}}}}
		}), false, "container debug", nil},
	} {
		t.Run(name, func(t *testing.T) {
			problem, deaf := examine(c.pod, "disks", c.readOnly)
			if (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) || !slices.Equal(deaf, c.deaf) {
				t.Errorf("pod %s: problem %q, deaf containers %v; want %q, %v", name, problem, deaf, c.problem, c.deaf)
			}
		})
	}
}

func TestTheMirrorOfAStaticPodIsThePod(t *testing.T) {
	wanted := record.PodReference{UID: "hash"}
	mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{
		corev1.MirrorPodAnnotationKey: "hash"}}}
	for pod, want := range map[*corev1.Pod]bool{mirror: true, {ObjectMeta: metav1.ObjectMeta{UID: "hash"}}: true,
		{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}: false} {
		if got := isPod(pod, wanted); got != want {
			t.Errorf("pod %+v is the one with UID hash: %t, want %t", pod.ObjectMeta, got, want)
		}
	}
}

// slowIntents answers no question about an intent before it is released.
type slowIntents struct {
	intents
	asked, released chan struct{}
}

func (i slowIntents) Cached(context.Context, types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	close(i.asked)
	<-i.released
	return nil, errors.New("not known")
}

func TestThePluginServesUntilThePlacesThatACallBeganAreReconciled(t *testing.T) {
	n, slow := newNode(t, intents{}), slowIntents{asked: make(chan struct{}), released: make(chan struct{})}
	var enqueued atomic.Bool
	n.Intents, n.Enqueue = slow, func(Place) { enqueued.Store(true) }
	if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
		t.Fatal(err)
	}
	directory := record.PodBind{Target: "/pods/directory", Directory: "/pods/directory", Selector: "app=web"}
	if err := n.Pods.Add(directory, false); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	conn := dial(t, n.socket())
	if _, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	call, cancel := context.WithCancel(t.Context())
	cancel()
	directories{n.Plugin}.showFirst(call, []Place{{Directory: directory.Target, Intent: "data"}})
	<-slow.asked
	end()
	conn.WaitForStateChange(t.Context(), connectivity.Ready) // the server stops
	close(slow.released)
	if err := <-ended; err != nil || !enqueued.Load() {
		t.Errorf("Serve returned %v, the reconcile has ended: %t; want that Serve waits for it", err, enqueued.Load())
	}
}
