/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// kubeletFile is what the agent remembers of the volumes that the kubelet uses: which attachment each belongs to,
// and what tells it from a later use of the same volume.
type kubeletFile struct {
	Schema int                   `json:"schema"`
	BootID string                `json:"bootID"`
	Uses   map[string]kubeletUse `json:"uses"`
}

// useFile is the file's place beside the agent's records.
func (o *observer) useFile() sideFile { return o.Store.file("-of-kubelet") }

// load returns nil where nothing was saved, or what was cannot be read.
func (o *observer) load() (map[string]kubeletUse, error) {
	data, err := o.useFile().read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubelet's volumes: %w", err)
	}
	var f kubeletFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parsing the kubelet's volumes: %w", err)
	}
	if f.Schema != recordSchema {
		return nil, fmt.Errorf("parsing the kubelet's volumes: schema %d is not known", f.Schema)
	}
	o.useFile().unchanged(data)
	if f.Uses == nil {
		f.Uses = map[string]kubeletUse{}
	}
	if f.BootID != o.BootID {
		f.forgetMounts()
	}
	return f.Uses, nil
}

// forgetMounts drops what an earlier boot had mounted; the kubelet's records are still there.
func (f *kubeletFile) forgetMounts() {
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

// saveKubeletUses keeps on disk which attachment each use belongs to.
func (o *observer) saveKubeletUses() error {
	err := o.useFile().update(func() ([]byte, bool, error) {
		last, _ := o.lastSeen()
		data, err := json.MarshalIndent(kubeletFile{Schema: recordSchema, BootID: o.BootID, Uses: last.uses}, "", "  ")
		return data, len(last.uses) == 0, err
	})
	if err != nil {
		return fmt.Errorf("writing the kubelet's volumes: %w", err)
	}
	return nil
}

// recover takes up which attachments the kubelet's uses belong to: from the disk, or where the disk says nothing,
// from the API.
func (o *observer) recover(nvs *volumesv1alpha1.NodeVolumeState) {
	uses, err := o.load()
	if err != nil {
		o.Log.Error(err, "the file about the kubelet's volumes is unreadable, the API tells of them")
	}
	if uses == nil {
		uses = map[string]kubeletUse{}
		for _, line := range nvs.Status.Volumes {
			if line.PublishedBy == volumesv1alpha1.PublisherKubelet {
				uses[line.VolumeName] = kubeletUse{AttachmentUID: line.AttachmentUID, StagedPath: line.StagedPath, DevicePath: line.DevicePath}
			}
		}
	}
	o.known(uses)
}
