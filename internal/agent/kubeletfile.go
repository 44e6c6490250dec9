/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// kubeletFile is what the agent remembers of the volumes that the kubelet uses: which attachment each belongs to,
// and what tells it from a later use of the same volume.
type kubeletFile struct {
	Schema int                   `json:"schema"`
	BootID string                `json:"bootID"`
	Uses   map[string]kubeletUse `json:"uses"`
}

func (s *store) kubeletPath() string { return s.dir + "-of-kubelet" + recordSuffix }

// loadKubelet returns nil where nothing was saved, or what was cannot be read.
func (s *store) loadKubelet(bootID string) (map[string]kubeletUse, error) {
	data, err := os.ReadFile(s.kubeletPath())
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
	s.remember(s.kubeletPath(), data)
	if f.Uses == nil {
		f.Uses = map[string]kubeletUse{}
	}
	if f.BootID != bootID {
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

// saveKubelet writes the file if it says something else than before. Nobody to tell of and no file are the same.
func (s *store) saveKubelet(now func() kubeletFile) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	f := now()
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the kubelet's volumes: %w", err)
	}
	path := s.kubeletPath()
	last := s.last(path)
	if bytes.Equal(last, data) || last == nil && len(f.Uses) == 0 {
		return nil
	}
	if err := s.replace(path, data); err != nil {
		s.remember(path, nil)
		return fmt.Errorf("writing the kubelet's volumes: %w", err)
	}
	s.remember(path, data)
	return nil
}
