/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1_test

import (
	"reflect"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// What an intent may ask for, a set may ask for too, under the same name. The intents of a set always go with their
// Node.
func TestATemplateHasEveryFieldOfAnIntentButThoseAboutTheNode(t *testing.T) {
	template := reflect.TypeFor[volumesv1alpha1.IntentTemplateSpec]()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[volumesv1alpha1.VolumeAttachmentIntentSpec]()) {
		if field.Name == "NodeName" || field.Name == "OnNodeDeletion" || field.Name == "Volume" {
			continue
		}
		in, ok := template.FieldByName(field.Name)
		if !ok || in.Type != field.Type || in.Tag != field.Tag {
			t.Errorf("field %s of the template is %v, want %v as in the spec of an intent", field.Name, in, field)
		}
	}
}
