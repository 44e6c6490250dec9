/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package render

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/config"
	"github.com/hawser-io/hawser/internal/version"
	"github.com/hawser-io/hawser/test/apiserver"
)

// input is the one of a VolumeManager with defaults, on a cluster that has every kind.
func input() Input {
	return Input{
		Spec: volumesv1alpha1.VolumeManagerSpec{AttachMode: volumesv1alpha1.AttachCoexist,
			PodIntents: volumesv1alpha1.PodIntentsAuto, KubeletRoot: "/var/lib/kubelet", RootDirectory: "/var/lib/hawser",
			LogLevel: volumesv1alpha1.LogInfo, NetworkPolicy: volumesv1alpha1.Managed,
			Monitoring: volumesv1alpha1.Managed},
		Namespace: volumesv1alpha1.InstallNamespace,
		Images:    volumesv1alpha1.Images{Manager: "hawser/manager:dev", Agent: "hawser/agent:dev"},
		Serves:    func(schema.GroupVersionKind) bool { return true },
	}
}

func render(t *testing.T, in Input) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := Objects(in)
	if err != nil {
		t.Fatal(err)
	}
	return byName(objects)
}

func byName(objects []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	named := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		named[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o
	}
	return named
}

// TestTheOperatorAppliesWhatKubectlApplies compares with what kubectl renders of the same files.
func TestTheOperatorAppliesWhatKubectlApplies(t *testing.T) {
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a directory with kubectl; make test builds it)", apiserver.AssetsVariable)
	}
	for _, test := range []struct {
		name       string
		change     func(*Input)
		components []string
	}{
		{"by default", func(*Input) {}, []string{"networkpolicy", "monitoring"}},
		{"in Replace, alone", func(in *Input) {
			in.Spec.AttachMode = volumesv1alpha1.AttachReplace
			in.Spec.NetworkPolicy, in.Spec.Monitoring = volumesv1alpha1.ManagedNone, volumesv1alpha1.ManagedNone
		}, []string{"replace"}},
		{"without monitors where their kinds are missing", func(in *Input) {
			in.Serves = func(kind schema.GroupVersionKind) bool { return kind.Group != ServiceMonitor.Group }
		}, []string{"networkpolicy"}},
		{"without alerts where their kind is missing", func(in *Input) {
			in.Serves = func(kind schema.GroupVersionKind) bool { return kind != PrometheusRule }
		}, []string{"networkpolicy", "monitoring"}},
		{"without mutating policies where Kubernetes has none", func(in *Input) {
			in.Serves = func(kind schema.GroupVersionKind) bool { return kind.Group == ServiceMonitor.Group }
		}, []string{"kubernetes-1.35", "networkpolicy", "monitoring"}},
		{"in another namespace", func(in *Input) { in.Namespace = "storage" }, []string{"networkpolicy", "monitoring"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := input()
			test.change(&in)
			overlay := apiserver.Kustomization{Resources: []string{"standalone"}, Components: test.components}
			if in.Namespace != volumesv1alpha1.InstallNamespace {
				overlay.Namespace = in.Namespace
			}
			rendered, err := config.Decode([]byte(apiserver.Kubectl(t, "", "", "kustomize", overlay.Write(t))))
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range rendered {
				// kustomize does not know that these kinds have no namespace. The API server ignores it.
				switch object.GroupVersionKind().Group {
				case "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io":
					object.SetNamespace("")
				}
			}
			compare(t, in, render(t, in), byName(rendered))
		})
	}
}

func compare(t *testing.T, in Input, got, want map[string]*unstructured.Unstructured) {
	t.Helper()
	for name, object := range want {
		if object.GetKind() == "CustomResourceDefinition" ||
			object.GroupVersionKind() == PrometheusRule && !in.Serves(PrometheusRule) ||
			slices.Contains([]string{"Namespace", "ResourceQuota"}, object.GetKind()) &&
				in.Namespace != volumesv1alpha1.InstallNamespace {
			continue
		}
		rendered := got[name]
		if rendered == nil {
			t.Errorf("the operator leaves out %s", name)
			continue
		}
		if !reflect.DeepEqual(unmarked(rendered).Object, object.Object) {
			t.Errorf("%s differs: got\n%v\nwant\n%v", name, unmarked(rendered).Object, object.Object)
		}
	}
	for name, object := range got {
		// kubectl deletes the namespace in one command with the rest.
		protects := in.Namespace != volumesv1alpha1.InstallNamespace && object.GetName() == "hawser-namespace"
		if want[name] == nil && !protects {
			t.Errorf("the operator applies %s, kubectl does not", name)
		}
	}
}

// unmarked returns the object without the operator's label and annotation.
func unmarked(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	delete(labels, ManagedByLabel)
	delete(annotations, HashAnnotation)
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	for _, empty := range []string{"labels", "annotations"} {
		if values, _, err := unstructured.NestedMap(object.Object, "metadata", empty); err == nil && len(values) == 0 {
			unstructured.RemoveNestedField(object.Object, "metadata", empty)
		}
	}
	return object
}

func TestAWorkloadWithoutAnImageIsLeftOut(t *testing.T) {
	in := input()
	in.Images.Manager = ""
	got := render(t, in)
	if got["Deployment hawser-system/hawser-manager"] != nil || got["DaemonSet hawser-system/hawser-agent"] == nil {
		t.Error("want the agents without the manager")
	}
}

func TestWorkloadsComeLast(t *testing.T) {
	objects, err := Objects(input())
	if err != nil {
		t.Fatal(err)
	}
	last := objects[len(objects)-2:]
	if objects[0].GetKind() != "Namespace" || last[0].GetKind() != "Deployment" || last[1].GetKind() != "DaemonSet" {
		t.Errorf("the order begins with %s and ends with %s, %s", objects[0].GetKind(), last[0].GetKind(), last[1].GetKind())
	}
}

func TestTheHashChangesWithWhatIsApplied(t *testing.T) {
	in := input()
	first, again := render(t, in), render(t, in)
	in.Spec.LogLevel = volumesv1alpha1.LogDebug
	changed := render(t, in)
	hash := func(objects map[string]*unstructured.Unstructured, name string) string {
		return objects[name].GetAnnotations()[HashAnnotation]
	}
	for name, object := range first {
		if hash(again, name) != hash(first, name) {
			t.Errorf("the hash of %s differs between two renderings of the same", name)
		}
		workload := object.GetKind() == "Deployment" || object.GetKind() == "DaemonSet"
		if workload != (hash(changed, name) != hash(first, name)) {
			t.Errorf("another log level: the hash of %s is %s, before %s", name, hash(changed, name), hash(first, name))
		}
	}
}

func TestAKustomizationWithAnUnknownFieldIsRefused(t *testing.T) {
	_, err := config.Load(os.DirFS("testdata"), "unknown")
	if err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("error: %v", err)
	}
}

func TestAlertsLinkTheRunbooksOfTheRelease(t *testing.T) {
	before := version.Version
	t.Cleanup(func() { version.Version = before })
	version.Version = "v0.1.0"
	text, err := render(t, input())["PrometheusRule hawser-system/hawser"].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	all, ofRelease := strings.Count(string(text), `"runbook_url":"`),
		strings.Count(string(text), `"runbook_url":"https://github.com/hawser-io/hawser/blob/v0.1.0/docs/runbooks/`)
	if all == 0 || all != ofRelease {
		t.Errorf("%d of %d alerts link the pages of their release, want all", ofRelease, all)
	}
}
