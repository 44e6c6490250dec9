/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package format prints documents in the formats of kubectl: JSON, YAML, names, JSONPath, templates and columns.
package format

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Formats are those of kubectl.
type Formats struct{ flags *genericclioptions.PrintFlags }

// New returns the formats.
func New() *Formats { return &Formats{genericclioptions.NewPrintFlags("")} }

// AddFlags adds the flags for templates.
func (f *Formats) AddFlags(to *pflag.FlagSet) {
	carrier := &cobra.Command{}
	f.flags.TemplatePrinterFlags.AddFlags(carrier)
	to.AddFlagSet(carrier.Flags())
}

// Names are the formats as a user names them. Those that end with = want a template.
func Names() []string {
	return []string{"json", "yaml", "wide", "name", "jsonpath=", "jsonpath-as-json=", "jsonpath-file=", "go-template=",
		"go-template-file=", "custom-columns=", "custom-columns-file="}
}

// Print writes a document, or the names of objects that it is about.
type Print func(w io.Writer, document any, names []metav1.PartialObjectMetadata) error

// Printer returns what prints in a format; nil if the format is a text for a person.
func (f *Formats) Printer(output string) (Print, error) {
	if output == "" && *f.flags.TemplatePrinterFlags.TemplateArgument != "" {
		output = "go-template"
	}
	name, argument, _ := strings.Cut(output, "=")
	switch name {
	case "", "wide":
		return nil, nil
	case "json", "yaml":
		return asData(name == "yaml"), nil
	case "custom-columns", "custom-columns-file":
		return columns(name, argument)
	}
	f.flags.OutputFormat = &output
	p, err := f.flags.ToPrinter()
	switch {
	case genericclioptions.IsNoCompatiblePrinterError(err):
		return nil, fmt.Errorf("--output is %q, want %s", output, strings.Join(Names(), ", "))
	case err != nil:
		return nil, err
	case name == "name":
		return asNames(p), nil
	}
	return func(w io.Writer, document any, _ []metav1.PartialObjectMetadata) error {
		content, err := contentOf(document)
		if err != nil {
			return err
		}
		return p.PrintObj(&unstructured.Unstructured{Object: content}, w)
	}, nil
}

// asData prints JSON or YAML with the fields in the order of the document.
func asData(inYAML bool) Print {
	return func(w io.Writer, document any, _ []metav1.PartialObjectMetadata) error {
		out, err := json.MarshalIndent(document, "", "  ")
		if err == nil && inYAML {
			out, err = yaml.JSONToYAML(out)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, strings.TrimRight(string(out), "\n"))
		return err
	}
}

func asNames(p printers.ResourcePrinter) Print {
	return func(w io.Writer, _ any, names []metav1.PartialObjectMetadata) error {
		for i := range names {
			if err := p.PrintObj(&names[i], w); err != nil {
				return err
			}
		}
		return nil
	}
}

// contentOf is a document as maps and lists.
func contentOf(document any) (map[string]any, error) {
	data, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	content := map[string]any{}
	return content, utiljson.Unmarshal(data, &content) // whole numbers stay whole
}
