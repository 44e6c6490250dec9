/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// LastReport is what the agent remembers of its reports, so that it notices that the API server has forgotten some.
type LastReport struct {
	Schema int       `json:"schema"`
	UID    types.UID `json:"uid"`
	// Created is the second in which the state with that UID was created, in Unix time; zero where an earlier version of
	// the agent noted it.
	Created int64 `json:"created,omitempty"`
	// Reports is the number of the last report that was acknowledged when this was written.
	Reports int64 `json:"reports"`
	// Restored: the API server had forgotten some, and no manager has confirmed a session since.
	Restored bool `json:"restored,omitempty"`
	// RestoreID is that of the restore; empty where an earlier version of the agent noted it. An excuse from another one
	// does not count.
	RestoreID types.UID `json:"restoreID,omitempty"`
}

// ForgottenBy reports whether the API server remembers less than was reported to it.
func (l LastReport) ForgottenBy(nvs *volumesv1alpha1.NodeVolumeState) bool {
	switch l.UID {
	case "":
		return false // nothing was reported
	case nvs.UID:
		return nvs.Status.Protocol.Reports < l.Reports
	default:
		// it was reported to, and then one that was made after it
		return nvs.UID != "" && nvs.Status.Protocol.ObservedUID == nvs.UID
	}
}

func (s *Store) lastReportPath() string { return s.Dir + "-last-report" + Suffix }

// LoadLastReport returns the zero value where nothing was saved.
func (s *Store) LoadLastReport() (LastReport, error) {
	data, err := os.ReadFile(s.lastReportPath())
	if errors.Is(err, fs.ErrNotExist) {
		return LastReport{}, nil
	}
	var l LastReport
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err == nil && l.Schema != Schema {
		err = fmt.Errorf("schema %d is not known", l.Schema)
	}
	if err != nil {
		return LastReport{}, fmt.Errorf("reading the number of the last report: %w", err)
	}
	return l, nil
}

// SaveLastReport returns once the number is on the disk.
func (s *Store) SaveLastReport(l LastReport) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the number of the last report: %w", err)
	}
	if err := s.Replace(s.lastReportPath(), data); err != nil {
		return fmt.Errorf("writing the number of the last report: %w", err)
	}
	return nil
}
