/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package relocate

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// longestName of an object.
const longestName = 253

// Replacement is the intent that asks for the same on another node. An empty name means one made of the source's name.
func Replacement(source *volumesv1alpha1.VolumeAttachmentIntent, to, name string) (
	*volumesv1alpha1.VolumeAttachmentIntent, error) {
	if name == "" {
		name = nameOn(source, to)
	}
	if len(name) > longestName {
		return nil, fmt.Errorf("the name %s... of the intent on node %s would have %d characters, at most %d are possible; "+
			"choose one with --name", name[:32], to, len(name), longestName)
	}
	if name == source.Name {
		return nil, fmt.Errorf("--name %s is the name of the intent that is replaced: choose another one", name)
	}
	replacement := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{
		Namespace: source.Namespace, Name: name, Labels: maps.Clone(source.Labels), Annotations: kept(source.Annotations)}}
	source.Spec.DeepCopyInto(&replacement.Spec)
	replacement.Spec.NodeName = to
	return replacement, nil
}

// nameOn puts the new node into the name in the place of the old one.
func nameOn(source *volumesv1alpha1.VolumeAttachmentIntent, to string) string {
	if at := strings.LastIndex(source.Name, source.Spec.NodeName); at >= 0 {
		return source.Name[:at] + to + source.Name[at+len(source.Spec.NodeName):]
	}
	return source.Name + "-" + to
}

// kept are the annotations that the replacement has too: those of people, not of kubectl and Hawser.
func kept(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range annotations {
		domain, _, _ := strings.Cut(key, "/")
		if key != corev1.LastAppliedConfigAnnotation && domain != volumesv1alpha1.GroupVersion.Group {
			kept[key] = value
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// replaces reports whether an intent asks for what the source asks for, on another node.
func replaces(intent, source *volumesv1alpha1.VolumeAttachmentIntent, to string) bool {
	if intent.Namespace != source.Namespace || intent.Spec.NodeName != to {
		return false
	}
	wanted := source.Spec.DeepCopy()
	wanted.NodeName = to
	return equality.Semantic.DeepEqual(*wanted, intent.Spec)
}

// Match finds the replacement that an earlier run has created: it has the name of one, and asks for what the source
// asks for. Any other intent has an author of its own. An intent in taken replaces another source. It returns nil if
// there is none.
func Match(source *volumesv1alpha1.VolumeAttachmentIntent, to, name string,
	intents []volumesv1alpha1.VolumeAttachmentIntent, taken map[string]bool,
) *volumesv1alpha1.VolumeAttachmentIntent {
	if name == "" {
		name = nameOn(source, to)
	}
	for i := range intents {
		intent := &intents[i]
		if intent.Name == name && !taken[string(intent.UID)] && intent.DeletionTimestamp == nil &&
			ManagerOf(intent) == nil && replaces(intent, source, to) {
			return intent
		}
	}
	return nil
}
