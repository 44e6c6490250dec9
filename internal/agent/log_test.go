/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"slices"
	"testing"

	"github.com/go-logr/logr/funcr"
)

func TestActsAreLoggedWithVolumeNodeAndIntents(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 1})
	a := &Environment{StepOptions: StepOptions{Log: log.WithValues("node", "n")}}
	f := attachedAs("1", "i", "j")
	for _, i := range f.intents {
		i.Namespace, i.Name = "shop", string(i.UID)
	}
	a.logAct(&volume{name: "v"}, f, act{verb: doPublish, intent: "j"})
	a.logAct(&volume{name: "v"}, f, act{verb: doTake})
	want := []string{
		`"level"=0 "msg"="acting" "node"="n" "act"="publish" "volume"="v" "intents"=["shop/j"]`,
		`"level"=1 "msg"="acting" "node"="n" "act"="take" "volume"="v" "intents"=["shop/i" "shop/j"]`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("lines: %q", lines)
	}
}
