/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// UseFile is what the agent remembers of the volumes that the kubelet uses: which attachment each belongs to, and
// what distinguishes it from a later use of the same volume.
type UseFile struct {
	Schema int                   `json:"schema"`
	BootID string                `json:"bootID"`
	Uses   map[string]TrackedUse `json:"uses"`
}

// File is the file's place beside the agent's records.
func (o *Observer) File() record.File { return o.Store.File("-of-kubelet") }

// load returns nil where nothing was saved, or what was cannot be read.
func (o *Observer) load() (map[string]TrackedUse, error) {
	data, err := o.File().Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubelet's volumes: %w", err)
	}
	var f UseFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parsing the kubelet's volumes: %w", err)
	}
	if f.Schema != record.Schema {
		return nil, fmt.Errorf("parsing the kubelet's volumes: schema %d is not known", f.Schema)
	}
	o.File().Unchanged(data)
	if f.Uses == nil {
		f.Uses = map[string]TrackedUse{}
	}
	if f.BootID != o.BootID {
		f.forgetMounts()
	}
	return f.Uses, nil
}

// forgetMounts drops what an earlier boot had mounted; the kubelet's records are still there.
func (f *UseFile) forgetMounts() {
	for name, u := range f.Uses {
		u.Sources, u.Devices, u.ShutDown, u.ProvenStage = nil, nil, false, ""
		u.EarlierStage, u.StageWritten = u.StageWritten, ""
		u.Life = slices.DeleteFunc(u.Life, func(s string) bool { return strings.HasPrefix(s, "mount ") })
		if len(u.Life) == 0 {
			delete(f.Uses, name)
			continue
		}
		f.Uses[name] = u
	}
}

// Save keeps on disk which attachment each use belongs to.
func (o *Observer) Save() error {
	err := o.File().Update(func() ([]byte, bool, error) {
		last, _ := o.Latest()
		data, err := json.MarshalIndent(UseFile{Schema: record.Schema, BootID: o.BootID, Uses: last.Uses}, "", "  ")
		return data, len(last.Uses) == 0, err
	})
	if err != nil {
		return fmt.Errorf("writing the kubelet's volumes: %w", err)
	}
	return nil
}

// Recover takes up which attachments the kubelet's uses belong to: from the disk, or where the disk says nothing,
// from the API.
func (o *Observer) Recover(nvs *volumesv1alpha1.NodeVolumeState) {
	uses, err := o.load()
	if err != nil {
		o.Log.Error(err, "the file about the kubelet's volumes is unreadable; the uses in the API are taken instead")
	}
	if uses == nil {
		uses = map[string]TrackedUse{}
		for _, line := range nvs.Status.Volumes {
			if line.PublishedBy == volumesv1alpha1.PublisherKubelet {
				uses[line.VolumeName] = TrackedUse{AttachmentUID: line.AttachmentUID, StagedPath: line.StagedPath,
					DevicePath: line.DevicePath}
			}
		}
	}
	o.SetKnown(uses)
}
