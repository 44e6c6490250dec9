/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// command of a page, complete as the shell reads it.
type command struct {
	page, text string
	line       int
}

func (c command) String() string { return fmt.Sprintf("%s:%d: %s", c.page, c.line, c.text) }

// commandsOf a page: those in its blocks of code and those in its sentences.
func commandsOf(t *testing.T, page, text string) []command {
	t.Helper()
	var all []command
	for _, b := range split(text) {
		if b.code {
			all = append(all, b.commands(t, page)...)
			continue
		}
		whole := strings.Join(b.lines, "\n")
		for _, at := range span.FindAllStringSubmatchIndex(whole, -1) {
			found := strings.Join(strings.Fields(whole[at[2]:at[3]]), " ")
			all = append(all, command{page: page, text: strings.ReplaceAll(found, `\|`, "|"),
				line: b.begin + strings.Count(whole[:at[2]], "\n")})
		}
	}
	return all
}

// span is a command in a sentence. It may go on in the next line.
var span = regexp.MustCompile("`(kubectl\\s[^`]+)`")

// block of lines, of code or of prose.
type block struct {
	code  bool
	begin int
	lines []string
}

// split finds the blocks of code: fenced, or indented by four columns more than the list around them and after an empty
// line.
func split(text string) []block {
	var blocks []block
	fenced, empty := false, true
	indent := 0
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		columns := len(line) - len(trimmed)
		fence := strings.HasPrefix(trimmed, "```")
		last := len(blocks) - 1
		inCode := last >= 0 && blocks[last].code
		code := fenced && !fence || !fenced && trimmed != "" && columns >= indent+4 && (empty || inCode)
		if trimmed == "" && inCode {
			code = true
		}
		if marker := listItem.FindString(line); marker != "" && !code {
			indent = len(marker)
		} else if trimmed != "" && columns < indent && !code {
			indent = 0
		}
		if fence {
			fenced = !fenced
		}
		if last < 0 || inCode != code {
			blocks = append(blocks, block{code: code, begin: i + 1})
			last++
		}
		blocks[last].lines = append(blocks[last].lines, line)
		empty = trimmed == ""
	}
	return blocks
}

var listItem = regexp.MustCompile(`^ *([-*]|\d+\.) +`)

// commands of a block of code. Where lines begin with a prompt, the others are answers.
func (b block) commands(t *testing.T, page string) []command {
	t.Helper()
	if !strings.Contains(strings.Join(b.lines, "\n"), "kubectl") {
		return nil
	}
	session := slices.ContainsFunc(b.lines, func(line string) bool {
		return strings.HasPrefix(strings.TrimSpace(line), "$ ")
	})
	var all []command
	for i := 0; i < len(b.lines); i++ {
		first := strings.TrimSpace(b.lines[i])
		if session != strings.HasPrefix(first, "$ ") {
			continue
		}
		length := complete(t, b.lines[i:])
		text := dedent(b.lines[i : i+length])
		if strings.Contains(withoutComments(text), "kubectl ") && startsCommand.MatchString(text) {
			all = append(all, command{page: page, line: b.begin + i, text: text})
			i += length - 1
		}
	}
	return all
}

// startsCommand distinguishes a command from YAML and other text that contains one.
var startsCommand = regexp.MustCompile(`^(kubectl|for|while|export)\b`)

// complete is how many lines the command that begins with the first one has: as many as the shell needs.
func complete(t *testing.T, lines []string) int {
	t.Helper()
	for n := 1; n <= len(lines); n++ {
		if strings.HasSuffix(lines[n-1], `\`) {
			continue
		}
		// A document that does not end is only a warning.
		output, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", dedent(lines[:n])).CombinedOutput()
		if err == nil && len(output) == 0 {
			return n
		}
	}
	return 1
}

func dedent(lines []string) string {
	columns := len(lines[0]) - len(strings.TrimLeft(lines[0], " "))
	var all []string
	for _, line := range lines {
		all = append(all, line[min(columns, len(line)-len(strings.TrimLeft(line, " "))):])
	}
	return strings.TrimPrefix(strings.Join(all, "\n"), "$ ")
}

var comment = regexp.MustCompile(`(?m)(^|\s)#.*$`)

func withoutComments(text string) string {
	return strings.TrimSpace(comment.ReplaceAllString(text, ""))
}

// pages of the documentation, from the root of the repository. The commands of the findings are made of the catalog:
// internal/cli tests that they are possible where the finding is.
func pages(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/clusters/*.md", "docs/runbooks/*.md",
		"docs/reference/*.md", "examples/README.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("pages %s: %v, %v; want some", pattern, found, err)
		}
		for _, name := range found {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if page, _ := filepath.Rel(root, name); page != "docs/reference/findings.md" {
				all[page] = string(text)
			}
		}
	}
	return all
}

func TestCommandsAreFoundInBlocksAndInSentences(t *testing.T) {
	const page = `# Page

Run ` + "`kubectl get\nvai`" + `, then:

    kubectl get nvs   # the nodes
    kubectl patch hvm cluster -p '[
      {"op":"add"}]'
    kubectl get vai \
      -o wide
    kubectl replace -f - <<'EOF'
    a: b
    EOF

1. A step:

       kubectl get pods

A session:

    $ kubectl hawser doctor
    kubectl get what the doctor prints
`
	var got []string
	for _, c := range commandsOf(t, "page", page) {
		got = append(got, fmt.Sprintf("%d %s", c.line, c.text))
	}
	want := []string{"3 kubectl get vai", "6 kubectl get nvs   # the nodes",
		"7 kubectl patch hvm cluster -p '[\n  {\"op\":\"add\"}]'", "9 kubectl get vai \\\n  -o wide",
		"11 kubectl replace -f - <<'EOF'\na: b\nEOF", "17 kubectl get pods", "21 kubectl hawser doctor"}
	if !slices.Equal(got, want) {
		t.Errorf("commands:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
