/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package tree

import (
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// managerTree shows the VolumeManager with its conditions, the leaders, and the agents by nodes.
func managerTree(f *facts.Facts) Branch {
	m := f.Manager.Value
	root := Branch{Object: f.Subject.String(), Text: "attach mode " + string(m.Spec.AttachMode)}
	for _, c := range m.Status.Conditions {
		root.add(Branch{Object: c.Type, Text: fmt.Sprintf("%s: %s: %s", c.Status, c.Reason, c.Message)})
	}
	for who, lease := range []facts.Object[*coordinationv1.Lease]{f.OperatorLease, f.ManagerLease} {
		if lease.Found {
			branch := leaseBranch(f, []string{"operator", "manager"}[who], lease.Value)
			branch.Text += ", " + ptr.Deref(lease.Value.Spec.HolderIdentity, "held by none")
			root.add(branch)
		}
	}
	agents := Branch{Object: "agents", Text: fmt.Sprint(len(f.AgentLeases.Items))}
	for i := range f.AgentLeases.Items {
		lease := &f.AgentLeases.Items[i]
		agents.add(leaseBranch(f, facts.KindNode+" "+strings.TrimPrefix(lease.Name, volumesv1alpha1.AgentLeasePrefix), lease))
	}
	root.add(agents)
	return root
}

// leaseBranch shows whether the holder of a Lease is heard.
func leaseBranch(f *facts.Facts, of string, lease *coordinationv1.Lease) Branch {
	if explain.Overdue(lease, f.Now) > 0 {
		return Branch{Object: of, Text: "silent since " + explain.Renewal(lease).UTC().Format("2006-01-02T15:04:05Z")}
	}
	return Branch{Object: of, Text: "renews its Lease"}
}
