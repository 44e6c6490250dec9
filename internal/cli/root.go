/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hawser-io/hawser/internal/cli/format"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
	"github.com/hawser-io/hawser/internal/version"
)

// options of every command.
type options struct {
	genericiooptions.IOStreams
	flags   *genericclioptions.ConfigFlags
	output  string
	formats *format.Formats
	// print is for the formats that are not a text for a person.
	print   format.Print
	color   string
	system  string
	timeout time.Duration
	watch   bool
	now     func() time.Time
}

// Run runs the plugin with these arguments and returns its exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	log.SetLogger(logr.Discard()) // controller-runtime would complain on stderr
	root := NewCommand(streams)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	exit := code(err)
	if exit == Failed || exit == TimedOut {
		_, _ = fmt.Fprintln(streams.ErrOut, "kubectl hawser:", visible(sentence(err)))
	}
	return exit
}

// NewCommand returns the plugin as a command, which Run runs. Programs that describe it read it from here.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), formats: format.New(),
		now: time.Now}
	root := &cobra.Command{
		Use:   program,
		Short: "Explains why a volume is not there",
		Long: "Explains why a volume is not there: what is waited for, since when, what must act, and the command to\n" +
			"run. It finds what is wrong in a whole cluster, or in the way of an installation, and moves\n" +
			"intents to another node.\n\nExit codes: 0 fine, 1 findings, 2 error, 124 timeout.",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl hawser"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	f := root.PersistentFlags()
	o.flags.AddFlags(f)
	f.StringVarP(&o.output, "output", "o", "", "format of the report: wide for more text, or one of kubectl: json, yaml, "+
		"name, jsonpath=..., go-template=..., custom-columns=TITLE:PATH,...")
	o.formats.AddFlags(f)
	f.StringVar(&o.color, "color", "auto", "colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	f.StringVar(&o.system, "hawser-namespace", "", "namespace where Hawser is installed; it is found by itself where you "+
		"may read the VolumeManager, or list Leases")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long the command may take; 0 for no limit")
	root.AddCommand(newPreflight(o), newDoctor(o), newWhy(o), newTree(o), newTop(o), newOrphans(o), newHistory(o),
		newPlan(o), newMove(o), newDrain(o), newDeclare(o), newBundle(o))
	o.completeFlags(root)
	return root
}

// prepare checks the options that all commands have, and limits the time of the command.
func (o *options) prepare(ctx context.Context) (context.Context, context.CancelFunc, error) {
	var err error
	if o.print, err = o.formats.Printer(o.output); err != nil {
		return nil, nil, err
	}
	switch o.color {
	case "auto", "always", "never":
	default:
		return nil, nil, fmt.Errorf("--color is %q, want auto, always or never", o.color)
	}
	ctx, cancel := o.limited(ctx)
	return ctx, cancel, nil
}

// limited is a context that ends after --timeout.
func (o *options) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, o.timeout)
}

// asText reports whether a person reads the report.
func (o *options) asText() bool { return o.print == nil }

// wide reports whether the text has all that is known.
func (o *options) wide() bool { return o.output == "wide" }

// unconfigured is the server that client-go assumes where nothing names one.
const unconfigured = "localhost:8080"

// program is how audit logs name the plugin.
const program = "kubectl-hawser"

var errNoCluster = errors.New("no cluster is configured: set KUBECONFIG, or use --kubeconfig or --server")

// gatherer connects to the cluster.
func (o *options) gatherer() (*facts.Gatherer, error) {
	config, err := o.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	if *o.flags.APIServer == "" && strings.TrimPrefix(config.Host, "http://") == unconfigured {
		return nil, errNoCluster
	}
	r, err := server.New(config, program)
	if err != nil {
		return nil, err
	}
	return &facts.Gatherer{Reader: r, System: o.system, Now: r.Clock.Now, Progress: o.progress()}, nil
}

// namespace is that of the flags or of the kubeconfig.
func (o *options) namespace() (string, error) {
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// colored reports whether the report has colours.
func (o *options) colored() bool {
	switch o.color {
	case "always":
		return true
	case "never":
		return false
	default:
		return isTerminal(o.Out) && os.Getenv("NO_COLOR") == ""
	}
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// progress shows on a terminal what is read; elsewhere nothing, so that logs stay short.
func (o *options) progress() func(string) {
	if !isTerminal(o.ErrOut) {
		return nil
	}
	return func(what string) { _, _ = fmt.Fprint(o.ErrOut, progressLine(what)) }
}

// progressLine replaces the line that shows what is read. It is one line whatever names are in it.
func progressLine(what string) string { return "\r\033[Kreading " + cell(what) }

// progressDone clears the line of the progress.
func (o *options) progressDone() {
	if isTerminal(o.ErrOut) {
		_, _ = fmt.Fprint(o.ErrOut, "\r\033[K")
	}
}
