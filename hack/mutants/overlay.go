/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tree is the source with all mutants in it, each disabled. It does not replace the real source: it is go's -overlay.
type tree struct {
	top, work string
	files     map[string][]byte // by path below top
	finders   map[string]*finder
	mutants   []mutant
	// broken are mutants that do not compile.
	broken map[int]bool
}

// runtime enables mutants. Each package gets a copy, so that no import has to be added.
const runtime = `package %s

import (
	"os"
	"strconv"
	"sync"
%s)

var mutantNumber = func() int {
	if n, err := strconv.Atoi(os.Getenv("HAWSER_MUTANT")); err == nil {
		return n
	}
	return -1
}()

var mutantsReached struct {
	sync.Mutex
	file  *os.File
	known map[int]bool
}

func init() {
	name := os.Getenv("HAWSER_MUTANTS_REACHED")
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	mutantsReached.file, mutantsReached.known = file, map[int]bool{}
}

func mutantOn(n int) bool {
	if mutantsReached.file != nil {
		mutantsReached.Lock()
		if !mutantsReached.known[n] {
			mutantsReached.known[n] = true
			_, _ = mutantsReached.file.WriteString(strconv.Itoa(n) + "\n")
		}
		mutantsReached.Unlock()
	}
	return n == mutantNumber
}

func mutantBool[T ~bool](n int, other bool, is T) T {
	if mutantOn(n) {
		return T(other)
	}
	return is
}

func mutantNot(n int, is bool) bool { return is != mutantOn(n) }

func mutantElse(n int, other, is func() bool) bool {
	if mutantOn(n) {
		return other()
	}
	return is()
}

func mutantNoError(n int, err error) error {
	if mutantOn(n) {
		return nil
	}
	return err
}

func mutantZero[T any](n int, is T) T {
	if mutantOn(n) {
		var zero T
		return zero
	}
	return is
}
%s`

const readerRuntime = `
func mutantReader(n int, cached, live client.Reader) client.Reader {
	if mutantOn(n) {
		return cached
	}
	return live
}
`

// read finds the mutants of the files.
func read(top, work string, paths []string) (*tree, error) {
	t := &tree{top: top, work: work, files: map[string][]byte{}, finders: map[string]*finder{}, broken: map[int]bool{}}
	for _, path := range paths {
		source, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			return nil, err
		}
		f, err := find(path, source, &t.mutants)
		if err != nil {
			return nil, err
		}
		t.files[path], t.finders[path] = source, f
	}
	return t, nil
}

// write writes the overlay and returns go's option for it.
func (t *tree) write() (string, error) {
	replace := map[string]string{}
	put := func(path string, content []byte) error {
		to := filepath.Join(t.work, "overlay", path)
		replace[filepath.Join(t.top, path)] = to
		if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, content) {
			return nil // so that go need not compile it again
		}
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, content, 0o600))
	}
	reader := map[string]bool{}
	for path, source := range t.files {
		f := t.finders[path]
		dir := filepath.Dir(path)
		reader[dir] = reader[dir] || f.reader
		if err := put(path, apply(source, f.edits, t.broken)); err != nil {
			return "", err
		}
	}
	for dir, live := range reader {
		imports, more := "", ""
		if live {
			imports, more = "\n\t\"sigs.k8s.io/controller-runtime/pkg/client\"\n", readerRuntime
		}
		if err := put(filepath.Join(dir, "zz_mutants.go"),
			fmt.Appendf(nil, runtime, filepath.Base(dir), imports, more)); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(t.work, "overlay.json")
	return "-overlay=" + name, os.WriteFile(name, list, 0o600)
}

// apply makes the edits. Lines keep their numbers, so that the compiler's messages refer to lines of the source.
func apply(source []byte, edits []edit, broken map[int]bool) []byte {
	type insertion struct {
		at, order int
		text      string
	}
	var all []insertion
	for i, e := range edits {
		if broken[e.mutant] {
			continue
		}
		// At one offset, closing edits come before opening ones. Of opening edits, the one that closes last comes first.
		all = append(all,
			insertion{at: e.start, order: 1<<40 - e.end<<16 + i, text: e.before},
			insertion{at: e.end, order: -(e.start<<16 + i) - 1, text: e.after})
	}
	slices.SortFunc(all,
		func(a, b insertion) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	var b bytes.Buffer
	at := 0
	for _, i := range all {
		b.Write(source[at:i.at])
		b.WriteString(i.text)
		at = i.at
	}
	b.Write(source[at:])
	return b.Bytes()
}

var compilerSays = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `)

// build compiles the tests of a package, without the mutants that the compiler refuses.
func (t *tree) build(ctx context.Context, pkg string) (binary string, err error) {
	binary = filepath.Join(t.work, strings.ReplaceAll(pkg, "/", "_")+".test")
	for {
		overlay, err := t.write()
		if err != nil {
			return "", err
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", overlay, "-gcflags=-e", "-o", binary, "./"+pkg)
		cmd.Dir = t.top
		out, err := cmd.CombinedOutput()
		if err == nil {
			return binary, nil
		}
		if !t.leaveOut(string(out)) {
			return "", fmt.Errorf("building the tests of %s: %w\n%s", pkg, err, out)
		}
	}
}

// leaveOut disables the mutants in the compiler's errors: first fields, whose values may be untyped constants, then all
// mutants of the line. It returns false if there are none.
func (t *tree) leaveOut(compiler string) bool {
	more := false
	for _, m := range compilerSays.FindAllStringSubmatch(compiler, -1) {
		line, err := strconv.Atoi(m[2])
		if err != nil {
			continue
		}
		var there, fields []int
		for i, mutant := range t.mutants {
			if t.broken[i] || !strings.HasSuffix(m[1], mutant.file) || line < mutant.line || line > mutant.end {
				continue
			}
			there = append(there, i)
			if strings.Contains(mutant.ID, ": field ") {
				fields = append(fields, i)
			}
		}
		if len(fields) > 0 {
			there = fields
		}
		for _, i := range there {
			t.broken[i], more = true, true
		}
	}
	return more
}
