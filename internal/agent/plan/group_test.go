/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
)

func TestWhoseGroupTheFilesOfAVolumeGet(t *testing.T) {
	one, two := ptr.To[int64](1), ptr.To[int64](2)
	use := func(uid types.UID, group *int64, phase record.Phase) record.Use {
		return record.Use{Intent: volumesv1alpha1.IntentReference{UID: uid},
			Mount: &volumesv1alpha1.MountSpec{FSGroup: group}, Phase: phase}
	}
	readOnly := use("first", one, record.PhaseDone)
	readOnly.ReadOnly = true
	refused := use("first", one, record.PhaseNone)
	refused.Mount.Options = []string{"suid"}
	for _, c := range []struct {
		name   string
		uses   []record.Use
		mounts bool
		policy storagev1.FSGroupPolicy
		// want lists those that must wait.
		want []types.UID
	}{
		{"one group", []record.Use{use("first", one, record.PhaseDone), use("second", one, record.PhaseNone)}, false,
			"", nil},
		{"what is not published yet, by age", []record.Use{use("first", one, record.PhaseNone),
			use("second", two, record.PhaseNone)}, false, "", []types.UID{"second"}},
		{"what is published holds over what is older", []record.Use{use("first", one, record.PhaseNone),
			use("second", two, record.PhaseDone)}, false, "", []types.UID{"first"}},
		{"what may be published too", []record.Use{use("first", one, record.PhaseNone),
			use("second", two, record.PhaseUncertain)}, false, "", []types.UID{"first"}},
		{"no group", []record.Use{use("first", nil, record.PhaseDone), use("second", two, record.PhaseNone)}, false, "",
			nil},
		{"a read-only publication sets no group", []record.Use{readOnly, use("second", two, record.PhaseNone)}, false,
			"", nil},
		{"but where the driver sets it", []record.Use{readOnly, use("second", two, record.PhaseNone)}, true, "",
			[]types.UID{"second"}},
		{"no group is set where the policy forbids it", []record.Use{use("first", one, record.PhaseDone),
			use("second", two, record.PhaseNone)}, false, storagev1.NoneFSGroupPolicy, nil},
		{"an intent that is refused decides nothing", []record.Use{refused, use("second", two, record.PhaseNone)},
			false, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := plantest.Situation()
			f.Entry.FSType, f.Entry.AccessModes, f.Entry.FSGroupPolicy = "ext4", []corev1.PersistentVolumeAccessMode{
				corev1.ReadWriteOnce,
			}, c.policy
			f.DriverSetsGroup, f.Record.Uses = c.mounts, c.uses
			var waiting []types.UID
			for _, u := range c.uses {
				if f.GroupConflict(u) != nil {
					waiting = append(waiting, u.Intent.UID)
				}
			}
			if !slices.Equal(waiting, c.want) {
				t.Errorf("what waits for the driver: %v, want %v", waiting, c.want)
			}
		})
	}
}
