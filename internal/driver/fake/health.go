/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fake

import (
	"context"
	"slices"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// SetHealth sets the result of VolumeHealth for the volume.
func (d *Driver) SetHealth(handle string, problems ...volumesv1alpha1.HealthProblem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[handle]; v != nil {
		v.problems = problems
	}
}

// SetStorageHealth sets the result of StorageHealth.
func (d *Driver) SetStorageHealth(problems ...volumesv1alpha1.HealthProblem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.storage = problems
}

// VolumeHealth implements driver.StatsReader.
func (d *Driver) VolumeHealth(ctx context.Context, req driver.StatsRequest) ([]volumesv1alpha1.HealthProblem, error) {
	var problems []volumesv1alpha1.HealthProblem
	err := d.carryOut(ctx, Call{VolumeHealth, req.Handle, req.Path, req}, func(v *volume) error {
		if v == nil {
			return notFound(req.Handle)
		}
		problems = slices.Clone(v.problems)
		return nil
	})
	if err != nil {
		return nil, err // a call that hangs may still write to problems
	}
	return problems, nil
}

// StorageHealth implements driver.StatsReader.
func (d *Driver) StorageHealth(ctx context.Context) ([]volumesv1alpha1.HealthProblem, error) {
	var problems []volumesv1alpha1.HealthProblem
	err := d.carryOut(ctx, Call{Method: StorageHealth}, func(*volume) error {
		problems = slices.Clone(d.storage)
		return nil
	})
	if err != nil {
		return nil, err // likewise
	}
	return problems, nil
}
