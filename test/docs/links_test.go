/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// notOfAnchor is what the forge leaves out of a heading to make its anchor.
	notOfAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	root := apiserver.Root()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the pages: %v", err)
	}
	found := 0
	for page := range strings.FieldsSeq(string(out)) {
		for _, match := range link.FindAllStringSubmatch(read(t, filepath.Join(root, page)), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			found++
			name := filepath.Join(root, filepath.Dir(page), target)
			if target == "" {
				name = filepath.Join(root, page)
			}
			info, err := os.Stat(name)
			if err != nil {
				t.Errorf("%s links to %s: %v", page, match[1], err)
				continue
			}
			if anchor != "" && (info.IsDir() || !anchors(read(t, name))[anchor]) {
				t.Errorf("%s links to %s, and there is no such heading", page, match[1])
			}
		}
	}
	if found < 500 {
		t.Errorf("found %d links between pages, want those of all pages", found)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchors of the headings of a page, as the forge makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		plain := link.ReplaceAllString(strings.ReplaceAll(match[1], "`", ""), "]")
		name := strings.ToLower(notOfAnchor.ReplaceAllString(plain, ""))
		all[strings.ReplaceAll(strings.TrimSpace(name), " ", "-")] = true
	}
	return all
}
