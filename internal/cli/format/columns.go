/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package format

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// column is a title and what is below it.
type column struct {
	title string
	path  *jsonpath.JSONPath
}

// columns prints a table whose columns are chosen as with kubectl: TITLE:PATH,..., or from a file with the titles in
// its first line and the paths in its second.
func columns(name, spec string) (Print, error) {
	if spec == "" {
		return nil, fmt.Errorf("--output %s has no columns, want %s=TITLE:PATH", name, name)
	}
	titles, paths, err := read(name, spec)
	if err != nil {
		return nil, err
	}
	var all []column
	for i, path := range paths {
		if !strings.HasPrefix(path, "{") {
			path = "{." + strings.TrimPrefix(path, ".") + "}"
		}
		c := column{titles[i], jsonpath.New(titles[i]).AllowMissingKeys(true)}
		if err := c.path.Parse(path); err != nil {
			return nil, fmt.Errorf("column %s of --output: %w", c.title, err)
		}
		all = append(all, c)
	}
	return func(w io.Writer, document any, _ []metav1.PartialObjectMetadata) error {
		content, err := contentOf(document)
		if err != nil {
			return err
		}
		return table(w, all, rowsOf(content))
	}, nil
}

// read returns as many titles as paths.
func read(name, spec string) (titles, paths []string, err error) {
	if name == "custom-columns-file" {
		data, err := os.ReadFile(spec)
		if err != nil {
			return nil, nil, err
		}
		head, rest, _ := strings.Cut(string(data), "\n")
		if titles, paths = strings.Fields(head), strings.Fields(rest); len(titles) != len(paths) || len(titles) == 0 {
			return nil, nil, fmt.Errorf("%s has %d titles and %d paths, want as many, on two lines", spec, len(titles),
				len(paths))
		}
		return titles, paths, nil
	}
	for part := range strings.SplitSeq(spec, ",") {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" || path == "" {
			return nil, nil, fmt.Errorf("column %q of --output, want TITLE:PATH", part)
		}
		titles, paths = append(titles, title), append(paths, path)
	}
	return titles, paths, nil
}

// rowsOf are what a document lists, or the document itself.
func rowsOf(content map[string]any) []any {
	for _, list := range []string{"items", "reports", "findings"} {
		if rows, ok := content[list].([]any); ok {
			return rows
		}
	}
	return []any{content}
}

func table(w io.Writer, columns []column, rows []any) error {
	out := printers.GetNewTabWriter(w)
	line := func(cell func(column) (string, error)) error {
		var cells []string
		for _, c := range columns {
			text, err := cell(c)
			if err != nil {
				return err
			}
			cells = append(cells, text)
		}
		_, err := fmt.Fprintln(out, strings.Join(cells, "\t"))
		return err
	}
	err := line(func(c column) (string, error) { return c.title, nil })
	for _, row := range rows {
		err = errors.Join(err, line(func(c column) (string, error) { return c.of(row) }))
	}
	return errors.Join(err, out.Flush())
}

// of is what a column has of a row, in one line.
func (c column) of(row any) (string, error) {
	results, err := c.path.FindResults(row)
	if err != nil {
		return "", fmt.Errorf("column %s: %w", c.title, err)
	}
	var texts []string
	for _, list := range results {
		for _, value := range list {
			texts = append(texts, textOf(value))
		}
	}
	if len(texts) == 0 {
		return "<none>", nil
	}
	return strings.Join(texts, ","), nil
}

func textOf(value reflect.Value) string {
	if !value.IsValid() || value.Kind() == reflect.Interface && value.IsNil() {
		return "<none>"
	}
	return strings.Join(strings.Fields(fmt.Sprint(value.Interface())), " ")
}
