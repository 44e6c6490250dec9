/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestTheLabelsOfSetsMakeNoDifferenceBetweenNodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(map[string]string)
		want   bool
	}{
		{"nothing changes", func(map[string]string) {}, false},
		{"a set becomes ready", func(l map[string]string) { l[volumesv1alpha1.ReadyLabelPrefix+"ns.b"] = "true" }, false},
		{"a set is not ready any more",
			func(l map[string]string) { delete(l, volumesv1alpha1.ReadyLabelPrefix+"ns.a") }, false},
		{"another label changes", func(l map[string]string) { l["pool"] = "b" }, true},
		{"a label with a key like that of a set comes",
			func(l map[string]string) { l["ready.volumes.hawser.io"] = "" }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			was, is := &corev1.Node{}, &corev1.Node{}
			was.Labels = map[string]string{"pool": "a", volumesv1alpha1.ReadyLabelPrefix + "ns.a": "true"}
			is.Labels = maps.Clone(was.Labels)
			c.change(is.Labels)
			if got := NodeLabelsDiffer(was, is); got != c.want {
				t.Errorf("labels %v after %v differ: %t, want %t", is.Labels, was.Labels, got, c.want)
			}
		})
	}
}
