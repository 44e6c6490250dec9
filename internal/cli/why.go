/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// kinds that can be asked about, by the names that users give them.
var kinds = map[string]string{
	"pod": facts.KindPod, "pods": facts.KindPod, "po": facts.KindPod,
	"pvc": facts.KindClaim, "claim": facts.KindClaim, "persistentvolumeclaim": facts.KindClaim,
	"persistentvolumeclaims": facts.KindClaim,
	"pv":                     facts.KindVolume, "volume": facts.KindVolume, "persistentvolume": facts.KindVolume,
	"persistentvolumes": facts.KindVolume,
	"intent":            facts.KindIntent, "vai": facts.KindIntent, "volumeattachmentintent": facts.KindIntent,
	"volumeattachmentintents": facts.KindIntent,
	"set":                     facts.KindSet, "vais": facts.KindSet, "volumeattachmentintentset": facts.KindSet,
	"volumeattachmentintentsets": facts.KindSet,
	"node":                       facts.KindNode, "nodes": facts.KindNode, "no": facts.KindNode, "nvs": facts.KindNode,
	"attachment": facts.KindAttachment, "volumeattachment": facts.KindAttachment,
	"volumeattachments": facts.KindAttachment,
	"volumemanager":     facts.KindManager, "volumemanagers": facts.KindManager, "hvm": facts.KindManager,
}

// mainKinds are the names that help and completion show.
var mainKinds = []string{"pod", "pvc", "pv", "intent", "set", "node", "volumeattachment", "volumemanager"}

// namespaced kinds have a namespace.
var namespaced = map[string]bool{facts.KindPod: true, facts.KindClaim: true, facts.KindIntent: true,
	facts.KindSet: true}

type why struct {
	*options
	files []string
}

func newWhy(o *options) *cobra.Command {
	w := &why{options: o}
	cmd := &cobra.Command{
		Use:   "why KIND NAME",
		Short: "Explain what a pod, claim, volume, intent, set, node, attachment or Hawser itself waits for",
		Long: "Explain what an object waits for, since when, what must act, and the command to run. Kinds are\n" +
			strings.Join(mainKinds, ", ") + ".\nIt also explains pods whose volumes Kubernetes itself attaches, in a " +
			"cluster without Hawser too.\n" +
			"It only reads. With -f it analyses pods, claims and intents before they are applied.",
		Example: "  kubectl hawser why pod web-0 -n shop\n" +
			"  kubectl hawser why intent data-on-node-a -n shop -o json\n" +
			"  kubectl hawser why node node-a\n" +
			"  kubectl hawser why volumemanager cluster\n" +
			"  kubectl hawser why -f intent.yaml",
		Args:              w.args,
		ValidArgsFunction: o.completeKind,
		RunE:              o.command(w.run),
	}
	o.watchable(cmd)
	cmd.Flags().StringSliceVarP(&w.files, "filename", "f", nil, "file with pods, claims or intents to analyse; - is stdin")
	return cmd
}

// args checks the arguments: a kind and a name, or files alone.
func (w *why) args(_ *cobra.Command, args []string) error {
	if len(w.files) > 0 {
		if w.watch {
			return errors.New("--watch is for objects of the cluster, and --filename for files")
		}
		if len(args) > 0 {
			return fmt.Errorf("with --filename no kind and name is given, but here is %q", strings.Join(args, " "))
		}
		return nil
	}
	_, _, err := kindAndName(args)
	return err
}

// kindAndName accepts KIND NAME and KIND/NAME.
func kindAndName(args []string) (kind, name string, err error) {
	if len(args) == 1 {
		if before, after, ok := strings.Cut(args[0], "/"); ok {
			args = []string{before, after}
		}
	}
	if len(args) != 2 || args[1] == "" {
		return "", "", fmt.Errorf("want a kind (%s) and a name, or --filename", strings.Join(mainKinds, ", "))
	}
	kind, ok := kinds[strings.ToLower(args[0])]
	if !ok {
		return "", "", fmt.Errorf("the kind is %q, want %s", args[0], strings.Join(mainKinds, ", "))
	}
	return kind, args[1], nil
}

func (w *why) run(ctx context.Context, g *facts.Gatherer, args []string) (*result, error) {
	reports, err := w.reports(ctx, g, args)
	if len(reports) == 0 {
		return nil, err
	}
	return w.whyResult(reports), err // what was read before the time was over is a report too
}

// reports explains every subject.
func (w *why) reports(ctx context.Context, g *facts.Gatherer, args []string) ([]*explain.Report, error) {
	if len(w.files) > 0 {
		namespace, err := w.namespace()
		if err != nil {
			return nil, err
		}
		return w.fileReports(ctx, g, namespace)
	}
	f, err := w.gather(ctx, g, args)
	if f == nil {
		return nil, err
	}
	return []*explain.Report{explain.Explain(f)}, err
}

// gather reads the subject that KIND NAME names.
func (o *options) gather(ctx context.Context, g *facts.Gatherer, args []string) (*facts.Facts, error) {
	kind, name, err := kindAndName(args)
	if err != nil {
		return nil, err
	}
	ref := facts.Ref{Kind: kind, Name: name}
	if namespaced[kind] {
		if ref.Namespace, err = o.namespace(); err != nil {
			return nil, err
		}
	}
	return g.Gather(ctx, ref)
}

// fileReports explains every object of the files.
func (w *why) fileReports(ctx context.Context, g *facts.Gatherer, namespace string) ([]*explain.Report, error) {
	objects, err := readFiles(w.files, w.In, namespace)
	if err != nil {
		return nil, err
	}
	under := g.Reader
	g.Reader = overlay(under, objects)
	defer func() { g.Reader = under }()
	var reports []*explain.Report
	for _, o := range objects {
		if o.object == nil {
			reports = append(reports, explain.NotAnalysed(o.ref, w.now()))
			continue
		}
		f, err := g.Gather(ctx, o.ref)
		if err != nil {
			return nil, err
		}
		f.FromFile = true
		f.Applied, err = applied(ctx, under, o)
		if err != nil {
			return nil, err
		}
		reports = append(reports, explain.Explain(f))
	}
	if len(reports) == 0 {
		return nil, errors.New("the files contain no object")
	}
	return reports, nil
}
