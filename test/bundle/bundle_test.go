/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bundle

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bundle/layout"
)

// undescribed are fields of a spec that no user of a console sets.
var undescribed = map[string][]string{
	"NodeVolumeState": {"attachments", "protocol"},
}

func read(t *testing.T) (layout.ClusterServiceVersion, []*unstructured.Unstructured) {
	t.Helper()
	csv, others, err := layout.Read(layout.Own())
	check(t, err)
	return csv, others
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRightsOfOneNamespaceStayRights(t *testing.T) {
	csv, _ := read(t)
	if found := csv.Spec.Install.Spec.Permissions; len(found) > 0 {
		t.Errorf("the ClusterServiceVersion has %d permissions, want none: in all namespaces OLM makes them cluster-wide",
			len(found))
	}
}

func TestTheBundleSupportsAllNamespacesOnly(t *testing.T) {
	csv, _ := read(t)
	for _, mode := range csv.Spec.InstallModes {
		if want := mode.Type == "AllNamespaces"; mode.Supported != want {
			t.Errorf("install mode %s: supported %t, want %t", mode.Type, mode.Supported, want)
		}
	}
	if len(csv.Spec.InstallModes) != 4 {
		t.Errorf("%d install modes, want all 4", len(csv.Spec.InstallModes))
	}
}

func TestEveryImageIsNamed(t *testing.T) {
	csv, _ := read(t)
	var images []string
	for _, related := range csv.Spec.RelatedImages {
		images = append(images, related.Image)
	}
	container := csv.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0]
	for _, variable := range container.Env {
		if strings.HasPrefix(variable.Name, "RELATED_IMAGE_") && !slices.Contains(images, variable.Value) {
			t.Errorf("related images are %q, want %s of %s among them", images, variable.Value, variable.Name)
		}
	}
	for _, image := range append(images, container.Image) {
		if want := ":v" + csv.Spec.Version; !strings.HasSuffix(image, want) {
			t.Errorf("image %s, want one that ends with %s", image, want)
		}
	}
	if len(images) != 2 || csv.Metadata.Annotations["containerImage"] != container.Image {
		t.Errorf("related images %q, containerImage %s; want manager and agent, and %s", images,
			csv.Metadata.Annotations["containerImage"], container.Image)
	}
}

// TestDescriptorsFollowTheSchemas compares the form of a console with the kinds.
func TestDescriptorsFollowTheSchemas(t *testing.T) {
	csv, others := read(t)
	for _, owned := range csv.Spec.CustomResourceDefinitions.Owned {
		schema := schemaOf(t, others, owned.Name)
		for part, descriptors := range map[string][]layout.Descriptor{
			"spec": owned.SpecDescriptors, "status": owned.StatusDescriptors,
		} {
			described := undescribed[owned.Kind]
			for _, d := range descriptors {
				if !has(schema, append([]string{part}, strings.Split(d.Path, ".")...)) {
					t.Errorf("%s: the descriptor %s.%s names no field", owned.Kind, part, d.Path)
				}
				field, _, _ := strings.Cut(d.Path, ".")
				described = append(described, field)
			}
			fields, _, _ := unstructured.NestedMap(schema, "properties", part, "properties")
			for field := range fields {
				if part == "spec" && !slices.Contains(described, field) {
					t.Errorf("%s: spec.%s has no descriptor", owned.Kind, field)
				}
			}
		}
	}
}

func schemaOf(t *testing.T, others []*unstructured.Unstructured, name string) map[string]any {
	t.Helper()
	for _, object := range others {
		if object.GetKind() == "CustomResourceDefinition" && object.GetName() == name {
			versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
			schema, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
			return schema
		}
	}
	t.Fatalf("the bundle lacks the kind %s, which it says to own", name)
	return nil
}

// has reports whether the schema has the field at the path.
func has(schema map[string]any, path []string) bool {
	for _, name := range path {
		var found bool
		if schema, found, _ = unstructured.NestedMap(schema, "properties", name); !found {
			return false
		}
	}
	return true
}

func TestTheConsoleIsToldWhatToShow(t *testing.T) {
	csv, _ := read(t)
	icon, err := os.ReadFile(filepath.Join(apiserver.Root(), "config", "manifests", "icon.svg"))
	check(t, err)
	if len(csv.Spec.Icon) != 1 || !bytes.Equal(csv.Spec.Icon[0].Data, icon) {
		t.Error("the icon is not config/manifests/icon.svg; make bundle puts it there")
	}
	var examples []unstructured.Unstructured
	check(t, json.Unmarshal([]byte(csv.Metadata.Annotations["alm-examples"]), &examples))
	var kinds []string
	for _, example := range examples {
		kinds = append(kinds, example.GetKind())
	}
	want := []string{"VolumeAttachmentIntent", "VolumeAttachmentIntentSet", "VolumeManager"}
	if !slices.Equal(kinds, want) {
		t.Errorf("examples of %q, want %q", kinds, want)
	}
	for key, want := range map[string]string{
		"operators.operatorframework.io/internal-objects": `["nodevolumestates.volumes.hawser.io"]`,
		"operatorframework.io/suggested-namespace":        "hawser-system",
	} {
		if got := csv.Metadata.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		if got := csv.Metadata.Labels["operatorframework.io/arch."+architecture]; got != "supported" {
			t.Errorf("the label of architecture %s is %q, want supported", architecture, got)
		}
	}
	if csv.Spec.MinKubeVersion != "1.35.0" {
		t.Errorf("minKubeVersion is %s, want 1.35.0, the oldest that docs/install.md names", csv.Spec.MinKubeVersion)
	}
}
