/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// earlierRefused are the refusals of earlier manifests, by the name of the intent.
var earlierRefused = map[string]string{}

// testEarlierManifests applies manifests as users wrote them before. They are copies: nothing may be repaired in them.
// The API server validates them strictly, as for kubectl: a field that it does not know is an error.
func (s server) testEarlierManifests(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "earlier", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d earlier manifests were found, error %v", len(files), err)
	}
	strict := client.WithFieldValidation(s.client, metav1.FieldValidationStrict)
	for _, file := range files {
		for _, intent := range intentsIn(t, file) {
			t.Run(intent.GetName(), func(t *testing.T) {
				intent.SetNamespace(metav1.NamespaceDefault)
				intent.SetName("earlier-" + intent.GetName())
				var want []string
				if refused := earlierRefused[filepath.Base(t.Name())]; refused != "" {
					want = append(want, refused)
				}
				expectRefusals(t, strict.Create(t.Context(), intent), want...)
			})
		}
	}
}

// intentsIn are the VolumeAttachmentIntents of a file, which may hold other objects.
func intentsIn(t *testing.T, file string) (intents []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := d.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			if len(intents) == 0 {
				t.Errorf("%s has no intent", file)
			}
			return intents
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		case o.GetKind() == "VolumeAttachmentIntent":
			intents = append(intents, o)
		}
	}
}
