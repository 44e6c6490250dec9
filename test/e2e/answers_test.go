/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// answers are the error codes of a driver, in a short run one for each thing that Hawser then does.
func answers(t *testing.T) []codes.Code {
	t.Helper()
	if testing.Short() {
		t.Log("LEFT OUT of a short run: codes that have the effect of another one")
		return []codes.Code{codes.InvalidArgument, codes.NotFound, codes.OutOfRange, codes.Internal, codes.Unavailable}
	}
	var all []codes.Code
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		all = append(all, c)
	}
	return all
}

// stage is a driver call to test: before prepares it, act causes it, after checks the result.
type stage struct {
	method string
	// reason that the intent then has.
	reason             string
	before, act, after func(v *volume)
	change             []func(*corev1.PersistentVolumeClaim)
	// done are answers that mean success; stalls are answers that no retry can fix.
	done, stalls []codes.Code
}

var stages = []stage{
	{method: "ControllerPublishVolume", reason: volumesv1alpha1.ReasonAttachFailed,
		act: (*volume).want, after: (*volume).isReady},
	{method: "NodeStageVolume", reason: volumesv1alpha1.ReasonStageFailed,
		act: (*volume).want, after: (*volume).isReady, stalls: invalid},
	{method: "NodePublishVolume", reason: volumesv1alpha1.ReasonPublishFailed,
		act: (*volume).want, after: (*volume).isReady, stalls: invalid},
	// A device grows without the capability that the kernel requires to grow a mounted ext4.
	{method: "NodeExpandVolume", reason: volumesv1alpha1.ReasonExpandFailed,
		before: (*volume).wantReady, act: (*volume).askMore, after: (*volume).hasGrown,
		change: []func(*corev1.PersistentVolumeClaim){asBlock}},
	// The intent is gone before the driver unpublishes, so the intent that waits on another node shows the error.
	{method: "ControllerUnpublishVolume", before: (*volume).wantReady, act: (*volume).move, after: (*volume).isReady,
		done: []codes.Code{codes.NotFound}},
	{method: "NodeUnpublishVolume", reason: volumesv1alpha1.ReasonUnpublishFailed,
		before: (*volume).wantReady, act: (*volume).drop, after: (*volume).isGone,
		done: []codes.Code{codes.NotFound}},
	{method: "NodeUnstageVolume", reason: volumesv1alpha1.ReasonUnstageFailed,
		before: (*volume).wantReady, act: (*volume).drop, after: (*volume).isGone,
		done: []codes.Code{codes.NotFound}},
}

var invalid = []codes.Code{codes.InvalidArgument, codes.Unimplemented}

// TestEveryAnswerOfEveryCallIsReportedAndOvercome makes each driver call fail with each code. The intent reports the
// driver's message. It recovers once the driver works again, or reports that no retry can help.
func TestEveryAnswerOfEveryCallIsReportedAndOvercome(t *testing.T) {
	t.Parallel()
	for _, s := range stages {
		t.Run(s.method, func(t *testing.T) {
			codes := answers(t)
			volumes := newVolumes(t, len(codes), s.change...)
			var group sync.WaitGroup
			for i, v := range volumes {
				group.Go(func() { s.play(v, codes[i]) })
			}
			group.Wait()
		})
	}
}

// play runs one volume through one answer. It runs concurrently with others, so it reports only with Errorf.
func (s stage) play(v *volume, code codes.Code) {
	v.what = s.method + " answers " + code.String()
	if s.before != nil {
		s.before(v)
	}
	words := fmt.Sprintf("injected failure of %s (%s)", v.name, code)
	fault := faults.Fault{Method: s.method, Action: faults.Error, Code: code, Message: words}
	if slices.Contains(s.done, code) {
		fault.Count = 1 // the next call belongs to another life of the volume
	}
	id := v.fault(fault)
	s.act(v)
	if !slices.Contains(s.done, code) {
		v.see(words, slices.Contains(s.stalls, code))
		if code == codes.Internal && s.reason != "" {
			v.explained(v.current, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return shows(i, words) }, s.reason)
		}
		v.removeFault(id)
	}
	if !slices.Contains(s.stalls, code) {
		s.after(v)
	}
	v.release(v.current)
}

// want requests the volume on a node.
func (v *volume) want() { v.current = v.intent(nodeA) }

func (v *volume) wantReady() { v.want(); v.isReady() }

func (v *volume) drop() { v.delete(v.current) }

// move releases the volume on one node and requests it on the other.
func (v *volume) move() {
	v.drop()
	v.current = v.intent(nodeB)
}

func (v *volume) askMore() { v.request("64Mi") }

// see waits until the intent has the driver's message, and Stalled if no retry can fix the error.
func (v *volume) see(words string, stalled bool) {
	v.expect(func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return intent != nil && shows(intent, words) &&
			(!stalled || meta.IsStatusConditionTrue(intent.Status.Conditions, volumesv1alpha1.ConditionStalled))
	})
}

func (v *volume) isReady() {
	v.expect(func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return system.Ready(intent) && intent.Status.LastError == nil
	})
}

func (v *volume) isGone() {
	v.expect(func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool { return intent == nil })
}

func (v *volume) hasGrown() {
	v.expect(func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return intent.Status.Capacity != nil && intent.Status.Capacity.Cmp(resource.MustParse("64Mi")) >= 0 &&
			system.Ready(intent)
	})
}

// expect waits until done is true of the present intent.
func (v *volume) expect(done func(*volumesv1alpha1.VolumeAttachmentIntent) bool) {
	if _, err := sys.AwaitIntent(limited(v.t), namespace, v.current, done); err != nil {
		v.t.Errorf("%s, intent %s: error %v, want the expected status", v.what, v.current, err)
	}
}

// shows reports whether an intent has the driver's message: in lastError with a count of attempts, or in Ready while it
// waits for a failure on another node.
func shows(intent *volumesv1alpha1.VolumeAttachmentIntent, words string) bool {
	if e := intent.Status.LastError; e != nil && strings.Contains(e.Message, words) && e.Attempts >= 1 {
		return true
	}
	return intent.Spec.NodeName == nodeB && strings.Contains(conditionOf(intent, volumesv1alpha1.ConditionReady), words)
}

// grow requests a larger claim and waits until the intent reports that the node sees it.
func (v *volume) grow(name, to string) {
	v.t.Helper()
	v.request(to)
	grown := resource.MustParse(to)
	v.await(name, func(intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return intent.Status.Capacity != nil && intent.Status.Capacity.Cmp(grown) >= 0 && system.Ready(intent)
	})
}

// request requests a larger claim.
func (v *volume) request(size string) {
	v.t.Helper()
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.name}}
	if err := sys.Client.Patch(limited(v.t), pvc, patch); err != nil {
		v.t.Errorf("requesting %s for claim %s/%s: %v", size, namespace, v.name, err)
	}
}
