/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
)

// A bind may be of an attachment before that of the record, or after it.
func TestARecordShowsNothingOfABindOfAnotherAttachment(t *testing.T) {
	a := &Agent{bootID: "boot", state: report.NewWriter(clock.RealClock{}, logr.Discard())}
	a.Uptime = func() time.Duration { return time.Minute }
	nvs := &volumesv1alpha1.NodeVolumeState{}
	nvs.Spec.Protocol.ConfirmedSession, nvs.Status.Protocol.Session = 7, 7
	nvs.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: "vol", AttachmentUID: "later",
		State: volumesv1alpha1.AttachmentAttached}}
	a.state.Assume(nvs, record.LastReport{Reports: 7})
	a.views.Store("vol", &record.Record{VolumeName: "vol", AttachmentUID: "recorded", InUse: true,
		Devices: []record.SeenDevice{{BootID: "boot"}}})
	for uid, same := range map[types.UID]bool{"recorded": true, "later": false} {
		b, p := record.PodBind{VolumeName: "vol", AttachmentUID: uid}, publishedIntents{a}
		if away, own := p.ForcedAway(b), p.OwnDevice(b); away != same || own != same {
			t.Errorf("bind of attachment %s: forced away %t, on a device of its own %t; want both: %t", uid, away, own, same)
		}
	}
}
