/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// inputs name what an attempt is made with, so that a change of it is tried at once.
func inputs(f plan.Facts, a plan.Step) string {
	var generation int64
	if i := f.Intent(a.Intent); i != nil {
		generation = i.Generation
	}
	entry, err := json.Marshal(f.Entry)
	if err != nil {
		entry = nil // quantities and strings always encode
	}
	inputs := fmt.Sprintf("%d/%s", generation, record.Hash(string(entry)))
	if more := steps[a.Kind].inputs; more != nil {
		inputs += more(f)
	}
	return inputs
}

// otherInputs name what the volume's users decide together: the group and the label of its files.
func otherInputs(f plan.Facts) string {
	inputs := labelInputs(f)
	if holder := f.GroupHolder(); holder != nil {
		inputs += fmt.Sprintf("/%s/%d", holder.Intent.UID, *f.Group(*holder))
	}
	return inputs
}

// labelInputs name what decides the label.
func labelInputs(f plan.Facts) string {
	var holder types.UID
	if u := f.LabelHolder(); u != nil {
		holder = u.Intent.UID
	}
	return fmt.Sprintf("/%s/%s/%s/%t", holder, f.HeldLabel(), f.StageLabel, f.Kubelet != nil)
}
