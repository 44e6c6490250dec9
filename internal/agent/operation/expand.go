/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/driver"
)

var expandStep = step{
	operation: "expand", event: eventResizeFailed, logged: true, session: true, reportFirst: true, seeded: true,
	run: func(ctx context.Context, env *Environment, v *Volume, f plan.Facts, _ types.UID) error {
		return env.expand(ctx, v, f)
	},
}

// expand lets the node see a larger capacity while the volume is in use.
func (env *Environment) expand(ctx context.Context, v *Volume, f plan.Facts) error {
	r := v.Record
	d, err := env.driverOf(v)
	if err != nil {
		return err
	}
	e, ok := d.(driver.Expander)
	if !ok {
		return nil
	}
	secrets, err := env.secrets(ctx, f.VolumeSource().ExpandSecret)
	if err != nil {
		return err
	}
	req := driver.ExpandRequest{Volume: env.request(f), StagingPath: r.Stage.Path, Path: f.ExpandPath(),
		Capacity: *f.VolumeSource().Capacity, Secrets: secrets}
	var seen resource.Quantity
	err = env.Call(ctx, v, f, "expand", req.Path, func(ctx context.Context) error {
		var err error
		seen, err = e.Expand(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	if seen.IsZero() || seen.Cmp(*f.VolumeSource().Capacity) < 0 {
		seen = *f.VolumeSource().Capacity // the driver reports no capacity, or subtracts the filesystem's own needs
	}
	r.Capacity = &seen
	env.announceExpanded(v, f)
	return nil
}

func (env *Environment) announceExpanded(v *Volume, f plan.Facts) {
	for _, i := range f.Wanting() {
		env.Event(i, corev1.EventTypeNormal, EventResized, "Expand",
			"the node sees "+plan.QuantityText(v.Record.Capacity))
	}
}
