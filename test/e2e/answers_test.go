/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// answers are all codes that a driver may answer with.
func answers() []codes.Code {
	var all []codes.Code
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		all = append(all, c)
	}
	return all
}

// TestEveryAnswerOfEveryCallIsToldAndOvercome lets each call of the driver fail once with each code:
// the intent says so, with the driver's own words, and gets over it by itself.
func TestEveryAnswerOfEveryCallIsToldAndOvercome(t *testing.T) {
	calls := []struct {
		method string
		play   func(v *volume, tell func(name string))
		change []func(*corev1.PersistentVolumeClaim)
	}{
		{method: "ControllerPublishVolume", play: untilReady},
		{method: "NodeStageVolume", play: untilReady},
		{method: "NodePublishVolume", play: untilReady},
		// A device grows without the capability that the kernel asks for to grow a mounted ext4.
		{"NodeExpandVolume", untilGrown, []func(*corev1.PersistentVolumeClaim){asBlock}},
		{method: "NodeUnpublishVolume", play: untilReleased},
		{method: "NodeUnstageVolume", play: untilReleased},
	}
	for _, call := range calls {
		for _, code := range answers() {
			t.Run(call.method+" answers "+code.String(), func(t *testing.T) {
				t.Parallel()
				v := newVolume(t, call.change...)
				words := fmt.Sprintf("the driver says no to %s (%s)", v.name, code)
				v.fault(faults.Fault{Method: call.method, Count: 1, Action: faults.Error, Code: code, Message: words})
				call.play(v, func(name string) {
					v.await(name, func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
						return intent != nil && tells(intent, words)
					})
				})
			})
		}
	}
}

// tells says whether an intent carries the driver's words in lastError with a count of attempts.
func tells(intent *volumesv1alpha1.VolumeAttachmentIntent, words string) bool {
	e := intent.Status.LastError
	return e != nil && strings.Contains(e.Message, words) && e.Attempts >= 1
}

func untilReady(v *volume, tell func(string)) {
	name := v.intent(nodeA)
	tell(name)
	intent := v.await(name, system.Ready)
	if intent.Status.LastError != nil {
		v.t.Errorf("Ready with an error left: %+v", intent.Status.LastError)
	}
}

func untilReleased(v *volume, tell func(string)) {
	name := v.intent(nodeA)
	v.ready(name)
	v.delete(name)
	tell(name)
	if err := sys.AwaitGone(limited(v.t), namespace, name); err != nil {
		v.t.Error(err)
	}
}

func untilGrown(v *volume, tell func(string)) {
	name := v.intent(nodeA)
	v.ready(name)
	v.grow(name, "64Mi", func() { tell(name) })
}

// grow asks for a larger claim and waits until the intent says that the node sees it.
func (v *volume) grow(name, to string, meanwhile func()) {
	v.t.Helper()
	grown := resource.MustParse(to)
	pvc := &corev1.PersistentVolumeClaim{}
	ctx := limited(v.t)
	if err := sys.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v.name}, pvc); err != nil {
		v.t.Fatal(err)
	}
	before := pvc.DeepCopy()
	pvc.Spec.Resources.Requests[corev1.ResourceStorage] = grown
	if err := sys.Client.Patch(ctx, pvc, client.MergeFrom(before)); err != nil {
		v.t.Fatal(err)
	}
	meanwhile()
	v.await(name, func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return intent.Status.Capacity != nil && intent.Status.Capacity.Cmp(grown) >= 0 && system.Ready(intent)
	})
}
