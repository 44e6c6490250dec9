/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

var publishStep = step{
	operation: "publish", event: eventFailedMount, logged: true, session: true, supersedes: []verb{doUnpublish},
	run: func(ctx context.Context, e *Environment, v *volume, f facts, intent types.UID) error {
		return e.publisher().publish(ctx, v, f, intent)
	},
}

// publisher publishes volumes.
type publisher struct{ *Environment }

// publish makes the staged volume usable at the intent's path.
func (a publisher) publish(ctx context.Context, v *volume, f facts, intent types.UID) error {
	u := v.record.use(intent)
	if err := refused(*u); err != nil {
		return err
	}
	if err := f.groupConflict(*u); err != nil {
		return err
	}
	d, err := a.driverOf(v)
	if err != nil {
		return err
	}
	if err := a.free(f, *u); err != nil {
		return err
	}
	secrets, err := a.secrets(ctx, f.entry.NodePublishSecretRef)
	if err != nil {
		return err
	}
	dirMode := os.FileMode(publishedDirMode)
	if u.Target != u.Path {
		dirMode = ownDirMode
	}
	if err := a.Mounts.EnsureDir(ctx, filepath.Dir(u.Target), dirMode); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	req := driver.PublishRequest{
		Volume: a.request(f), StagingPath: v.record.Stage.Path, TargetPath: u.Target, ReadOnly: u.ReadOnly, FSGroup: f.group(*u), Secrets: secrets,
	}
	if !v.record.block() {
		req.MountOptions = slices.Clone(f.entry.MountOptions)
		if u.Mount != nil {
			req.MountOptions = append(req.MountOptions, u.Mount.Options...)
		}
	}
	if err := a.mayPublish(ctx, v, u); err != nil {
		return err
	}
	if v.record.block() && !u.ReadOnly {
		if err := a.mayWrite(v, u); err != nil {
			return err
		}
	}
	before := *u
	u.asked(f.uses[intent], f.now.bootID)
	err = a.call(ctx, v, f, "publish", u.Target, func(ctx context.Context) error { return d.Publish(ctx, req) })
	switch {
	case err == nil:
		return a.published(ctx, v, f, u)
	case before.Phase == PhaseNone && !driver.IsUncertain(err) && a.nothingAt(u.Target):
		*u = before // a final error of the first call: nothing was done
	}
	return err
}

// mayPublish asks the protocol, with the intent read live: one that was released, or that nothing keeps until it is, must not be
// published any more.
func (a publisher) mayPublish(ctx context.Context, v *volume, u *Use) error {
	node := handshake.NodeOf(a.State.acknowledged(), v.name)
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	err := a.Live.Get(ctx, types.NamespacedName{Namespace: u.Intent.Namespace, Name: u.Intent.Name}, i)
	if err != nil && !apierrors.IsNotFound(err) {
		return &unwrittenError{fmt.Errorf("reading intent: %w", err)}
	}
	live := handshake.Intent{Exists: i.UID == u.Intent.UID, Deleting: !i.DeletionTimestamp.IsZero()}
	if g := (handshake.Protocol{}).MayPublish(node, v.record.AttachmentUID, live); g != handshake.GuardNone {
		return fmt.Errorf("publishing: refused by %s: %w", g, errAgain)
	}
	if !status.Finalized(i) {
		return fmt.Errorf("publishing: the intent has lost its finalizer: %w", errAgain)
	}
	return nil
}

// free says whether the published path is free for this use, or holds what an earlier call for it put there.
func (a publisher) free(f facts, u Use) error {
	occupied := func(by string) error {
		return problemf(volumesv1alpha1.ReasonPathOccupied, "%s stands at %s; it is left alone until somebody removes it", by, u.Path)
	}
	if f.uses[u.Intent.UID] == foreign {
		return occupied("another mount")
	}
	if u.Phase != PhaseNone {
		return nil
	}
	if f.uses[u.Intent.UID] != missing {
		return occupied("a mount")
	}
	info, err := os.Lstat(u.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking at published path: %w", err)
	case !info.IsDir():
		return occupied("a file")
	case u.Type == volumesv1alpha1.PublicationDevice:
		return occupied("a directory")
	}
	entries, err := os.ReadDir(u.Path)
	if err != nil {
		return fmt.Errorf("looking at published path: %w", err)
	}
	if len(entries) > 0 {
		return occupied("a directory that is not empty")
	}
	return nil
}

// published finishes what the driver has begun, and verifies before and after that it is the volume.
func (a publisher) published(ctx context.Context, v *volume, f facts, u *Use) error {
	e, err := a.verified(ctx, v, f, u, u.Target)
	if err != nil {
		return err
	}
	if u.Type == volumesv1alpha1.PublicationDevice {
		if u.Target != u.Path {
			if err := a.publishReadOnly(ctx, v, f, u); err != nil {
				return err
			}
			if e, err = a.verified(ctx, v, f, u, u.Path); err != nil {
				return err
			}
		}
		u.Device = a.deviceAt(ctx, u.Path).Path
	} else {
		if err := a.own(ctx, v, f, u); err != nil {
			return err
		}
		if u.Target != u.Path {
			if err := a.bindSubPath(ctx, u); err != nil {
				return err
			}
		}
		if e, err = a.verified(ctx, v, f, u, u.Path); err != nil {
			return err
		}
		u.Device = v.record.Stage.Device
	}
	if err := a.seeDevice(ctx, v, u.Path); err != nil {
		return err
	}
	u.Source = sourceOf(e)
	u.Phase = PhaseDone
	a.announcePublished(v, f, *u)
	return nil
}

// own gives the files to the intent's fsGroup, as the driver's policy has it.
func (a publisher) own(ctx context.Context, v *volume, f facts, u *Use) error {
	group := f.group(*u)
	if group == nil || f.mountsGroup {
		return nil
	}
	policy := corev1.FSGroupChangeAlways
	if u.Mount.FSGroupChangePolicy != nil {
		policy = *u.Mount.FSGroupChangePolicy
	}
	progress := func(files int) {
		a.Log.Info("setting the group of a volume's files takes long", "volume", v.name, "files", files)
	}
	if err := a.Mounts.SetOwnership(ctx, u.Target, *group, policy, progress); err != nil {
		return fmt.Errorf("setting fsGroup: %w", err)
	}
	a.Step("after ownership")
	return nil
}

// bindSubPath shows a part of the volume at the published path.
func (a publisher) bindSubPath(ctx context.Context, u *Use) error {
	part, err := a.Mounts.OpenBeneath(ctx, u.Target, u.Mount.SubPath)
	if err != nil {
		return fmt.Errorf("opening sub path %s: %w", u.Mount.SubPath, err)
	}
	defer part.Close() //nolint:errcheck // only looked through
	info, err := part.Stat()
	if err != nil {
		return fmt.Errorf("reading sub path: %w", err)
	}
	if !info.IsDir() {
		return problemf(volumesv1alpha1.ReasonSubPathInvalid, "sub path %s is not a directory", u.Mount.SubPath)
	}
	if err := a.Mounts.EnsureDir(ctx, u.Path, publishedDirMode); err != nil {
		return fmt.Errorf("making published path: %w", err)
	}
	if err := a.Mounts.BindFile(ctx, part, u.Path, u.ReadOnly, nil); err != nil {
		return fmt.Errorf("binding sub path: %w", err)
	}
	a.Step("after sub path")
	return nil
}

func (a publisher) announcePublished(_ *volume, f facts, u Use) {
	if i := f.intent(u.Intent.UID); i != nil {
		a.event(i, corev1.EventTypeNormal, eventMounted, "Publish", "published at "+u.Path)
	}
}

// verified returns what is mounted at path, one of the publication's two, once it is known to be the volume. What this publish
// has put there and is not the volume is taken away again.
func (a publisher) verified(ctx context.Context, v *volume, f facts, u *Use, path string) (mount.Entry, error) {
	table, err := a.Mounts.Table()
	if err != nil {
		return mount.Entry{}, err
	}
	e, mounted := table.At(path)
	if !mounted {
		return e, problemf(volumesv1alpha1.ReasonPublishFailed, "the driver reports success, but nothing is mounted at %s", path)
	}
	wrong := a.notVolume(ctx, v.record, table, path, e)
	switch {
	case wrong == nil:
		return e, nil
	case f.uses[u.Intent.UID] != missing && !errors.Is(wrong, errOwnDisk):
		return e, &problem{reason: volumesv1alpha1.ReasonPathOccupied, message: "what is mounted at the published path is left alone", err: wrong}
	}
	if v.record.Stage.Source == "" {
		v.record.Stage.Phase = PhaseUncertain // what the driver published from may have been a mount that is gone
	}
	return e, &problem{reason: volumesv1alpha1.ReasonPublishFailed, message: "what the driver published is not the volume",
		err: errors.Join(wrong, a.unpublisher().undoPublication(ctx, v, f, u))}
}
