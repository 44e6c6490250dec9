/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// crdDirectory contains the kinds. They are installed with the operator, which has no right to.
const crdDirectory = "crd"

// kustomization is what the manifests use of kustomize. A field that is not listed here is an error, so that nothing
// of a kustomization is ignored by accident.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []string `json:"resources"`
	// Images are chosen by the VolumeManager.
	Images []any `json:"images"`
	// Configurations are about overlays.
	Configurations []string `json:"configurations"`
	// Patches of a component are flags, which the spec sets.
	Patches []any `json:"patches"`
}

// Load returns the objects of a kustomization, in the order of its files, without the kinds.
func Load(files fs.FS, dir string) ([]*unstructured.Unstructured, error) {
	text, err := fs.ReadFile(files, path.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var k kustomization
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		return nil, fmt.Errorf("reading the kustomization of %s: %w", dir, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range k.Resources {
		more, err := loadResource(files, path.Join(dir, resource))
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

func loadResource(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	switch {
	case name == crdDirectory:
		return nil, nil
	case path.Ext(name) != ".yaml":
		return Load(files, name)
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	objects, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return objects, nil
}

// Decode returns the objects of a text in YAML.
func Decode(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var document json.RawMessage
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(document); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}
