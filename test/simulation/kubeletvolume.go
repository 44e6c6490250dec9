/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/driver"
)

// errWaits is no failure: the kubelet tries again.
var errWaits = errors.New("not yet")

// pass over one volume: undo what no pod is to have, then do what one is to have. False: try again.
func (k *kubelet) pass(v *podVolume) bool {
	if !k.isSynced() {
		return true // comes again with the pods
	}
	k.endContainers(v)
	users := k.users(v.name)
	ended := k.finishPods(v, users)
	for _, uid := range v.publications(k) {
		if _, stays := users[uid]; stays {
			continue
		}
		if k.unpublish(v, uid) != nil {
			return false
		}
		v.rouse() // the pod can be finished now
	}
	if len(users) == 0 {
		return k.letGo(v) == nil && ended
	}
	return k.provide(v, users) == nil && ended
}

func (k *kubelet) isSynced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.synced
}

func (v *podVolume) publications(k *kubelet) []types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	var uids []types.UID
	for uid := range v.published {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// set changes what is known of a volume.
func (k *kubelet) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// provide the volume to pods.
func (k *kubelet) provide(v *podVolume, users map[types.UID]*corev1.Pod) error {
	var attached, reported, staged bool
	k.set(func() { attached, reported, staged = v.attached, v.reported, v.staged })
	if !attached {
		if !reported {
			return nil // comes again with the report
		}
		if err := k.verify(v); err != nil {
			return err
		}
	}
	if !staged {
		if err := k.stage(v); err != nil {
			return err
		}
	}
	var failed error
	for _, uid := range slices.Sorted(maps.Keys(users)) {
		pod := users[uid]
		if pod == nil {
			continue // its containers are being stopped
		}
		if err := k.publish(v, uid); err != nil {
			failed = err
			continue
		}
		failed = errors.Join(failed, k.startContainer(v, pod))
	}
	return failed
}

// verify that the Node lists the volume as attached.
func (k *kubelet) verify(v *podVolume) error {
	node := &corev1.Node{}
	if err := k.api.Get(k.ctx, client.ObjectKey{Name: k.m.name}, node); err != nil {
		return err
	}
	if !listsAttached(node, v.handle()) {
		return errWaits
	}
	k.set(func() { v.attached = true })
	return nil
}

func listsAttached(node *corev1.Node, handle string) bool {
	return slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
		return string(a.Name) == uniqueName(handle)
	})
}

// isAttached reads the volume's attachment, as a kubelet does before each call that mounts. An error means: try again.
func (k *kubelet) isAttached(v *podVolume) error {
	va := &storagev1.VolumeAttachment{}
	key := client.ObjectKey{Name: volume.AttachmentName(driverName, v.handle(), k.m.name)}
	if err := k.api.Get(k.ctx, key, va); err != nil {
		return err
	}
	if !va.Status.Attached || va.DeletionTimestamp != nil {
		return errWaits
	}
	return nil
}

// stage the volume: the record is written first.
func (k *kubelet) stage(v *podVolume) error {
	if err := k.isAttached(v); err != nil {
		return err
	}
	dir := k.m.stageDir(v.handle())
	err := k.onDisk("recording a stage", func() error {
		k.m.recorded[v.handle()] = k.m.boot
		return k.m.writeRecord(dir, v, "globalmount")
	})
	if err != nil {
		return err
	}
	found := false
	k.set(func() { found, v.mayBeStaged = v.mayBeStaged, true })
	err = k.call(func(ctx context.Context) error {
		return k.driver.Stage(ctx, driver.StageRequest{
			Volume: driver.Volume{Handle: v.handle()}, StagingPath: filepath.Join(dir, "globalmount"),
		})
	})
	switch {
	case err == nil:
		k.set(func() { v.staged = true })
	case isFinal(err) && !found:
		// A real kubelet leaves a record that it cannot remove. This one tries again, in place of an administrator.
		if k.onDisk("removing a record", func() error { return k.m.removeRecord(dir, "globalmount") }) == nil {
			k.set(func() { v.mayBeStaged = false })
		}
	}
	return err
}

// publish the volume for a pod. A volume for a single user is refused to a second one.
func (k *kubelet) publish(v *podVolume, uid types.UID) error {
	known, done, others := false, false, 0
	k.set(func() {
		done, known = v.published[uid]
		others = len(v.published)
	})
	if done {
		return nil
	}
	if v.name == "pod" && (others > 1 || others == 1 && !known) {
		return errWaits
	}
	if err := k.isAttached(v); err != nil {
		return err
	}
	dir := k.m.podDir(uid, v.name)
	if err := k.onDisk("recording a publication", func() error { return k.m.writeRecord(dir, v, "") }); err != nil {
		return err
	}
	k.set(func() { v.published[uid] = false })
	err := k.call(func(ctx context.Context) error {
		return k.driver.Publish(ctx, driver.PublishRequest{
			Volume: driver.Volume{Handle: v.handle()}, StagingPath: filepath.Join(k.m.stageDir(v.handle()), "globalmount"),
			TargetPath: filepath.Join(dir, "mount"),
		})
	})
	switch {
	case err == nil:
		k.set(func() { v.published[uid] = true })
		k.m.noteShared(v.handle())
	case isFinal(err) && !known:
		if k.onDisk("removing a record", func() error { return k.m.removeRecord(dir, "mount") }) == nil {
			k.set(func() { delete(v.published, uid) })
		}
	}
	return err
}

func (k *kubelet) unpublish(v *podVolume, uid types.UID) error {
	k.set(func() { v.published[uid] = false })
	dir := k.m.podDir(uid, v.name)
	err := k.call(func(ctx context.Context) error {
		return k.driver.Unpublish(ctx, driver.UnpublishRequest{Handle: v.handle(), TargetPath: filepath.Join(dir, "mount")})
	})
	if err != nil {
		return err
	}
	err = k.onDisk("removing a record", func() error { return k.m.removeRecord(dir, "mount") })
	if err == nil {
		k.set(func() { delete(v.published, uid) })
	}
	return err
}

// letGo unstages a volume that no pod is to have, unless something else refers to the stage, and then uses it no more.
func (k *kubelet) letGo(v *podVolume) error {
	mayBeStaged := false
	k.set(func() { mayBeStaged, v.reported = v.mayBeStaged, false })
	if mayBeStaged {
		if err := k.unstage(v); err != nil {
			return err
		}
	}
	k.set(func() { v.attached = false })
	return nil
}

func (k *kubelet) unstage(v *podVolume) error {
	dir := k.m.stageDir(v.handle())
	path := filepath.Join(dir, "globalmount")
	k.set(func() { v.staged = false })
	recorded := true
	err := k.onDisk("looking for references", func() error {
		if k.m.isMountedElsewhere(path) {
			return errWaits
		}
		_, err := os.Stat(filepath.Join(dir, recordFile))
		recorded = err == nil
		return nil
	})
	if err != nil {
		return err
	}
	if recorded {
		err := k.call(func(ctx context.Context) error {
			return k.driver.Unstage(ctx, driver.UnstageRequest{Handle: v.handle(), StagingPath: path})
		})
		if err != nil {
			return err
		}
		if err := k.onDisk("removing a record", func() error { return k.m.removeRecord(dir, "globalmount") }); err != nil {
			return err
		}
	}
	k.set(func() { v.mayBeStaged = false })
	return nil
}

// isMountedElsewhere reports whether what is mounted at path shows at another path too.
func (m *machine) isMountedElsewhere(path string) bool {
	e, ok := m.at(path)
	return ok && slices.ContainsFunc(m.mounts, func(o mounted) bool { return o.seq == e.seq && o.Path != path })
}

// call the driver.
func (k *kubelet) call(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(k.ctx, driverTimeout)
	defer cancel()
	return call(ctx)
}

// isFinal reports whether a call that failed is known to have ended.
func isFinal(err error) bool {
	var failed *driver.Error
	return errors.As(err, &failed) && failed.Outcome != driver.Uncertain
}
