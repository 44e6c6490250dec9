/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// FindSystem finds Hawser's namespace, unless it is set. The VolumeManager has it. Without a VolumeManager, as where no
// operator runs, it is that of the only Lease of a leading manager. A user who may read neither gets the default.
func (g *Gatherer) FindSystem(ctx context.Context) error {
	if g.System != "" {
		return nil
	}
	installed, err := g.Reader.Installed(ctx)
	if err == nil {
		g.findSystem(ctx, installed)
	}
	return err
}

func (g *Gatherer) findSystem(ctx context.Context, installed bool) {
	if g.System != "" {
		return
	}
	g.System = volumesv1alpha1.InstallNamespace
	if !installed {
		return
	}
	m := get[volumesv1alpha1.VolumeManager](ctx, g, KindManager, "", volumesv1alpha1.VolumeManagerName)
	if m.Found && m.Value.Status.Namespace != "" {
		g.System = m.Value.Status.Namespace
		return
	}
	lease := get[coordinationv1.Lease](ctx, g, KindLease, g.System, ManagerLease)
	if !Absent(lease.Err) {
		return
	}
	leases, err := list[coordinationv1.LeaseList](ctx, g, "Leases of managers", client.MatchingFields{
		"metadata.name": ManagerLease})
	if err == nil && len(leases.Items) == 1 {
		g.System = leases.Items[0].Namespace
	}
}
