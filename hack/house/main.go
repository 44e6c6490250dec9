/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// house measures the size of packages, structs and files. It counts how often the prose uses words that slow
// readers down. It prints the figures and fails if one is above its limit, or if a line of a document is too wide.
//
//	go run ./hack/house            # figures and what is above a limit
//	go run ./hack/house -words     # also each line that uses a counted word
package main

import (
	"context"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits for product code: the source of the programs, without tests, test tools and generated code.
const (
	mostFiles = 20
	mostLines = 350
)

// mostColumns of a line of a document. A row of a table has no limit, and the linter sees to source.
const mostColumns = 120

// A word is counted in comments and documents. The limit is per 1,000 words. It is about twice the rate of a well-read
// project of the field.
type word struct {
	name    string
	pattern *regexp.Regexp
	limit   float64
}

var words = []word{
	{"look", regexp.MustCompile(`(?i)\blook(s|ed|ing)?\b`), 1.0},
	{"tell", regexp.MustCompile(`(?i)\b(tell|tells|told|telling)\b`), 0.6},
	{"stand", regexp.MustCompile(`(?i)\b(stand|stands|stood|standing)\b`), 0.4},
	{"says whether", regexp.MustCompile(`(?i)\bsays? whether\b`), 0.4},
	{"of/for/by which", regexp.MustCompile(`(?i)\b(of|for|by) which\b`), 0.4},
	{"nobody, somebody", regexp.MustCompile(`(?i)\b(nobody|somebody)\b`), 0.4},
	{"who, whoever", regexp.MustCompile(`(?i)\b(who|whoever)\b`), 0.8},
}

// text is a comment or a line of a document.
type text struct {
	place string
	text  string
}

type house struct {
	texts []text
	files map[string]int
	lines map[string]int
	// wide are the lines of documents with too many columns.
	wide []string
}

func main() {
	list := flag.Bool("words", false, "print each line that uses a counted word")
	only := flag.String("only", "", "count the words of files below this directory only")
	flag.Parse()
	h := house{files: map[string]int{}, lines: map[string]int{}}
	if err := h.read(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	for _, place := range h.wide {
		fmt.Printf("%s has more than %d columns\n", place, mostColumns)
	}
	failed := h.sizes() || len(h.wide) > 0
	if h.prose(*only, *list) || failed {
		os.Exit(1)
	}
}

// read reads every file that git knows.
func (h *house) read(ctx context.Context) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.md")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing files: %w", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // deleted and not committed
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".md") {
			h.document(path, string(data))
			continue
		}
		if err := h.source(path, data); err != nil {
			return err
		}
	}
	return nil
}

func (h *house) document(path, data string) {
	code := false
	n := 0
	for line := range strings.Lines(data) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if code || strings.HasPrefix(line, "    ") {
			continue
		}
		place := fmt.Sprintf("%s:%d", path, n)
		h.texts = append(h.texts, text{place, strings.TrimSpace(line)})
		if !strings.HasPrefix(line, "|") && utf8.RuneCountInString(strings.TrimRight(line, "\n")) > mostColumns {
			h.wide = append(h.wide, place)
		}
	}
}

func (h *house) source(path string, data []byte) error {
	if strings.Contains(filepath.Base(path), "zz_generated") {
		return nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			p := fset.Position(c.Pos())
			h.texts = append(h.texts, text{fmt.Sprintf("%s:%d", p.Filename, p.Line), strings.Trim(c.Text, "/* \t\n")})
		}
	}
	if !product(path) {
		return nil
	}
	h.files[filepath.Dir(path)]++
	h.lines[path] = strings.Count(string(data), "\n")
	return nil
}

// testTool matches packages with tests of others in their source: controllertest, drivertest, ...
var testTool = regexp.MustCompile(`^internal/.*test/`)

func product(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	inside := slices.Contains([]string{"api", "cmd", "internal", "pkg"}, top)
	return inside && !strings.HasSuffix(path, "_test.go") && !testTool.MatchString(path)
}

// sizes prints the largest of each kind and reports whether one is above its limit.
func (h *house) sizes() bool {
	failed := false
	for _, kind := range []struct {
		name  string
		sizes map[string]int
		most  int
	}{{"files in package", h.files, mostFiles}, {"lines in", h.lines, mostLines}} {
		names := make([]string, 0, len(kind.sizes))
		for name := range kind.sizes {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return kind.sizes[b] - kind.sizes[a] })
		for i, name := range names {
			above := kind.sizes[name] > kind.most
			failed = failed || above
			if i == 0 || above {
				fmt.Printf("%5d %s %s, of at most %d\n", kind.sizes[name], kind.name, name, kind.most)
			}
		}
	}
	return failed
}

// prose prints how often each word is used and reports whether one is above its limit.
func (h *house) prose(only string, list bool) bool {
	total, counts := 0, make([]int, len(words))
	for _, t := range h.texts {
		if !strings.HasPrefix(t.place, only) {
			continue
		}
		total += len(strings.Fields(t.text))
		for i, w := range words {
			n := len(w.pattern.FindAllString(t.text, -1))
			if counts[i] += n; list && n > 0 {
				fmt.Printf("%s: %s: %s\n", t.place, w.name, t.text)
			}
		}
	}
	failed := false
	for i, w := range words {
		rate := 1000 * float64(counts[i]) / float64(max(1, total))
		failed = failed || rate > w.limit
		fmt.Printf("%5d %s in %d words of comments and documents: %.2f in 1,000, of at most %.2f\n",
			counts[i], w.name, total, rate, w.limit)
	}
	return failed
}
