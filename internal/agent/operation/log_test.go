/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation_test

import (
	"slices"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"

	"github.com/go-logr/logr/funcr"

	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
)

func TestActsAreLoggedWithVolumeNodeAndIntents(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 1})
	a := &operation.Environment{Options: operation.Options{Log: log.WithValues("node", "n")}}
	f := *plantest.Situation()
	f.Intents = []*volumesv1alpha1.VolumeAttachmentIntent{plantest.Intent("i"), plantest.Intent("j")}
	for _, i := range f.Intents {
		i.Namespace, i.Name = "shop", string(i.UID)
	}
	a.LogStep(&operation.Volume{Name: "v"}, f, plan.Step{Kind: plan.Publish, Intent: "j"})
	a.LogStep(&operation.Volume{Name: "v"}, f, plan.Step{Kind: plan.MarkInUse})
	want := []string{
		`"level"=0 "msg"="running step" "node"="n" "step"="publish" "volume"="v" "intents"=["shop/j"]`,
		`"level"=1 "msg"="running step" "node"="n" "step"="mark-in-use" "volume"="v" "intents"=["shop/i" "shop/j"]`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("logged are the lines %q, want %q", lines, want)
	}
}
