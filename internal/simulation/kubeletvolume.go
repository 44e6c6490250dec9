/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubeletrecords "github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/driver"
)

const recordFile = "vol_data.json"

func (m *machine) podsDir() string { return filepath.Join(m.kubeletDir(), "pods") }

// stageDir has the record of the stage, and below it the staging path, which is the agent's too.
func (m *machine) stageDir(handle string) string {
	return filepath.Join(m.kubeletDir(), "plugins", "kubernetes.io", "csi", driverName, kubeletrecords.HashOf(handle))
}

// podDir has the record of what is published for a pod, and below it the target path.
func (m *machine) podDir(uid types.UID, name string) string {
	return filepath.Join(m.podsDir(), string(uid), "volumes", "kubernetes.io~csi", name)
}

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

// isAttached reads the volume's attachment, as a kubelet does before each call that mounts.
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
		return k.driver.Stage(ctx, driver.StageRequest{Volume: driver.Volume{Handle: v.handle()}, StagingPath: filepath.Join(dir, "globalmount")})
	})
	switch {
	case err == nil:
		k.set(func() { v.staged = true })
	case isFinal(err) && !found:
		_ = k.onDisk("removing a record", func() error { return k.m.removeRecord(dir, "globalmount") })
		k.set(func() { v.mayBeStaged = false })
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
		_ = k.onDisk("removing a record", func() error { return k.m.removeRecord(dir, "mount") })
		k.set(func() { delete(v.published, uid) })
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
		if e, ok := k.m.at(path); ok && slices.ContainsFunc(k.m.mounts, func(o mounted) bool { return o.seq == e.seq && o.Path != path }) {
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

// call the driver.
func (k *kubelet) call(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(k.ctx, driverTimeout)
	defer cancel()
	return call(ctx)
}

// isFinal says whether a call that failed is known to have ended.
func isFinal(err error) bool {
	var failed *driver.Error
	return errors.As(err, &failed) && failed.Outcome != driver.Uncertain
}

// onDisk does something on the machine's disk, if the kubelet gets there alive.
func (k *kubelet) onDisk(what string, do func() error) error {
	system := kernel{m: k.m, p: k.p}
	if err := system.enter(k.ctx, what); err != nil {
		return err
	}
	defer system.leave()
	return do()
}

// writeRecord writes a record as a kubelet does, in place, and makes the directory beside it.
func (m *machine) writeRecord(dir string, v *podVolume, beside string) error {
	m.world.must(os.MkdirAll(filepath.Join(dir, beside), 0o750))
	data, err := json.Marshal(map[string]string{"driverName": driverName, "volumeHandle": v.handle(), "specVolID": v.name})
	m.world.must(err)
	path := filepath.Join(dir, recordFile)
	m.world.must(os.WriteFile(path, data, 0o600))
	// The clock of the disk goes on in its own steps, and there may be none between two writes.
	m.writes++
	at := time.Now().Add(time.Duration(m.writes))
	m.world.must(os.Chtimes(path, at, at))
	m.touched(dir)
	return nil
}

// removeRecord removes a record and its directories, unless something is mounted there.
func (m *machine) removeRecord(dir, beside string) error {
	if _, mounted := m.at(filepath.Join(dir, beside)); mounted {
		return errWaits
	}
	if err := m.removeDir(filepath.Join(dir, beside)); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, recordFile)); err != nil && !os.IsNotExist(err) {
		return err
	}
	m.touched(dir)
	if !strings.HasPrefix(dir, m.podsDir()+"/") {
		return m.removeDir(dir)
	}
	for ; dir != m.podsDir(); dir = filepath.Dir(dir) {
		if err := m.removeDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// reconstruct what pods have from their records, as a kubelet does that starts. What is only staged it does not find; people clean that
// up some time later, unless a pod comes for it. The world is locked.
func (k *kubelet) reconstruct() {
	for name := range volumeModes {
		k.volumes[name] = &podVolume{name: name, published: map[types.UID]bool{}, wake: make(chan struct{}, 1)}
	}
	paths, err := filepath.Glob(k.m.podDir("*", "*") + "/" + recordFile)
	k.m.world.must(err)
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		uid, _, _ := strings.Cut(strings.TrimPrefix(path, k.m.podsDir()+"/"), "/")
		v := k.volumes[name]
		v.published[types.UID(uid)] = false
		v.attached, v.mayBeStaged = true, true
		k.m.world.chance.reach(reconstructed)
	}
	for _, v := range k.volumes {
		if _, err := os.Stat(filepath.Join(k.m.stageDir(v.handle()), recordFile)); err == nil && !v.attached {
			k.m.world.chance.reach(forgotten)
			k.m.world.later(k.p.between(20*time.Second, 3*time.Minute), func() {
				k.set(func() { v.mayBeStaged = true })
				v.rouse()
			})
		}
	}
}

// startContainer has the pod run.
func (k *kubelet) startContainer(v *podVolume, pod *corev1.Pod) error {
	err := k.onDisk("starting a container", func() error {
		if _, runs := k.m.containers[pod.UID]; !runs && pod.DeletionTimestamp == nil {
			k.m.world.chance.reach(running)
			k.m.containers[pod.UID] = v.name
		}
		return nil
	})
	if err != nil || pod.DeletionTimestamp != nil || isRunning(pod) {
		return err
	}
	return k.tell(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func isRunning(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// tell what the pod's container does.
func (k *kubelet) tell(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{
		"phase": phase, "containerStatuses": []corev1.ContainerStatus{{Name: "main", State: state}},
	}})
	k.m.world.must(err)
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	return client.IgnoreNotFound(k.api.Status().Patch(k.ctx, target, client.RawPatch(types.MergePatchType, body)))
}

// endContainers of pods that are gone or being deleted. That takes up to the time that they are given.
func (k *kubelet) endContainers(v *podVolume) {
	for uid, pod := range k.users(v.name) {
		if pod != nil && pod.DeletionTimestamp == nil {
			continue
		}
		begun := false
		k.set(func() { begun, k.ending[uid] = k.ending[uid], true })
		if begun {
			continue
		}
		k.m.world.later(k.p.between(0, 30*time.Second), func() {
			if k.isOver() {
				return
			}
			k.m.world.mu.Lock()
			delete(k.m.containers, uid)
			k.m.world.mu.Unlock()
			v.rouse()
		})
	}
}

// finishPods tells that the containers of pods that are being deleted have ended, and deletes the pods for which nothing is published.
func (k *kubelet) finishPods(v *podVolume, users map[types.UID]*corev1.Pod) bool {
	done := true
	for pod, published := range k.deleted(v) {
		if _, uses := users[pod.UID]; uses {
			continue
		}
		if isRunning(pod) {
			done = k.tell(pod, pod.Status.Phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}) == nil && done
			continue
		}
		if published {
			continue
		}
		err := k.api.Delete(k.ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: ptr.To(pod.UID)})
		done = client.IgnoreNotFound(err) == nil && done
	}
	return done
}

// deleted are the pods of the volume that are being deleted, and whether it is published for them.
func (k *kubelet) deleted(v *podVolume) map[*corev1.Pod]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	pods := map[*corev1.Pod]bool{}
	for uid, pod := range k.pods {
		if claimOf(pod) == v.name && pod.DeletionTimestamp != nil {
			_, pods[pod] = v.published[uid]
		}
	}
	return pods
}
