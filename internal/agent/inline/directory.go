/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
	hawserstatus "github.com/hawser-io/hawser/internal/status"
)

// ReasonMountPropagation is the reason of the event on a pod whose containers do not see changes of a directory.
const ReasonMountPropagation = "MountPropagationMissing"

// ReasonSandboxedRuntime is the reason of the event on a pod whose runtime does not pass mounts on to its containers.
const ReasonSandboxedRuntime = "SandboxedRuntime"

// directories are the directories of intents that pods have.
type directories struct{ *Plugin }

// publish mounts a directory at the target, and shows in it what is published now. What comes later follows by
// ReconcilePlace.
func (p directories) publish(ctx context.Context, r request) error {
	there, err := p.there(r)
	if err != nil {
		return err
	}
	if !there {
		if err := p.checkPod(ctx, r); err != nil {
			return err
		}
		if err := p.make(ctx, r); err != nil {
			return err
		}
		p.Log.Info("directory of intents mounted into a pod", "pod", r.pod, "selector", r.selector.String())
	}
	p.forgetEnd(r.target)
	p.showFirst(ctx, p.placesOf(ctx, record.PodBind{Target: r.target, Pod: r.pod}))
	return nil
}

// showFirst reconciles the places side by side, and waits for them, but not long: a volume that hangs must not keep the
// pod from its start. The queue reconciles what is not as it should be yet.
func (p directories) showFirst(ctx context.Context, all []Place) {
	reconciled := make(chan struct{}, len(all))
	for _, place := range all {
		// It goes on when the call has ended. Serve waits for it.
		p.background.Go(func() {
			if retry, err := p.ReconcilePlace(context.WithoutCancel(ctx), place); err != nil || retry > 0 {
				p.Log.Info("a place of a directory is not as it should be yet", "place", place, "error", err)
				p.Enqueue(place)
			}
			reconciled <- struct{}{}
		})
	}
	late := p.Clock.NewTimer(longestFirst)
	defer late.Stop()
	for range all {
		select {
		case <-reconciled:
		case <-late.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// there reports whether an earlier call has made what the pod asks for.
func (p directories) there(r request) (bool, error) {
	table, err := p.Mounts.Table()
	if err != nil {
		return false, internal(err)
	}
	if len(table.All(r.target)) == 0 {
		return false, nil
	}
	e, _ := table.At(r.target)
	b, known := p.Pods.Get(r.target)
	switch {
	case !e.IsDirectory() || !known || !b.IsDirectory() || b.Pod.UID != r.pod.UID:
		return false, refused("another mount, %s of %s, is at the target path", e.Root, e.Source)
	case b.Selector == "": // its record was lost
		return true, internalIf(p.Pods.Add(p.recordOf(r), false))
	case b.Selector != r.selector.String():
		return false, refused("a directory for the selector %q is at the target path", b.Selector)
	}
	return true, nil
}

func (p directories) recordOf(r request) record.PodBind {
	return record.PodBind{Target: r.target, Directory: r.target, Pod: r.pod, Selector: r.selector.String(),
		ReadOnly: r.readOnly, BootID: p.BootID}
}

// checkPod refuses a directory where the pod cannot use one. Containers that do not see later changes get an event.
func (p directories) checkPod(ctx context.Context, r request) error {
	pod, err := p.livePod(ctx, r.pod)
	switch {
	case err != nil:
		return status.Errorf(codes.Unavailable, "how pod %s mounts the volume is not known: %v", r.pod, err)
	case pod == nil:
		return status.Errorf(codes.NotFound, "pod %s with UID %s does not exist in the API", r.pod, r.pod.UID)
	}
	volume := filepath.Base(filepath.Dir(r.target))
	problem, deaf := examine(pod, volume, r.readOnly)
	if problem != "" {
		return refused("volume %s is a directory of intents: %s", volume, problem)
	}
	if len(deaf) > 0 {
		p.event(r.pod, nil, ReasonMountPropagation, fmt.Sprintf("containers that mount volume %s without mountPropagation "+
			"HostToContainer: %s. Each sees only those volumes that were there when it started, and no volume leaves the "+
			"directory before the pod has ended",
			volume, strings.Join(deaf, ", ")))
	}
	if sandboxed(pod) {
		p.event(r.pod, nil, ReasonSandboxedRuntime, fmt.Sprintf("runtime class %s runs the pod in a sandbox, such as gVisor "+
			"and Kata Containers, which passes no mounts on: the directory %s may stay empty, and no volume leaves it before "+
			"the pod has ended. Use an inline volume for each intent, or another runtime class",
			*pod.Spec.RuntimeClassName, volume))
	}
	return nil
}

// livePod reads the pod from the API server. It is nil where the pod is gone, also if another one has its name. That
// counts for directories only: a pod that has one was in the API, and the kubelet starts no static pod with one.
func (p *Plugin) livePod(ctx context.Context, of record.PodReference) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	pod, err := p.Intents.Pod(ctx, of)
	if apierrors.IsNotFound(err) || err == nil && !isPod(pod, of) {
		return nil, nil
	}
	return pod, err
}

// event sends an event about the pod. client-go counts events of one reason as repetitions if they are related to the
// same object.
func (p *Plugin) event(pod record.PodReference, related runtime.Object, reason, note string) {
	p.Recorder.Eventf(pod.Object(), related, corev1.EventTypeWarning, reason, "Publish", "%s",
		hawserstatus.ShortenNote(note))
}

// make records the directory and mounts it. After a failure nothing is left. On a node with SELinux the directory has
// the label of container files without a category, which every container may read. So the kubelet does not have the
// container runtime label it, and with it the files of all volumes in it.
func (p directories) make(ctx context.Context, r request) error {
	label, err := p.FileLabel()
	if err != nil {
		return internal(err)
	}
	p.Step("before directory record")
	if err := p.Pods.Add(p.recordOf(r), false); err != nil {
		return internal(err)
	}
	p.Step("after directory record")
	err = p.Mounts.EnsureDir(ctx, r.target, targetDirMode)
	if err == nil {
		err = p.Mounts.MakeDirectory(ctx, r.target, label)
	}
	if err != nil {
		if left := p.undo(context.WithoutCancel(ctx), r.target, true); left != nil {
			return status.Errorf(codes.Aborted, "%v; undoing that failed: %v", err, left)
		}
		return internal(err)
	}
	p.Step("after directory mount")
	return nil
}

// isDirectory reports whether a directory is, or was, at the target.
func (p *Plugin) isDirectory(target string) (bool, error) {
	if b, known := p.Pods.Get(target); known {
		return b.IsDirectory(), nil
	}
	table, err := p.Mounts.Table()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(table.All(target), mount.Entry.IsDirectory), nil
}

// end takes away everything below the target, and then the directory itself. It ends early at whatever is in
// use: the kernel is never asked to detach that.
func (p directories) end(ctx context.Context, target string) error {
	if err := p.beginEnd(ctx, target); err != nil {
		return err
	}
	table, err := p.Mounts.Table()
	if err != nil {
		return err
	}
	below := table.Below(target)
	slices.SortStableFunc(below, func(x, y mount.Entry) int { // the innermost first
		return cmp.Compare(strings.Count(y.Path, "/"), strings.Count(x.Path, "/"))
	})
	for _, e := range below {
		if err := p.endMount(ctx, e.Path); err != nil {
			p.noteEnd(target, e.Path, err)
			return err
		}
	}
	for _, b := range p.Pods.InDirectory(target) {
		if err := p.endPlace(ctx, b); err != nil {
			return err
		}
	}
	p.Step("before directory unmount")
	if err := p.undo(ctx, target, false); err != nil {
		return err
	}
	p.holds.forgetDirectory(target)
	p.forgetEnd(target)
	return nil
}

// noteEnd reports, once for each cause, what keeps the pod from its end.
func (p directories) noteEnd(target, path string, err error) {
	b, known := p.Pods.Get(target)
	if p.holds.news(target, err.Error()) && known {
		p.event(b.Pod, nil, ReasonVolumeHeld, fmt.Sprintf("the pod cannot end before nothing uses what is mounted at %s: %v",
			path, err))
	}
}

// endMount unmounts once at the path. A place of that path is not changed meanwhile.
func (p directories) endMount(ctx context.Context, path string) error {
	unlock, err := p.targets.lock(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.Mounts.Unmount(ctx, path); err != nil && !errors.Is(err, mount.ErrStillMounted) {
		return err
	}
	p.Step("after unmount in directory")
	return nil
}

// endPlace unmounts what may have been mounted at a place meanwhile, and removes its record. The place itself goes with
// the directory: to remove it would detach the copies that others may have of its mount.
func (p directories) endPlace(ctx context.Context, b record.PodBind) error {
	unlock, err := p.targets.lock(ctx, b.Target)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.unmountAll(ctx, b.Target); err != nil {
		return err
	}
	return p.forget(b)
}

// forget removes the record of a bind, and lets its volume go on.
func (p *Plugin) forget(b record.PodBind) error {
	if err := p.Pods.Remove(b.Target); err != nil {
		return err
	}
	p.holds.forget(b.Target)
	p.Step("after place record removal")
	p.Released(b.VolumeName)
	return nil
}

func internalIf(err error) error {
	if err == nil {
		return nil
	}
	return internal(err)
}
