/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	"github.com/hawser-io/hawser/internal/agent/kubelet"
	volumes "github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/driver"
)

// volume is one volume and its paths below the kubelet's directory.
type volume struct {
	driver.Volume
	// name is the unique name.
	name, driver string
	// csi and pods are directories of the kubelet.
	csi, pods string
}

func (k *Kubelet) volume(pv *corev1.PersistentVolume) *volume {
	v := &volume{
		Volume: driver.Volume{
			Handle: pv.Spec.CSI.VolumeHandle, PersistentVolume: pv.Name, Mode: volumes.Mode(pv),
			AccessMode: pv.Spec.AccessModes[0],
			FSType:     pv.Spec.CSI.FSType, Attributes: pv.Spec.CSI.VolumeAttributes,
		},
		name: volumes.UniqueNameOf(pv), driver: pv.Spec.CSI.Driver,
		csi: filepath.Join(k.Dir, "plugins", "kubernetes.io", "csi"), pods: filepath.Join(k.Dir, "pods"),
	}
	k.know(v.name, pv.Name)
	return v
}

// know stores the PersistentVolume of a unique name.
func (k *Kubelet) know(name, persistentVolume string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.persistentVolumes == nil {
		k.persistentVolumes = map[string]string{}
	}
	k.persistentVolumes[name] = persistentVolume
}

func (v *volume) attachment(node string) string {
	return volumes.AttachmentName(v.driver, v.Handle, node)
}

func (v *volume) block() bool { return v.Mode == corev1.PersistentVolumeBlock }

// stageRecord is the file that exists while the volume is staged.
func (v *volume) stageRecord() string {
	if v.block() {
		return filepath.Join(v.csi, "volumeDevices", v.PersistentVolume, "data", recordName)
	}
	return filepath.Join(v.csi, v.driver, kubelet.HashOf(v.Handle), recordName)
}

// globalMap is the directory in which a kubelet maps a device for all its pods.
func (v *volume) globalMap() string {
	return filepath.Join(v.csi, "volumeDevices", v.PersistentVolume, "dev")
}

func (v *volume) stagingPath() string {
	if v.block() {
		return filepath.Join(v.csi, "volumeDevices", "staging", v.PersistentVolume)
	}
	return filepath.Join(v.csi, v.driver, kubelet.HashOf(v.Handle), "globalmount")
}

// podRecord exists while the volume is published for a pod: a record or, for a device, a link.
func (v *volume) podRecord(uid string) string {
	if v.block() {
		return filepath.Join(v.pods, uid, "volumeDevices", "kubernetes.io~csi", v.PersistentVolume)
	}
	return filepath.Join(v.pods, uid, "volumes", "kubernetes.io~csi", v.PersistentVolume, recordName)
}

func (v *volume) targetPath(uid string) string {
	if v.block() {
		return filepath.Join(v.csi, "volumeDevices", "publish", v.PersistentVolume, uid)
	}
	return filepath.Join(filepath.Dir(v.podRecord(uid)), "mount")
}

const recordName = "vol_data.json"

// publications are the UIDs of the pods with a publication of the volume, according to the records.
func (v *volume) publications() ([]string, error) {
	paths, err := filepath.Glob(v.podRecord("*"))
	var uids []string
	for _, path := range paths {
		rest := strings.TrimPrefix(path, v.pods+"/")
		uid, _, _ := strings.Cut(rest, "/")
		uids = append(uids, uid)
	}
	return uids, err
}

// publishedFor reports whether any volume is published for the pod.
func (k *Kubelet) publishedFor(uid string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(k.Dir, "pods", uid, "volumes", "kubernetes.io~csi", "*", recordName))
	links, err2 := filepath.Glob(filepath.Join(k.Dir, "pods", uid, "volumeDevices", "kubernetes.io~csi", "*"))
	return len(files)+len(links) > 0, errors.Join(err, err2)
}

// enqueueRecorded enqueues every volume of the records on disk.
func (k *Kubelet) enqueueRecorded() {
	csi := filepath.Join(k.Dir, "plugins", "kubernetes.io", "csi")
	for _, pattern := range []string{
		filepath.Join(k.Dir, "pods", "*", "volumes", "kubernetes.io~csi", "*", recordName),
		filepath.Join(k.Dir, "pods", "*", "volumeDevices", "kubernetes.io~csi", "*"),
		filepath.Join(csi, "*", "*", recordName),
		filepath.Join(csi, "volumeDevices", "*", "data", recordName),
	} {
		paths, _ := filepath.Glob(pattern) // fails only on a bad pattern
		for _, path := range paths {
			if name := recordedVolume(path); name != "" {
				k.queue.Add(name)
			}
		}
	}
}

// recall counts every volume that is recorded as staged as in use. It publishes nothing.
func (k *Kubelet) recall() {
	csi := filepath.Join(k.Dir, "plugins", "kubernetes.io", "csi")
	for _, pattern := range []string{filepath.Join(csi, "*", "*", recordName),
		filepath.Join(csi, "volumeDevices", "*", "data", recordName)} {
		paths, _ := filepath.Glob(pattern) // fails only on a bad pattern
		for _, path := range paths {
			if r := read(path); r.PersistentVolume != "" {
				name := volumes.UniqueName(r.Driver, r.Handle)
				k.know(name, r.PersistentVolume)
				k.inUse[name] = true
			}
		}
	}
}

// recordedVolume is the PersistentVolume of a record or a link.
func recordedVolume(path string) string {
	if filepath.Base(path) != recordName {
		return filepath.Base(path)
	}
	return read(path).PersistentVolume
}

// read returns the zero record if the file cannot be read.
func read(path string) record {
	var r record
	if data, err := os.ReadFile(path); err != nil || json.Unmarshal(data, &r) != nil {
		return record{}
	}
	return r
}

type record struct {
	Driver           string `json:"driverName"`
	Handle           string `json:"volumeHandle"`
	PersistentVolume string `json:"specVolID"`
	Lifecycle        string `json:"volumeLifecycleMode,omitempty"`
}

func (v *volume) write(path, lifecycle string) error {
	data, err := json.Marshal(record{v.driver, v.Handle, v.PersistentVolume, lifecycle})
	if err != nil {
		return fmt.Errorf("encoding a record: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("creating the directory of a record: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return nil
}

// stage writes the record and calls the driver.
func (k *Kubelet) stage(ctx context.Context, v *volume) error {
	if err := v.write(v.stageRecord(), ""); err != nil {
		return err
	}
	if err := os.MkdirAll(v.stagingPath(), 0o750); err != nil {
		return fmt.Errorf("creating the staging path: %w", err)
	}
	return k.call(ctx, v, func(ctx context.Context, d driver.Driver) error {
		return d.Stage(ctx, driver.StageRequest{Volume: v.Volume, StagingPath: v.stagingPath()})
	})
}

// publish writes the record and calls the driver. For a device, the link comes last, as in a kubelet.
func (k *Kubelet) publish(ctx context.Context, v *volume, pod *corev1.Pod) error {
	uid := string(pod.UID)
	target := v.targetPath(uid)
	if !v.block() {
		if err := v.write(v.podRecord(uid), "Persistent"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("creating the directory of the target: %w", err)
	}
	err := k.call(ctx, v, func(ctx context.Context, d driver.Driver) error {
		return d.Publish(ctx, driver.PublishRequest{Volume: v.Volume, StagingPath: v.stagingPath(), TargetPath: target})
	})
	if err != nil {
		return err
	}
	if v.block() {
		if err := os.MkdirAll(filepath.Dir(v.podRecord(uid)), 0o750); err != nil {
			return fmt.Errorf("creating the directory of the link: %w", err)
		}
		if err := os.Symlink(target, v.podRecord(uid)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("linking the device: %w", err)
		}
	}
	return k.started(ctx, pod)
}

// unpublish calls the driver and then removes the record.
func (k *Kubelet) unpublish(ctx context.Context, v *volume, uid string) error {
	err := k.call(ctx, v, func(ctx context.Context, d driver.Driver) error {
		return d.Unpublish(ctx, driver.UnpublishRequest{Handle: v.Handle, Mode: v.Mode, TargetPath: v.targetPath(uid)})
	})
	if err != nil {
		return err
	}
	if v.block() {
		return remove(v.podRecord(uid))
	}
	return remove(v.podRecord(uid), filepath.Dir(v.podRecord(uid)))
}

// unstage calls the driver, unless the volume is mounted elsewhere, and then removes the record.
func (k *Kubelet) unstage(ctx context.Context, v *volume) error {
	// A device may have been published for a pod before its link exists.
	leftovers, err := filepath.Glob(v.targetPath("*"))
	if err != nil {
		return err
	}
	for _, target := range leftovers {
		if v.block() {
			if err := k.unpublish(ctx, v, filepath.Base(target)); err != nil {
				return err
			}
		}
	}
	if _, err := os.Stat(v.stageRecord()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if others, err := v.references(); err != nil || len(others) > 0 {
		return errors.Join(err, fmt.Errorf("%q still refer to %s", others, v.name))
	}
	err = k.call(ctx, v, func(ctx context.Context, d driver.Driver) error {
		return d.Unstage(ctx, driver.UnstageRequest{Handle: v.Handle, Mode: v.Mode, StagingPath: v.stagingPath()})
	})
	if err != nil {
		return err
	}
	if err := remove(v.stagingPath(), v.stageRecord(), filepath.Dir(v.stageRecord())); err != nil || !v.block() {
		return err
	}
	return remove(v.globalMap(), filepath.Dir(v.globalMap()))
}

// references are what a kubelet checks before it unstages: other mounts of the staged filesystem or, for a device,
// device nodes in its global map path.
func (v *volume) references() ([]string, error) {
	if v.block() {
		return devicesIn(v.globalMap())
	}
	table, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	at := slices.IndexFunc(table, func(m mount.MountInfo) bool { return m.MountPoint == v.stagingPath() })
	if at < 0 {
		return nil, nil
	}
	var others []string
	for _, m := range table {
		if m.Major == table[at].Major && m.Minor == table[at].Minor && m.MountPoint != v.stagingPath() {
			others = append(others, m.MountPoint)
		}
	}
	return others, nil
}

// devicesIn lists the directory entries that are device nodes. As in a kubelet, a bind of a device is not one:
// its entry is the file beneath it (kubernetes#123119).
func devicesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the users of a device: %w", err)
	}
	var devices []string
	for _, e := range entries {
		if e.Type()&fs.ModeDevice != 0 {
			devices = append(devices, filepath.Join(dir, e.Name()))
		}
	}
	return devices, nil
}

// call runs one driver call.
func (k *Kubelet) call(ctx context.Context, v *volume, call func(context.Context, driver.Driver) error) error {
	d, ok := k.Drivers.Get(v.driver)
	if !ok {
		return fmt.Errorf("driver %s is not registered on node %s", v.driver, k.Node)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, d)
}

func remove(paths ...string) error {
	var failed []error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("removing: %w", err))
		}
	}
	return errors.Join(failed...)
}
