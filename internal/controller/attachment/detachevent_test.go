/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// recorder keeps what is recorded.
type recorder struct{ events []recorded }

type recorded struct {
	related    runtime.Object
	kind, note string
}

func (r *recorder) Eventf(_, related runtime.Object, kind, _, _, note string, args ...any) {
	r.events = append(r.events, recorded{related, kind, fmt.Sprintf(note, args...)})
}

// name every volume that is being detached in a version of a node's state.
func (r *recorder) tell(
	c *Controller, version string, evidence volumesv1alpha1.EvidenceType, volumes ...string,
) []recorded {
	nvs := reported("a")
	nvs.ResourceVersion = version
	for _, v := range volumes {
		nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
			VolumeName: v, AttachmentName: "va-" + v, State: volumesv1alpha1.AttachmentDetaching,
			Evidence: &volumesv1alpha1.DetachEvidence{Type: evidence, Message: "because", Unprotected: true},
		})
	}
	for i := range volumes {
		c.announceDetach(nvs, &nvs.Spec.Attachments[i])
	}
	events := r.events
	r.events = nil
	return events
}

func TestReleasedVolumesThatWereWrittenTogetherShareAnEvent(t *testing.T) {
	r := &recorder{}
	c := &Controller{Events: r}
	got := r.tell(c, "1", volumesv1alpha1.EvidenceAgentReleased, "v1", "v2", "v3")
	if len(got) != 1 || got[0].kind != corev1.EventTypeNormal || !strings.HasSuffix(got[0].note, ": v1, v2, v3") {
		t.Errorf("events of one write: %+v, want one Normal that names v1, v2 and v3", got)
	}
	if got := r.tell(c, "2", volumesv1alpha1.EvidenceAgentReleased, "v4"); len(got) != 1 ||
		!strings.HasSuffix(got[0].note, ": v4") {
		t.Errorf("events of the next write: %+v, want one that names v4", got)
	}
}

func TestEachForcedDetachHasAnEventOfItsOwn(t *testing.T) {
	r := &recorder{}
	got := r.tell(&Controller{Events: r}, "1", volumesv1alpha1.EvidenceOutOfServiceTaint, "v1", "v2")
	if len(got) != 2 {
		t.Fatalf("events of two forced detaches: %+v, want 2", got)
	}
	for i, volume := range []string{"v1", "v2"} {
		related, ok := got[i].related.(*corev1.ObjectReference)
		if !ok || related.Name != "va-"+volume || got[i].kind != corev1.EventTypeWarning ||
			!strings.HasPrefix(got[i].note, "detaching "+volume+" on evidence OutOfServiceTaint: because; unprotected") {
			t.Errorf("event of the forced detach of volume %s: %+v, want a Warning about va-%s that it is unprotected", volume,
				got[i], volume)
		}
	}
}
