/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spf13/cobra"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/cli/format"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// mostCompleted is how many names a completion offers.
const mostCompleted = 200

// completeWithin limits a completion, because a shell waits for it.
const completeWithin = 3 * time.Second

// completed are the kinds whose names can be completed.
var completed = map[string]schema.GroupVersionKind{
	facts.KindPod:        corev1.SchemeGroupVersion.WithKind("PodList"),
	facts.KindClaim:      corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"),
	facts.KindVolume:     corev1.SchemeGroupVersion.WithKind("PersistentVolumeList"),
	facts.KindNode:       corev1.SchemeGroupVersion.WithKind("NodeList"),
	facts.KindIntent:     volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntentList"),
	facts.KindSet:        volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntentSetList"),
	facts.KindManager:    volumesv1alpha1.GroupVersion.WithKind("VolumeManagerList"),
	facts.KindAttachment: storagev1.SchemeGroupVersion.WithKind("VolumeAttachmentList"),
}

// completeKind offers kinds, then names.
func (o *options) completeKind(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return mainKinds, cobra.ShellCompDirectiveNoFileComp
	}
	kind, known := kinds[args[0]]
	if len(args) > 1 || !known {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.names(contextOf(cmd), kind), cobra.ShellCompDirectiveNoFileComp
}

// completeName offers the names of a kind for the first argument.
func (o *options) completeName(kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(contextOf(cmd), kind), cobra.ShellCompDirectiveNoFileComp
	}
}

// contextOf is never nil: a completion runs without the context of the program.
func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// names of the objects of a kind. An error offers nothing: a shell has no place for it.
func (o *options) names(ctx context.Context, kind string) []string {
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	g, err := o.gatherer()
	if err != nil {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(completed[kind])
	listOptions := []client.ListOption{client.Limit(mostCompleted)}
	if namespaced[kind] {
		namespace, err := o.namespace()
		if err != nil {
			return nil
		}
		listOptions = append(listOptions, client.InNamespace(namespace))
	}
	if err := g.Reader.List(ctx, list, listOptions...); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// completeFlags offers the values of flags.
func (o *options) completeFlags(root *cobra.Command) {
	values := map[string][]string{"output": format.Names(), "color": {"auto", "always", "never"}}
	for flag, list := range values {
		// It only fails for a flag that does not exist, which a test would show.
		_ = root.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = root.RegisterFlagCompletionFunc("namespace",
		func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return o.namespaces(contextOf(cmd)), cobra.ShellCompDirectiveNoFileComp
		})
}

func (o *options) namespaces(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	g, err := o.gatherer()
	if err != nil {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := g.Reader.List(ctx, list, client.Limit(mostCompleted)); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
