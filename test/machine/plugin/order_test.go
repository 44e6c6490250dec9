/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plugin

import (
	"reflect"
	"slices"
	"testing"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

func call(number int64, method, target, code string) []ledger.Entry {
	entries := []ledger.Entry{{Seq: number, Call: number, Phase: ledger.Start, Method: method, Volume: "s#v",
		TargetPath: target}}
	if code != "" {
		entries = append(entries, ledger.Entry{Seq: number + 1, Call: number, Phase: ledger.Effect, Method: method,
			Volume: "s#v", TargetPath: target, Code: code})
	}
	return entries
}

func TestWhatIsPublishedFollowsFromTheLedger(t *testing.T) {
	publish, unpublish := "NodePublishVolume", "NodeUnpublishVolume"
	done := call(1, publish, "/a", "OK")
	tests := map[string]struct {
		calls [][]ledger.Entry
		want  []string
	}{
		"published":             {[][]ledger.Entry{call(3, publish, "/b", "OK"), done}, []string{"/a", "/b"}},
		"a publish failed":      {[][]ledger.Entry{call(1, publish, "/a", "Internal")}, []string{"/a"}},
		"a publish was refused": {[][]ledger.Entry{call(1, publish, "/a", "FailedPrecondition")}, nil},
		"another was refused":   {[][]ledger.Entry{done, call(3, publish, "/a", "AlreadyExists")}, []string{"/a"}},
		"a publish is running":  {[][]ledger.Entry{call(1, publish, "/a", "")}, []string{"/a"}},
		"unpublished":           {[][]ledger.Entry{done, call(3, unpublish, "/a", "OK")}, nil},
		"an unpublish failed":   {[][]ledger.Entry{done, call(3, unpublish, "/a", "Internal")}, []string{"/a"}},
		"an unpublish runs":     {[][]ledger.Entry{done, call(3, unpublish, "/a", "")}, []string{"/a"}},
		"rebooted":              {[][]ledger.Entry{done, {{Phase: ledger.Note, Method: ledger.Reboot}}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var entries []ledger.Entry
			for _, c := range test.calls {
				entries = append(entries, c...)
			}
			if got := PublishedOn(entries)["s#v"]; !reflect.DeepEqual(got, test.want) {
				t.Errorf("published at %v, want %v", got, test.want)
			}
		})
	}
}

func TestCallsOutOfOrderAreFoundInTheLedger(t *testing.T) {
	refused, done := call(1, "NodePublishVolume", "/a", "FailedPrecondition"), call(3, "NodePublishVolume", "/a", "OK")
	if got := OutOfOrder(slices.Concat(refused, done)); len(got) != 1 || got[0].Entry.Call != 1 {
		t.Errorf("calls out of order: %+v, want the first", got)
	}
}
