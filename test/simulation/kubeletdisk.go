/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	kubeletrecords "github.com/hawser-io/hawser/internal/agent/kubelet"
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
	return m.writeRecordOf(dir, beside, map[string]string{
		"driverName": driverName, "volumeHandle": v.handle(), "specVolID": v.name})
}

func (m *machine) writeRecordOf(dir, beside string, volume map[string]string) error {
	m.world.must(os.MkdirAll(filepath.Join(dir, beside), 0o750))
	data, err := json.Marshal(volume)
	m.world.must(err)
	path := filepath.Join(dir, recordFile)
	m.world.must(os.WriteFile(path, data, 0o600))
	// The real clock may not advance between two writes of virtual time. The agent tells writes apart by their times.
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

// stageRecorded reports whether the kubelet's record of the volume's stage is there.
func (m *machine) stageRecorded(handle string) bool {
	_, err := os.Stat(filepath.Join(m.stageDir(handle), recordFile))
	return err == nil
}

// reconstruct what pods have from their records, as a starting kubelet does. A real kubelet never finds a volume that
// is only staged, and leaves it to the next pod. This one cleans such a stage up some minutes later, in place of an
// administrator. The world is locked.
func (k *kubelet) reconstruct() {
	for name := range volumeModes {
		k.volumes[name] = &podVolume{name: name, published: map[types.UID]bool{}, wake: make(chan struct{}, 1)}
	}
	paths, err := filepath.Glob(k.m.podDir("*", "*") + "/" + recordFile)
	k.m.world.must(err)
	for _, path := range paths {
		if k.m.isInline(path) {
			continue
		}
		name := filepath.Base(filepath.Dir(path))
		uid, _, _ := strings.Cut(strings.TrimPrefix(path, k.m.podsDir()+"/"), "/")
		v := k.volumes[name]
		v.published[types.UID(uid)] = false
		v.attached, v.mayBeStaged = true, true
		k.m.world.chance.reach(reconstructed)
	}
	for _, v := range k.volumes {
		if k.m.stageRecorded(v.handle()) && !v.attached {
			k.m.world.chance.reach(forgotten)
			k.m.world.later(k.p.between(20*time.Second, 3*time.Minute), func() {
				k.set(func() { v.mayBeStaged = true })
				v.rouse()
			})
		}
	}
}
