/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"cmp"
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
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
	"github.com/hawser-io/hawser/internal/status"
)

var publishStep = step{
	operation: "publish", event: eventFailedMount, logged: true, session: true, perIntent: true, seeded: true,
	follows: []plan.Kind{plan.MarkInUse, plan.Stage}, supersedes: []plan.Kind{plan.Unpublish, plan.SetOwnership},
	inputs: otherInputs,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, intent types.UID) error {
		return env.Publish(ctx, v, f, intent)
	},
}

// Publish makes the staged volume usable at the intent's path.
func (env *Environment) Publish(ctx context.Context, v *Volume, f plan.Facts, intent types.UID) error {
	u := v.Record.UseOf(intent)
	if err := plan.Refused(*u); err != nil {
		return err
	}
	if err := cmp.Or(f.GroupConflict(*u), f.LabelRefused(*u), f.LabelConflict(*u)); err != nil {
		return err
	}
	d, err := env.driverOf(v)
	if err != nil {
		return err
	}
	if err := env.checkPath(f, *u); err != nil {
		return err
	}
	if env.Examine(ctx, v, v.Record) {
		return fmt.Errorf("publishing: the volume is sick: %w", failure.ErrChanged)
	}
	secrets, err := env.secrets(ctx, f.VolumeSource().PublishSecret)
	if err != nil {
		return err
	}
	dirMode := os.FileMode(PublishedDirMode)
	if u.Target != u.Path {
		dirMode = OwnDirMode
	}
	if err := env.Mounts.EnsureDir(ctx, filepath.Dir(u.Target), dirMode); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	req := driver.PublishRequest{
		Volume: env.request(f), StagingPath: v.Record.Stage.Path, TargetPath: u.Target, ReadOnly: u.ReadOnly,
		FSGroup: f.Group(*u), Secrets: secrets,
	}
	if !v.Record.Block() {
		req.MountOptions = slices.Clone(f.VolumeSource().MountOptions)
		if u.Mount != nil {
			req.MountOptions = append(req.MountOptions, u.Mount.Options...)
		}
		req.MountOptions = withLabel(req.MountOptions, f.Label(*u))
	}
	if err := env.mayPublish(ctx, v, u); err != nil {
		return err
	}
	if v.Record.Block() && !u.ReadOnly {
		if err := env.mayWrite(v, u); err != nil {
			return err
		}
	}
	before := *u
	u.Requested(f.Uses[intent], f.Now.BootID)
	err = env.Call(ctx, v, f, "publish", u.Target, func(ctx context.Context) error { return d.Publish(ctx, req) })
	switch {
	case err == nil:
		return env.published(ctx, v, f, u)
	case before.Phase == record.PhaseNone && driver.HadNoEffect(err) && env.nothingAt(u.Target):
		*u = before
	}
	return err
}

// mayPublish asks the protocol, with the intent read live: one that was released, or that nothing keeps until it is,
// must not be published any more.
func (env *Environment) mayPublish(ctx context.Context, v *Volume, u *record.Use) error {
	node := handshake.NodeOf(env.State.Acknowledged(), v.Name)
	i := &volumesv1alpha1.VolumeAttachmentIntent{}
	err := env.Live.Get(ctx, types.NamespacedName{Namespace: u.Intent.Namespace, Name: u.Intent.Name}, i)
	if err != nil && !apierrors.IsNotFound(err) {
		return &report.UnwrittenError{Err: fmt.Errorf("reading intent: %w", err)}
	}
	live := handshake.Intent{Exists: i.UID == u.Intent.UID, Deleting: !i.DeletionTimestamp.IsZero()}
	if g := (handshake.Protocol{}).MayPublish(node, v.Record.AttachmentUID, live); g != handshake.GuardNone {
		return fmt.Errorf("publishing: refused by %s: %w", g, failure.ErrChanged)
	}
	if !status.Finalized(i) {
		return fmt.Errorf("publishing: the intent has lost its finalizer: %w", failure.ErrChanged)
	}
	return nil
}

// checkPath fails unless the published path is free for this use, or has mounted what an earlier call for it put there.
// A program may have written to the bare path while the mount was lost: a mount would hide that.
func (env *Environment) checkPath(f plan.Facts, u record.Use) error {
	switch there := f.Uses[u.Intent.UID]; {
	case there == record.Foreign:
		return occupied("another mount", u.Path)
	case there == record.Present && u.Phase == record.PhaseNone:
		return occupied("a mount", u.Path)
	case there == record.Present:
		return nil
	}
	by, err := occupant(u, u.Path)
	if err != nil {
		return fmt.Errorf("reading published path: %w", err)
	}
	if by != "" {
		return occupied(by, u.Path)
	}
	return nil
}

// occupant names what is at the path of the publication, where nothing is mounted; empty if it is free.
func occupant(u record.Use, path string) (string, error) {
	if u.Type == volumesv1alpha1.PublicationDevice {
		return mount.Occupant(path, 0)
	}
	return mount.Occupant(path, fs.ModeDir)
}

// occupied is the error for something at a path of the agent's that is not its own.
func occupied(by, path string) *failure.Problem {
	return failure.Problemf(volumesv1alpha1.ReasonPathOccupied,
		"%s is in the way at %s; it stays there until an administrator removes it", by, path)
}

// published verifies what the driver has done. Users may rely on it once its files belong to the intent's group.
func (env *Environment) published(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	e, err := env.verifyPublication(ctx, v, f, u, u.Target)
	if err != nil {
		return err
	}
	if f.SetsGroup(*u) {
		awaitOwnership(u, e)
		return nil
	}
	return env.completePublication(ctx, v, f, u)
}

// completePublication shows users what the driver has published, and verifies that they see the volume.
func (env *Environment) completePublication(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	if u.Target != u.Path {
		if err := env.showPublication(ctx, v, f, u); err != nil {
			return err
		}
	}
	e, err := env.verifyPublication(ctx, v, f, u, u.Path)
	if err != nil {
		return err
	}
	u.Device = v.Record.Stage.Device
	if u.Type == volumesv1alpha1.PublicationDevice {
		d := env.deviceAt(ctx, u.Path)
		u.Device, u.Seq = d.Path, d.Seq
	}
	if err := env.noteDevices(ctx, v, u, env.Mounts.At); err != nil {
		return err
	}
	u.Source = record.SourceOf(e)
	u.Phase, u.Moved = record.PhaseDone, false
	env.announcePublished(v, f, *u)
	return nil
}

// showPublication mounts at the published path what users are to see of a hidden publication.
func (env *Environment) showPublication(ctx context.Context, v *Volume, f plan.Facts, u *record.Use) error {
	if u.Type == volumesv1alpha1.PublicationDevice {
		return env.publishReadOnly(ctx, v, f, u)
	}
	return env.bindPublication(ctx, u)
}

// bindPublication binds the volume, or a part of it, at the published path. The bind mount is read-only from its
// beginning where it is to be. To change the driver's own mount would not reach the copies that it has by then in other
// mount namespaces, such as that of the node.
func (env *Environment) bindPublication(ctx context.Context, u *record.Use) error {
	shown, err := env.openShown(ctx, u)
	if err != nil {
		return err
	}
	defer shown.Close() //nolint:errcheck // only bound
	if err := env.Mounts.EnsureDir(ctx, u.Path, PublishedDirMode); err != nil {
		return fmt.Errorf("making published path: %w", err)
	}
	if err := env.Mounts.BindFile(ctx, shown, u.Path, u.ReadOnly, nil); err != nil {
		return fmt.Errorf("binding at published path: %w", err)
	}
	env.Step("after publication bind")
	return nil
}

// openShown opens what users are to see of a hidden publication.
func (env *Environment) openShown(ctx context.Context, u *record.Use) (*os.File, error) {
	subPath := u.SubPath()
	if subPath == "" {
		whole, err := env.Mounts.OpenMount(ctx, u.Target)
		if err != nil {
			return nil, fmt.Errorf("opening what the driver has published: %w", err)
		}
		return whole, nil
	}
	part, err := env.Mounts.OpenBeneath(ctx, u.Target, subPath)
	if err != nil {
		return nil, fmt.Errorf("opening sub path %s: %w", subPath, err)
	}
	return part, nil
}

func (env *Environment) announcePublished(_ *Volume, f plan.Facts, u record.Use) {
	if i := f.Intent(u.Intent.UID); i != nil {
		env.Event(i, corev1.EventTypeNormal, EventMounted, "Publish", "published at "+u.Path)
	}
}

// mountedAt returns what is mounted at path, and why it cannot be the volume. What would be undone is read again.
func (env *Environment) mountedAt(ctx context.Context, r *record.Record, path,
	label string) (e mount.Entry, wrong, err error) {
	for _, at := range []lookup{env.Mounts.At, env.atNow} {
		table, found, mounted, err := at(path)
		if err != nil {
			return e, nil, err
		}
		if e = found; !mounted {
			return e, nil, failure.Problemf(volumesv1alpha1.ReasonPublishFailed,
				"the driver reports success, but nothing is mounted at %s", path)
		}
		if wrong = cmp.Or(env.notVolume(ctx, r, table, path, e), checkLabel(e, label)); wrong == nil {
			return e, nil, nil
		}
	}
	return e, wrong, nil
}

// verifyPublication returns what is mounted at path, one of the publication's two, once it is known to be the volume.
// What this publish has put there and is not the volume is taken away again.
func (env *Environment) verifyPublication(
	ctx context.Context, v *Volume, f plan.Facts, u *record.Use, path string,
) (mount.Entry, error) {
	e, wrong, err := env.mountedAt(ctx, v.Record, path, f.Label(*u))
	switch {
	case err != nil || wrong == nil:
		return e, err
	case f.Uses[u.Intent.UID] != record.Missing && !errors.Is(wrong, ErrOwnDisk):
		return e, &failure.Problem{Reason: volumesv1alpha1.ReasonPathOccupied,
			Message: "what is mounted at the published path is left alone", Err: wrong}
	}
	if v.Record.Stage.Source == "" {
		// what the driver published from may have been a mount that is gone
		v.Record.Stage.Phase = record.PhaseUncertain
	}
	return e, &failure.Problem{Reason: volumesv1alpha1.ReasonPublishFailed,
		Message: "what the driver published is not the volume",
		Err:     errors.Join(wrong, env.undoPublication(ctx, v, f, u))}
}
