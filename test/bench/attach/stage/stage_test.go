/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package stage

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAStageFileIsReadAsItWasWritten(t *testing.T) {
	s := New(nil, 2)
	for _, v := range s.Plan(3, 2) {
		v.PersistentVolume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name, UID: "pv"}}
		v.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: v.Name, UID: "claim"}}
	}
	file := filepath.Join(t.TempDir(), "stage.json")
	if err := s.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(got.Nodes, s.Nodes) || !equality.Semantic.DeepEqual(got.Volumes, s.Volumes) {
		t.Errorf("stage read from %s: %+v, want %+v", file, got, s)
	}
}
