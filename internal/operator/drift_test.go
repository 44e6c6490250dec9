/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const wantedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, finalizers: [a.example/one]}
spec:
  replicas: 2
  template:
    spec:
      tolerations: [{key: a, operator: Exists}]
      containers:
      - name: manager
        image: manager:v1
        args: [--a, --b]
        env: [{name: A, value: x}]
        ports: [{name: metrics, containerPort: 80}]
        volumeMounts: [{name: tmp, mountPath: /tmp}]
      volumes: [{name: tmp, emptyDir: {}}]
`

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	json, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(json); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestAnElementThatAnotherAddsToAListWithKeysIsNoDifference(t *testing.T) {
	for _, test := range []struct {
		name, have string
		want       differences
	}{
		{"what was applied", wantedDeployment, differences{}},
		{"a sidecar first, and more in every list that has keys", `
metadata: {name: a, labels: {more: "1"}, finalizers: [b.example/two, a.example/one]}
spec:
  replicas: 2
  template:
    spec:
      tolerations: [{key: a, operator: Exists}]
      initContainers: [{name: mesh-init}]
      containers:
      - {name: mesh, image: mesh:v1}
      - name: manager
        image: manager:v1
        imagePullPolicy: Always
        args: [--a, --b]
        env: [{name: MESH, value: y}, {name: A, value: x}]
        ports: [{containerPort: 15000}, {name: metrics, containerPort: 80, protocol: TCP}]
        volumeMounts: [{name: mesh, mountPath: /mesh}, {name: tmp, mountPath: /tmp}]
      volumes: [{name: mesh, emptyDir: {}}, {name: tmp, emptyDir: {}}]
`, differences{}},
		{"other values", `
metadata: {name: a, finalizers: [b.example/two]}
spec:
  replicas: 7
  template:
    spec:
      tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}]
      containers:
      - {name: mesh, image: mesh:v1}
      - name: manager
        image: mirror/manager:v1
        args: [--a, --c]
        env: [{name: A, value: z}]
        volumeMounts: [{name: other, mountPath: /tmp}]
`, differences{
			".metadata.finalizers[a.example/one]": nil,
			".spec.replicas":                      int64(7),
			".spec.template.spec.tolerations": []any{map[string]any{"key": "a", "operator": "Exists"},
				map[string]any{"key": "b", "operator": "Exists"}},
			".spec.template.spec.containers[manager].image":                   "mirror/manager:v1",
			".spec.template.spec.containers[manager].args[1]":                 "--c",
			".spec.template.spec.containers[manager].env[A].value":            "z",
			".spec.template.spec.containers[manager].ports[80]":               nil,
			".spec.template.spec.containers[manager].volumeMounts[/tmp].name": "other",
			".spec.template.spec.volumes[tmp]":                                nil,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			have := test.have
			if test.have != wantedDeployment {
				have = "apiVersion: apps/v1\nkind: Deployment" + test.have
			}
			got := differ(parse(t, wantedDeployment), parse(t, have))
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("differences %v, want %v", got, test.want)
			}
		})
	}
}

func TestTheListsOfAKindWithoutAGoTypeHaveOneOwner(t *testing.T) {
	const monitor = "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nspec: {endpoints: "
	got := differ(parse(t, monitor+"[{port: a}]}"), parse(t, monitor+"[{port: a, path: /x}]}"))
	if len(got) != 0 {
		t.Errorf("differences from an element with a further field: %v, want none", got)
	}
	got = differ(parse(t, monitor+"[{port: a}]}"), parse(t, monitor+"[{port: a}, {port: b}]}"))
	if len(got) != 1 || got.first() != ".spec.endpoints" {
		t.Errorf("differences from a list with a further element: %v, want .spec.endpoints", got)
	}
}

func TestWhatAdmissionChangedOnceIsKnownByPlaceAndValue(t *testing.T) {
	accepted := differences{".a": "x", ".b": nil}
	got := differences{".a": "x", ".b": "y", ".c": nil}.without(accepted)
	if want := (differences{".b": "y", ".c": nil}); !reflect.DeepEqual(got, want) {
		t.Errorf("differences beside those that are accepted: %v, want %v", got, want)
	}
}
