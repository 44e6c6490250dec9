/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
)

// result is what a command reports.
type result struct {
	// document is the report in JSON and YAML.
	document any
	// text writes it for a person, in columns separated by tabs unless it is plain.
	text  func(io.Writer)
	plain bool
	// findings are what exit code 1 stands for.
	findings int
	// names are the objects that it is about, for -o name.
	names []facts.Ref
	// same is equal as long as the report is; nil for the document.
	same any
}

// volume adds the name of a PersistentVolume, unless it is not known.
func (r *result) volume(name string) {
	if name != "" {
		r.names = append(r.names, facts.Ref{Kind: facts.KindVolume, Name: name})
	}
}

// intent adds the name of an intent, which has its namespace.
func (r *result) intent(name string) { r.names = append(r.names, refOf(facts.KindIntent+" "+name)) }

// exit is the error that gives the exit code.
func (r *result) exit() error {
	if r.findings > 0 {
		return findingsError{}
	}
	return nil
}

// identity is equal for two reports that would print the same.
func (r *result) identity() (string, error) {
	content := r.same
	if content == nil {
		content = r.document
	}
	data, err := json.Marshal(content)
	return string(data), err
}

// show writes a result in the format that was asked for.
func (o *options) show(r *result) error {
	if o.print != nil {
		return o.print(o.Out, r.document, namesOf(r.names))
	}
	if r.plain {
		r.text(o.Out)
		return nil
	}
	w := printers.GetNewTabWriter(o.Out)
	r.text(visibly{w})
	return w.Flush()
}

// namesOf prepares references for the printer of names: each once, with the group of its kind.
func namesOf(refs []facts.Ref) []metav1.PartialObjectMetadata {
	groups := map[string]schema.GroupVersionKind{}
	for gvk := range server.NewScheme().AllKnownTypes() {
		groups[gvk.Kind] = gvk
	}
	var names []metav1.PartialObjectMetadata
	seen := map[facts.Ref]bool{}
	for _, ref := range refs {
		gvk, known := groups[ref.Kind]
		if seen[ref] || !known {
			continue
		}
		seen[ref] = true
		object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
		object.SetGroupVersionKind(gvk)
		names = append(names, object)
	}
	return names
}

// refOf reads an object as tables name it: Kind NAME or Kind NAMESPACE/NAME.
func refOf(text string) facts.Ref {
	kind, name, _ := strings.Cut(text, " ")
	namespace, rest, ok := strings.Cut(name, "/")
	if !ok {
		namespace, rest = "", name
	}
	return facts.Ref{Kind: kind, Namespace: namespace, Name: rest}
}

// cell is a text in its place in a table or a tree. Errors of drivers may have several lines.
func cell(text string) string { return visible(strings.Join(strings.Fields(text), " ")) }

// reporting is a command that reads and reports.
type reporting func(context.Context, *facts.Gatherer, []string) (*result, error)

// command runs a reporting command: the options, the time limit, the connection, the report and its exit code.
func (o *options) command(run reporting) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if o.watch {
			return o.follow(cmd, run, args)
		}
		return o.once(cmd.Context(), func(ctx context.Context, g *facts.Gatherer) error {
			r, err := run(ctx, g, args)
			o.progressDone()
			if r == nil {
				return err
			}
			if err == nil {
				err = r.exit()
			}
			if failed := o.show(r); failed != nil {
				return fmt.Errorf("printing the report: %w", failed)
			}
			return err
		})
	}
}

// plain runs a command that prints itself.
func (o *options) plain(run func(context.Context, *facts.Gatherer, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return o.once(cmd.Context(), func(ctx context.Context, g *facts.Gatherer) error {
			err := run(ctx, g, args)
			o.progressDone()
			return err
		})
	}
}

// once connects, and limits the time.
func (o *options) once(ctx context.Context, run func(context.Context, *facts.Gatherer) error) error {
	ctx, cancel, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	g, err := o.gatherer()
	if err != nil {
		return err
	}
	err = run(ctx, g)
	var findings findingsError
	if errors.As(err, &findings) {
		return err
	}
	return o.expired(ctx, err)
}
