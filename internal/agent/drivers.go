/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"

	"github.com/hawser-io/hawser/internal/agent/operation"
)

// watchDrivers reports drivers that come and go, and lets what waited for one go on.
func (a *Agent) watchDrivers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.Registry.Changed():
		}
		a.state.ReportSoon()
		a.mu.Lock()
		volumes := make([]*operation.Volume, 0, len(a.volumes))
		for _, v := range a.volumes {
			volumes = append(volumes, v)
		}
		a.mu.Unlock()
		for _, v := range volumes {
			v.NoteChange(operation.DriversChanged)
			a.queue.add(v.Name)
		}
	}
}
