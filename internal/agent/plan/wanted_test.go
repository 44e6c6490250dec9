/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestTheOldestIntentComesFirst(t *testing.T) {
	intent := func(namespace, name string, second int64) *volumesv1alpha1.VolumeAttachmentIntent {
		return &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0)),
		}}
	}
	want := []string{"z/oldest", "a/b", "a/c", "b/a", "a/youngest"}
	var got []string
	for _, i := range Sorted([]*volumesv1alpha1.VolumeAttachmentIntent{
		intent("a", "youngest", 3), intent("b", "a", 2), intent("a", "c", 2), intent("a", "b", 2), intent("z", "oldest", 1),
	}) {
		got = append(got, i.Namespace+"/"+i.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the intents of a volume are in the order %v, expected %v", got, want)
	}
}
