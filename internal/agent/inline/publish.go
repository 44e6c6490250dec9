/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// NodePublishVolume binds the volume of an intent into a pod. It waits until the agent has published the intent. It is
// idempotent: what is bound already stays, whatever has become of the intent.
func (p *Plugin) NodePublishVolume(ctx context.Context,
	req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	r, err := parse(p.Paths, req)
	if err != nil {
		return nil, err
	}
	unlock, err := p.targets.lock(ctx, r.target)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer unlock()
	if r.selector != nil {
		err = directories{p}.publish(ctx, r)
	} else {
		err = p.publishVolume(ctx, r)
	}
	if err != nil {
		p.Log.Info("a pod did not get its volume", "pod", r.pod, "intent", r.intent, "error", err.Error())
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (p *Plugin) publishVolume(ctx context.Context, r request) error {
	called := p.Clock.Now()
	if done, err := p.alreadyBound(r); err != nil || done {
		return err
	}
	return p.publish(ctx, r, called)
}

// alreadyBound reports whether an earlier call has bound what the pod asks for. The kubelet repeats its call for
// running pods after a restart.
func (p *Plugin) alreadyBound(r request) (bool, error) {
	table, err := p.Mounts.Table()
	if err != nil {
		return false, internal(err)
	}
	mounts := table.All(r.target)
	if len(mounts) == 0 {
		return false, nil
	}
	b, known := p.Pods.Get(r.target)
	if !known || b.IsDirectory() || b.Pod.UID != r.pod.UID ||
		record.PresenceOfPart(table, r.target, b.Source) != record.Present {
		return false, refused("another mount, %s of %s, is at the target path", mounts[0].Root, mounts[0].Source)
	}
	if b.Intent.Name != "" && (b.Intent.Namespace != r.intent.Namespace || b.Intent.Name != r.intent.Name) {
		return false, refused("the volume of VolumeAttachmentIntent %s/%s is at the target path", b.Intent.Namespace,
			b.Intent.Name)
	}
	return true, nil
}

// publish waits for the publication and binds it. A publication that goes meanwhile is waited for again.
func (p *Plugin) publish(ctx context.Context, r request, called time.Time) error {
	w := p.newWait(ctx, r)
	defer w.end()
	for again := false; ; again = true {
		if again {
			if err := w.next(); err != nil {
				return err
			}
		}
		found, err := w.await()
		if err == nil {
			err = p.bind(ctx, r, found)
		}
		if err == nil {
			p.measure(r, found, called)
		}
		if !errors.Is(err, errGone) {
			return err
		}
	}
}

// errGone: the publication has gone since it was found, or another pod has taken it.
var errGone = errors.New("the publication is not free any more")

// found is an intent and its publication.
type found struct {
	intent *volumesv1alpha1.VolumeAttachmentIntent
	Publication
}

// bind records the bind, makes it and verifies it. After a failure nothing is left.
func (p *Plugin) bind(ctx context.Context, r request, f found) error {
	b := record.PodBind{
		Target: r.target, Pod: r.pod, VolumeName: f.VolumeName, AttachmentUID: f.AttachmentUID, Source: f.Source,
		Whole: f.Whole, ReadOnly: r.readOnly || f.intent.Spec.ReadOnly, BootID: p.BootID, Directory: r.directory,
		Intent: volumesv1alpha1.IntentReference{Namespace: f.intent.Namespace, Name: f.intent.Name, UID: f.intent.UID},
	}
	if err := p.addBind(b, f.SinglePod); err != nil {
		return err
	}
	if err := p.mount(ctx, b, f.Path); err != nil {
		// The caller may have given up, and what was done has to be undone all the same.
		if left := p.undoBind(context.WithoutCancel(ctx), b); left != nil {
			// Not final: the kubelet asks to unpublish what may be there.
			return status.Errorf(codes.Aborted, "%v; undoing that failed: %v", err, left)
		}
		return err
	}
	p.Log.Info("volume bound into a pod", "pod", r.pod, "intent", r.intent, "volume", f.VolumeName, "readOnly",
		b.ReadOnly)
	if f.Unhealthy != nil { // the pod had no event when that began
		p.event(r.pod, operation.IntentObject(b.Intent), operation.EventVolumeUnhealthy,
			operation.UnhealthyNote(f.Unhealthy))
	}
	return nil
}

// addBind records a bind that is to be made. It fails with errGone if the publication is not free any more.
func (p *Plugin) addBind(b record.PodBind, single bool) error {
	p.Step("before pod record")
	err := p.Pods.Add(b, single)
	if errors.Is(err, record.ErrUnpublishing) || errors.Is(err, record.ErrOtherPod) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if err != nil {
		return internal(err)
	}
	p.Step("after pod record")
	return nil
}

// mount binds the publication at the target. The publication is looked up after the record: from then on the agent does
// not undo it.
func (p *Plugin) mount(ctx context.Context, b record.PodBind, path string) error {
	published, err := p.open(ctx, path, b.Source)
	if err != nil {
		return err
	}
	defer published.Close() //nolint:errcheck // only bound
	if err := p.makeTarget(ctx, b); err != nil {
		return internal(fmt.Errorf("creating the target path: %w", err))
	}
	p.Step("after target path")
	if err := bindAt(ctx, p.Mounts, published, b); err != nil {
		// The kernel binds no mount that was removed since it was opened.
		if gone := p.shows(path, b.Source); gone != nil {
			return gone
		}
		return internal(err)
	}
	p.Step("after pod bind")
	return p.shows(b.Target, b.Source)
}

// bindAt binds what is open. The bind has the publication's own options, also where that is read-only.
func bindAt(ctx context.Context, m Mounts, published *os.File, b record.PodBind) error {
	if b.HasPlace() {
		return m.BindAlone(ctx, published, b.Target, b.ReadOnly)
	}
	return m.BindFile(ctx, published, b.Target, b.ReadOnly, nil)
}

func (p *Plugin) makeTarget(ctx context.Context, b record.PodBind) error {
	if b.HasPlace() {
		return p.Mounts.MakePlace(ctx, b.Directory, filepath.Base(b.Target))
	}
	return p.Mounts.EnsureDir(ctx, b.Target, targetDirMode)
}

// undoBind leaves nothing of a bind that this call has made.
func (p *Plugin) undoBind(ctx context.Context, b record.PodBind) error {
	if !b.HasPlace() {
		return p.undo(ctx, b.Target, true)
	}
	place, err := placeOf(b)
	if err != nil {
		return err
	}
	place.Bare = true
	if err := p.Mounts.ClearPlace(ctx, place); errors.Is(err, mount.ErrStillMounted) {
		return p.clear(ctx, b)
	} else if err != nil {
		return err
	}
	return p.forget(b)
}

// open opens the publication for a bind. It is opened before the mount table is read: a path at which nothing is
// mounted any more is a bare directory, and is not opened.
func (p *Plugin) open(ctx context.Context, path, source string) (*os.File, error) {
	published, err := p.Mounts.OpenMount(ctx, path)
	if errors.Is(err, mount.ErrNotMounted) || errors.Is(err, fs.ErrNotExist) {
		return nil, errGone
	}
	if err != nil {
		return nil, internal(fmt.Errorf("opening the publication: %w", err))
	}
	if err := p.shows(path, source); err != nil {
		return nil, errors.Join(err, published.Close())
	}
	return published, nil
}

// shows fails with errGone unless the mount table shows the source at the path.
func (p *Plugin) shows(path, source string) error {
	table, err := p.Mounts.Table()
	if err != nil {
		return internal(err)
	}
	if record.PresenceOf(table, path, source) != record.Present {
		return errGone
	}
	return nil
}

// undo leaves nothing of the bind. own: whatever is mounted at the target was made by this call.
func (p *Plugin) undo(ctx context.Context, target string, own bool) error {
	if err := p.unmount(ctx, target, own); err != nil {
		return err
	}
	p.Step("after pod unmount")
	b, known := p.Pods.Get(target)
	if err := p.Pods.Remove(target); err != nil {
		return err
	}
	p.Step("after pod record removal")
	if known && b.VolumeName != "" {
		p.Released(b.VolumeName)
	}
	// Last, because a directory that stays must not hold the volume.
	if err := p.Mounts.RemoveMountPoint(ctx, target); err != nil {
		return fmt.Errorf("removing the target path: %w", err)
	}
	p.Step("after target removal")
	return nil
}

// unmount removes every mount at exactly the target. One that is known not to be the pod's stays, unless it is own.
func (p *Plugin) unmount(ctx context.Context, target string, own bool) error {
	table, err := p.Mounts.Table()
	if err != nil {
		return err
	}
	b, known := p.Pods.Get(target)
	if !own && known && b.BootID == p.BootID && record.PresenceOfPart(table, target, b.Source) == record.Foreign {
		return errors.New("another mount covers the pod's volume; it stays until an administrator removes it")
	}
	return p.unmountAll(ctx, target)
}

// unmountAll removes every mount at exactly the path. It asks for an unmount also where the mount table shows none: the
// bind of a call that has ended may go on and have its effect yet. While it does, the unmount fails, and the record of
// the bind stays.
func (p *Plugin) unmountAll(ctx context.Context, path string) error {
	for {
		if err := p.Mounts.Unmount(ctx, path); !errors.Is(err, mount.ErrStillMounted) {
			return err
		}
	}
}

func internal(err error) error { return status.Error(codes.Internal, err.Error()) }
