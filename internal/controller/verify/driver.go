/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Reasons of events. The last two are also reasons of a condition.
const (
	// ReasonAttachmentLost: the driver does not list an attached volume as published.
	ReasonAttachmentLost = "AttachmentLost"
	// ReasonUnexpectedPublication: the driver lists a volume as published that nothing of the cluster attached.
	ReasonUnexpectedPublication = volumesv1alpha1.ReasonUnexpectedPublication
	// ReasonVerificationFailed: the driver cannot be asked.
	ReasonVerificationFailed = volumesv1alpha1.ReasonVerificationFailed
)

// longestPause bounds how many verifications are let go by before an attachment that the driver goes on not listing
// is attached again once more.
const longestPause = 64

// driver is one driver and what was found at the verification before.
type driver struct {
	*Verifier
	name   string
	plugin interface {
		list(ctx context.Context) (listing, error)
	}
	log logr.Logger

	// known are the attachments that the last verification saw. A newer one may not be listed yet.
	known map[types.UID]bool
	// mended are those that were attached again and that the driver has not listed since. It is kept while the driver is
	// away.
	mended map[types.UID]*mended
	// unexpected publications; true for those that were reported.
	unexpected map[publication]bool
	// failure is what was last reported of a driver that cannot be asked; empty when it could be.
	failure string
	// passes that succeeded in a row, and that failed in a row.
	passes, failures int
	// onNodes are the unexpected publications that were found twice, by node.
	onNodes map[string][]string
}

// mended is an attachment that the driver did not list.
type mended struct {
	// times that it was attached again for that, and the verifications to let go by before the next.
	times, pause int
}

// verify is one verification. What fails is tried again at the next.
func (d *driver) verify(ctx context.Context) {
	err := d.pass(ctx)
	if ctx.Err() != nil {
		return
	}
	d.tellFailure(err)
	d.note(err)
}

// note what this verification found for the conditions of the nodes. It takes two to find an unexpected publication,
// and two failures to be one.
func (d *driver) note(err error) {
	if err != nil {
		d.passes, d.failures, d.onNodes = 0, d.failures+1, nil
	} else {
		d.passes, d.failures = d.passes+1, 0
	}
	found := Finding{Settled: d.passes > 1, Unexpected: d.onNodes}
	if d.failures > 1 {
		// The first failure: the message does not change from one to the next.
		found.Failure = d.failure
	}
	d.Findings.set(d.name, found)
}

func (d *driver) pass(ctx context.Context) error {
	before, err := d.snapshot(ctx)
	if err != nil {
		return err
	}
	volumes, err := d.plugin.list(ctx)
	if err != nil {
		return err
	}
	after, err := d.snapshot(ctx)
	if err != nil {
		return err
	}
	missing := d.due(before, lost(before, volumes))
	d.remember(before)
	d.report(ctx, after, unexpected(before, after, volumes))
	for _, a := range missing {
		if err := d.mend(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// due are those of the lost attachments that are to be attached again now: not those that are new, which the driver
// may not list yet, and less and less often those that it does not list although they were.
func (d *driver) due(s *snapshot, missing []attachment) []attachment {
	lost := map[types.UID]bool{}
	for _, a := range missing {
		lost[a.uid] = true
	}
	for _, a := range s.attached {
		if !lost[a.uid] {
			delete(d.mended, a.uid)
		}
	}
	maps.DeleteFunc(d.mended, func(uid types.UID, _ *mended) bool { return !s.uids[uid] })
	var due []attachment
	for _, a := range missing {
		m := d.mended[a.uid]
		switch {
		case !d.known[a.uid]:
		case m != nil && m.pause > 0:
			m.pause--
		default:
			due = append(due, a)
		}
	}
	return due
}

func (d *driver) remember(s *snapshot) {
	d.known = make(map[types.UID]bool, len(s.attached))
	for _, a := range s.attached {
		d.known[a.uid] = true
	}
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments/status,verbs=patch

// mend makes the driver's attacher attach the volume again, if the attachment, read live, is still as it was. The
// entry in the NodeVolumeState and every mount stay; docs/decisions/0006 says why this one field is written here.
func (d *driver) mend(ctx context.Context, a attachment) error {
	va := &storagev1.VolumeAttachment{}
	err := d.Reader.Get(ctx, client.ObjectKey{Name: a.name}, va)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading attachment %s: %w", a.name, err)
	case va.UID != a.uid || !standing(va):
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": va.UID, "resourceVersion": va.ResourceVersion},
		"status":   map[string]any{"attached": false},
	})
	if err != nil {
		return fmt.Errorf("encoding the change of attachment %s: %w", a.name, err)
	}
	err = d.Client.Status().Patch(ctx, va, client.RawPatch(types.MergePatchType, body))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // another writer was first: the next verification checks again
	}
	if err != nil {
		return fmt.Errorf("marking attachment %s: %w", a.name, err)
	}
	d.tellLost(ctx, a, va)
	return nil
}

func (d *driver) tellLost(ctx context.Context, a attachment, va *storagev1.VolumeAttachment) {
	m := d.mended[a.uid]
	if m == nil {
		m = &mended{}
		if d.mended == nil {
			d.mended = map[types.UID]*mended{}
		}
		d.mended[a.uid] = m
	}
	m.times++
	m.pause = min(1<<m.times, longestPause)
	lostPublications.WithLabelValues(d.name).Inc()
	note := ""
	if m.times > 1 {
		note = fmt.Sprintf(
			" This is the %d. time: either something keeps detaching it, or the driver does not list what it has published.",
			m.times)
	}
	message := fmt.Sprintf("the driver does not list %s as published to node %s, "+
		"where VolumeAttachment %s says it is attached: "+
		"it was detached, not by Hawser, and is attached again.%s", a.volume, a.node, a.name, note)
	d.log.Info("attaching again what the driver does not list", "volume", a.volume, "node", a.node, "attachment", a.name,
		"times", m.times)
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: a.node}, nvs); err == nil {
		d.Events.Eventf(nvs, va, corev1.EventTypeWarning, ReasonAttachmentLost, "Verify", "%s", message)
	}
}

// report reports publications that two verifications in a row found, once each.
func (d *driver) report(ctx context.Context, s *snapshot, found map[publication]bool) {
	count := 0
	told := maps.Clone(found)
	d.onNodes = map[string][]string{}
	for p := range found {
		was, known := d.unexpected[p]
		told[p] = known
		if known {
			count++
			d.onNodes[s.nodes[p.id]] = append(d.onNodes[s.nodes[p.id]], p.handle)
		}
		if known && !was {
			d.tellUnexpected(ctx, s, p)
		}
	}
	for _, handles := range d.onNodes {
		slices.Sort(handles)
	}
	d.unexpected = told
	unexpectedPublications.WithLabelValues(d.name).Set(float64(count))
}

func (d *driver) tellUnexpected(ctx context.Context, s *snapshot, p publication) {
	message := fmt.Sprintf(
		"driver %s lists volume %s as published to node %s, and there is no VolumeAttachment for that; it is left as it is",
		d.name, p.handle, p.id,
	)
	d.log.Info(
		"the driver has published what nothing attached", "volumeHandle", p.handle, "nodeID", p.id, "node", s.nodes[p.id],
	)
	var about client.Object = &volumesv1alpha1.NodeVolumeState{}
	name := s.nodes[p.id]
	if name == "" {
		about, name = &corev1.PersistentVolume{}, s.volumes[p.handle]
	}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: name}, about); err == nil {
		d.Events.Eventf(about, nil, corev1.EventTypeWarning, ReasonUnexpectedPublication, "Verify", "%s", message)
	}
}

// tellFailure reports once a driver that cannot be asked, and once that it can be again.
func (d *driver) tellFailure(err error) {
	if err == nil {
		if d.failure != "" {
			d.log.Info("verifying again")
		}
		d.failure = ""
		verifications.WithLabelValues(d.name, "success").Inc()
		return
	}
	verifications.WithLabelValues(d.name, "failure").Inc()
	// What was found before is too old to act on.
	d.known, d.unexpected = nil, nil
	if d.failure != "" {
		d.log.V(1).Info("still not verifying", "reason", err.Error())
		return
	}
	d.failure = err.Error()
	d.log.Error(err, "not verifying: attachments are taken from the VolumeAttachments alone")
	about := &corev1.ObjectReference{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "CSIDriver", Name: d.name}
	d.Events.Eventf(about, nil, corev1.EventTypeWarning, ReasonVerificationFailed, "Verify",
		"what driver %s has published is not verified: %v", d.name, err)
}
