/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hawser-io/hawser/internal/agent/record"
)

const (
	recordName = "vol_data.json"
	// ephemeralLifecycle is what the record of an inline volume has.
	ephemeralLifecycle = "Ephemeral"
	// longestRecord is much more than a record has.
	longestRecord = 1 << 20
)

// stageRecord is what the kubelet writes before it calls a driver and removes after the driver has undone everything.
type stageRecord struct {
	DriverName   string `json:"driverName"`
	VolumeHandle string `json:"volumeHandle"`
	SpecVolID    string `json:"specVolID"`
	Lifecycle    string `json:"volumeLifecycleMode"`
}

type reader struct {
	root  string
	watch func(dir string) error
	signs []Sign
}

// stages reads the records of what is staged with a filesystem: <driver>/<hash of the handle>/vol_data.json.
func (r *reader) stages() {
	csi := record.Paths{Kubelet: r.root}.CSI()
	for _, driver := range r.list(csi) {
		if driver == "volumeDevices" {
			continue
		}
		for _, name := range r.list(filepath.Join(csi, driver)) {
			if driver == "pv" {
				r.read(filepath.Join(csi, driver, name), Sign{PersistentVolume: name})
				continue
			}
			r.read(filepath.Join(csi, driver, name), Sign{HashDriver: driver, Hash: name})
		}
	}
}

// devices reads the records of block volumes: volumeDevices/<persistent volume>/data/vol_data.json.
func (r *reader) devices() {
	dir := filepath.Join(record.Paths{Kubelet: r.root}.CSI(), "volumeDevices")
	for _, name := range r.list(dir) {
		r.read(filepath.Join(dir, name, "data"), Sign{PersistentVolume: name, Block: true})
	}
}

// pods reads what there is for each pod: records of filesystems and links to devices.
func (r *reader) pods() {
	pods := filepath.Join(r.root, "pods")
	for _, pod := range r.list(pods) {
		volumes := filepath.Join(pods, pod, "volumes", "kubernetes.io~csi")
		for _, name := range r.list(volumes) {
			r.read(filepath.Join(volumes, name), Sign{PersistentVolume: name, Published: true})
		}
		links := filepath.Join(pods, pod, "volumeDevices", "kubernetes.io~csi")
		names := r.list(links)
		if len(names) > 0 {
			r.notice(links)
			names = r.list(links)
		}
		for _, name := range names {
			path := filepath.Join(links, name)
			r.signs = append(r.signs, Sign{Path: path, PersistentVolume: name, Published: true, Block: true,
				Life: "link " + path})
		}
	}
}

// list names what is in a directory. One that is not there is empty; one that cannot be read may hold anything.
func (r *reader) list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		r.signs = append(r.signs, Sign{Path: dir, Life: "directory " + dir, Err: err})
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// notice has the directory watched. What cannot be watched is not known to stay as it is seen.
func (r *reader) notice(dir string) {
	if err := r.watch(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.signs = append(r.signs, Sign{Path: dir, Weak: true, Err: fmt.Errorf("watching: %w", err)})
	}
}

// read reads the record in the directory, if there is one, after the directory is watched.
func (r *reader) read(dir string, s Sign) {
	s.Path, s.Record = filepath.Join(dir, recordName), true
	if _, _, _, err := readRecord(s.Path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return
	}
	r.notice(dir)
	rec, life, written, err := readRecord(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	s.Life, s.Written, s.Err = life, written, err
	if err == nil {
		s.Driver, s.Handle, s.Ephemeral = rec.DriverName, rec.VolumeHandle, rec.Lifecycle == ephemeralLifecycle
		if s.PersistentVolume == "" {
			s.PersistentVolume = rec.SpecVolID
		}
	}
	if s.Hash != "" && err == nil && (s.HashDriver != rec.DriverName || s.Hash != HashOf(rec.VolumeHandle)) {
		other := Sign{Path: s.Path, Record: true, Life: life, HashDriver: s.HashDriver, Hash: s.Hash,
			Err: fmt.Errorf("it speaks of volume %s, which belongs elsewhere", s.Volume())}
		r.signs = append(r.signs, other)
	}
	r.signs = append(r.signs, s)
}

// InlineDriver returns the driver of the inline volume that the kubelet has in the directory; empty where it has none.
func InlineDriver(dir string) string {
	rec, _, _, err := readRecord(filepath.Join(dir, recordName))
	if err != nil || rec.Lifecycle != ephemeralLifecycle {
		return ""
	}
	return rec.DriverName
}

// Written returns what distinguishes the last write of the record from every other.
func Written(path string) (string, error) {
	_, _, written, err := readRecord(path)
	return written, err
}

// readRecord reads one record. life distinguishes it from a later record at that path, written from an earlier version
// of itself.
func readRecord(path string) (rec stageRecord, life, written string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return rec, "record " + path, "", err
	}
	defer f.Close() //nolint:errcheck // only read
	var stat unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME,
		&stat); err != nil {
		return rec, "record " + path, "", fmt.Errorf("reading %s: %w", path, err)
	}
	written = fmt.Sprintf("%d.%09d %d.%09d", stat.Ctime.Sec, stat.Ctime.Nsec, stat.Mtime.Sec, stat.Mtime.Nsec)
	life = fmt.Sprintf("record %d %d.%09d %s", stat.Ino, stat.Btime.Sec, stat.Btime.Nsec, path)
	data, err := io.ReadAll(io.LimitReader(f, longestRecord))
	if err != nil {
		return rec, life, written, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, life, written, fmt.Errorf("parsing %s: %w", path, err)
	}
	if rec.DriverName == "" || rec.VolumeHandle == "" {
		return rec, life, written, fmt.Errorf("parsing %s: it names no volume", path)
	}
	return rec, life, written, nil
}

// HashOf the handle is the name of the directory in which the kubelet stages the volume.
func HashOf(handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return hex.EncodeToString(sum[:])
}
