/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"maps"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// NodeLabelsDiffer reports whether a Node got other labels, except for those that the manager writes where a set is
// ready: they follow from intents, and neither sets nor volumes go by them.
func NodeLabelsDiffer(was, is client.Object) bool {
	return !maps.Equal(was.GetLabels(), is.GetLabels()) &&
		!maps.Equal(withoutReady(was.GetLabels()), withoutReady(is.GetLabels()))
}

func withoutReady(labels map[string]string) map[string]string {
	rest := maps.Clone(labels)
	maps.DeleteFunc(rest, func(key, _ string) bool { return strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix) })
	return rest
}
