/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package intentset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	// mostLabels of the sets of one namespace on one Node.
	mostLabels = 32
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
func labelChange(has map[string]string, wanted sets.Set[string]) map[string]any {
	change := map[string]any{}
	for key := range has {
		if strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix) && !wanted.Has(key) {
			change[key] = nil
		}
	}
	for key := range wanted {
		if has[key] != readyValue {
			change[key] = readyValue
		}
	}
	return change
}

// selectorOf a set. A set that was stored before the API refused to select by the labels of sets has none: with one it
// could attach and detach without an end, because each label follows from an intent.
func selectorOf(set *volumesv1alpha1.VolumeAttachmentIntentSet) (labels.Selector, error) {
	if key := readyKey(set.Spec.NodeSelector); key != "" {
		return nil, fmt.Errorf("nodeSelector selects by label %s, which follows from the intents of sets: select by another "+
			"label. Until then the intents stay as they are", key)
	}
	return metav1.LabelSelectorAsSelector(set.Spec.NodeSelector)
}

// readyKey is the first key of the selector that is of the label of a set, or empty.
func readyKey(selector *metav1.LabelSelector) string {
	if selector == nil {
		return ""
	}
	keys := slices.Sorted(maps.Keys(selector.MatchLabels))
	for _, requirement := range selector.MatchExpressions {
		keys = append(keys, requirement.Key)
	}
	i := slices.IndexFunc(keys, func(key string) bool { return strings.HasPrefix(key, volumesv1alpha1.ReadyLabelPrefix) })
	if i < 0 {
		return ""
	}
	return keys[i]
}

// share the labels of a Node between the sets that are ready there: each namespace has most of them, those of its
// oldest sets. So no new set takes the label from another, and one namespace cannot fill the Node.
func share(ready []*volumesv1alpha1.VolumeAttachmentIntentSet) (wanted sets.Set[string], beyond []string) {
	slices.SortFunc(ready, func(a, b *volumesv1alpha1.VolumeAttachmentIntentSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	wanted = sets.New[string]()
	labelled := map[string]int{}
	for _, set := range ready {
		key := labelKey(client.ObjectKeyFromObject(set))
		if labelled[set.Namespace] == mostLabels {
			beyond = append(beyond, key)
			continue
		}
		wanted.Insert(key)
		labelled[set.Namespace]++
	}
	slices.Sort(beyond)
	return wanted, beyond
}
