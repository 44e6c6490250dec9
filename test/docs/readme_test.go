/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

// ofWhy is the report of which README.md shows the beginning. internal/cli makes it of a cluster without Hawser.
const ofWhy = "internal/cli/testdata/why/pod-multi-attach-dead-node.txt"

func TestTheFirstReportOfTheReadmeIsOneOfThePlugin(t *testing.T) {
	printed := linesOf(t, ofWhy)
	page := linesOf(t, "README.md")
	at := slices.Index(page, "    $ kubectl hawser why pod web -n shop")
	if at < 0 {
		t.Fatal("README.md has no session with why any more")
	}
	shown := page[at+1:]
	end := slices.IndexFunc(shown, func(line string) bool { return line != "" && !strings.HasPrefix(line, "    ") })
	shown = shown[:end-1]
	if len(shown) < 10 {
		t.Errorf("README.md shows %d lines of the report, want its cause", len(shown))
	}
	for i, line := range shown {
		beginning, cut := strings.CutSuffix(strings.TrimPrefix(line, "    "), " ...")
		if printed[i] != beginning && !(cut && strings.HasPrefix(printed[i], beginning)) {
			t.Errorf("line %d of the report in README.md:\n%s\nwant\n%s", i+1, beginning, printed[i])
		}
	}
}

func linesOf(t *testing.T, name string) []string {
	t.Helper()
	return strings.Split(read(t, filepath.Join(apiserver.Root(), name)), "\n")
}
