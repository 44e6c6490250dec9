/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const (
	// readyValue of the label, so that the nodeSelector of a pod can name it too.
	readyValue = "true"
	// longestLabelName is how long a label's key may be behind the slash.
	longestLabelName = validation.LabelValueMaxLength
)

// labelKey of a set. It has no more than one set: the name of a namespace has no dot. It may be too long to be a label.
func labelKey(set client.ObjectKey) string {
	return volumesv1alpha1.ReadyLabelPrefix + set.Namespace + "." + set.Name
}

// setOfLabel is the set of a label's key.
func setOfLabel(key string) client.ObjectKey {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(key, volumesv1alpha1.ReadyLabelPrefix), ".")
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// labelFits: the API server takes no longer key. A shortened one could be that of another set.
func labelFits(key string) bool {
	return len(key)-len(volumesv1alpha1.ReadyLabelPrefix) <= longestLabelName
}

// labelChange is the merge patch of a Node's labels that leaves it with these keys of the prefix; nil removes one.
func labelChange(labels map[string]string, wanted sets.Set[string]) map[string]any {
	change := map[string]any{}
	for key := range labels {
		if strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix) && !wanted.Has(key) {
			change[key] = nil
		}
	}
	for key := range wanted {
		if labels[key] != readyValue {
			change[key] = readyValue
		}
	}
	return change
}

// withoutReady are the labels of a Node that this controller does not write.
func withoutReady(labels map[string]string) map[string]string {
	rest := maps.Clone(labels)
	maps.DeleteFunc(rest, func(key, _ string) bool { return strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix) })
	return rest
}

// selectsReady reports whether a set goes where another one is ready.
func selectsReady(set *volumesv1alpha1.VolumeAttachmentIntentSet) bool {
	selector := set.Spec.NodeSelector
	if selector == nil {
		return false
	}
	keys := slices.Collect(maps.Keys(selector.MatchLabels))
	for _, requirement := range selector.MatchExpressions {
		keys = append(keys, requirement.Key)
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		return strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix)
	})
}
