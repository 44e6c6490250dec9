/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/driver"
)

var expandStep = step{
	operation: "expand", event: eventResizeFailed, logged: true, session: true, reportFirst: true,
	run: func(ctx context.Context, e *Environment, v *volume, f facts, _ types.UID) error {
		return e.expand(ctx, v, f)
	},
}

// expand lets the node see a larger capacity while the volume is in use.
func (a *Environment) expand(ctx context.Context, v *volume, f facts) error {
	r := v.record
	d, err := a.driverOf(v)
	if err != nil {
		return err
	}
	e, ok := d.(driver.Expander)
	if !ok {
		return nil
	}
	secrets, err := a.secrets(ctx, f.entry.NodeExpandSecretRef)
	if err != nil {
		return err
	}
	req := driver.ExpandRequest{Volume: a.request(f), StagingPath: r.Stage.Path, Path: r.Stage.Path, Capacity: *f.entry.Capacity, Secrets: secrets}
	for _, u := range r.Uses {
		if f.published(u) && !u.ReadOnly {
			req.Path = u.Target
			break
		}
	}
	var seen resource.Quantity
	err = a.call(ctx, v, f, "expand", req.Path, func(ctx context.Context) error {
		var err error
		seen, err = e.Expand(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	if seen.IsZero() || seen.Cmp(*f.entry.Capacity) < 0 {
		seen = *f.entry.Capacity // the driver does not tell, or counts the filesystem's own needs off
	}
	r.Capacity = &seen
	a.announceExpanded(v, f)
	return nil
}

func (a *Environment) announceExpanded(v *volume, f facts) {
	for _, i := range f.wanting() {
		a.event(i, corev1.EventTypeNormal, eventResized, "Expand", "the node sees "+text(v.record.Capacity))
	}
}
