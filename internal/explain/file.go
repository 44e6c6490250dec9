/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"fmt"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// fileIntent reports what an intent from a file would meet. It has no conditions, so what the manager would find is
// found here: the rest of the walk has claim, volume, node and driver.
func (w *walk) fileIntent(v *facts.Volume) {
	intent, ref := v.Intent.Value, v.Intent.Ref
	if applied, ok := w.f.Applied.(*volumesv1alpha1.VolumeAttachmentIntent); ok {
		w.changed(ref, "nodeName", applied.Spec.NodeName, intent.Spec.NodeName)
		w.changed(ref, "volume", sourceName(applied), sourceName(intent))
		w.changed(ref, "publisher", publisher(applied), publisher(intent))
	}
	if !v.Volume.Found {
		return
	}
	pv := v.Volume.Value
	if v.Driver == "" {
		w.find(about{object: v.Volume.Ref, reason: volumesv1alpha1.ReasonVolumeNotSupported})
	}
	if volume.Mode(pv) == "Block" && intent.Spec.Mount != nil {
		w.find(about{object: ref, reason: volumesv1alpha1.ReasonVolumeModeMismatch})
	}
	if volume.SingleUser(pv) {
		for i := range v.Intents.Items {
			if other := &v.Intents.Items[i]; other.Name != intent.Name || other.Namespace != intent.Namespace {
				w.find(about{object: ref, reason: volumesv1alpha1.ReasonReadWriteOncePod, places: w.intentPlaces(v),
					detail: fmt.Sprintf("intent %s/%s has it", other.Namespace, other.Name)})
			}
		}
	}
}

// changed reports a field that the API server lets no update change.
func (w *walk) changed(ref facts.Ref, field, before, after string) {
	if before != after {
		w.find(about{object: ref, reason: catalog.FileChange,
			detail: fmt.Sprintf("spec.%s is %q in the cluster and %q in the file", field, before, after)})
	}
}

func sourceName(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	if source := intent.Spec.Volume.PersistentVolumeClaim; source != nil {
		return "claim " + source.ClaimName
	}
	if source := intent.Spec.Volume.PodVolume; source != nil {
		return "pod " + source.PodName + ", volume " + source.VolumeName
	}
	return "none"
}

func publisher(intent *volumesv1alpha1.VolumeAttachmentIntent) string {
	if intent.Spec.Publisher == "" {
		return string(volumesv1alpha1.PublisherAgent)
	}
	return string(intent.Spec.Publisher)
}

// NotAnalysed is the report about an object of a file whose kind is not analysed.
func NotAnalysed(ref facts.Ref, now time.Time) *Report {
	b := newBuilder(&facts.Facts{Now: now, Subject: ref, Installed: true})
	b.find(about{object: ref, reason: catalog.FileUnknown})
	b.conclude()
	return b.report
}
