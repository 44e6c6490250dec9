/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Raced returns the data races and panics in the logs of the programs.
func (s *System) Raced() []string {
	logs, err := filepath.Glob(filepath.Join(s.Dir, "logs", "*.log"))
	if err != nil || len(logs) == 0 {
		return []string{fmt.Sprintf("no logs of the programs: %v", err)}
	}
	var found []string
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			found = append(found, err.Error())
		}
		for _, bad := range []string{"WARNING: DATA RACE", "panic:", "Observed a panic"} {
			if i := strings.Index(string(content), bad); i >= 0 {
				found = append(found, log+": "+string(content[i:min(len(content), i+4000)]))
			}
		}
	}
	return found
}
