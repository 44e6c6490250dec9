/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bundle

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/test/apiserver"
)

const installer = "olm"

// namespaced has the kinds that a bundle may carry beside the ClusterServiceVersion, true for those of a namespace.
var namespaced = map[string]bool{
	"CustomResourceDefinition": false, "ClusterRole": false, "ClusterRoleBinding": false, "PriorityClass": false,
	"Service": true, "ServiceAccount": true, "Role": true, "RoleBinding": true, "PrometheusRule": true,
	"ServiceMonitor": true, "PodMonitor": true, "Secret": true, "ConfigMap": true, "PodDisruptionBudget": true,
	"NetworkPolicy": true,
}

// permission is an element of a ClusterServiceVersion's permissions.
type permission struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// clusterServiceVersion has the fields that decide what is installed.
type clusterServiceVersion struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
		Labels      map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Icon []struct {
			Data []byte `json:"base64data"`
		} `json:"icon"`
		InstallModes []struct {
			Type      string `json:"type"`
			Supported bool   `json:"supported"`
		} `json:"installModes"`
		Install struct {
			Spec struct {
				Deployments []struct {
					Name  string                `json:"name"`
					Label map[string]string     `json:"label"`
					Spec  appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
				Permissions        []permission `json:"permissions"`
				ClusterPermissions []permission `json:"clusterPermissions"`
			} `json:"spec"`
		} `json:"install"`
		RelatedImages []struct {
			Image string `json:"image"`
		} `json:"relatedImages"`
		CustomResourceDefinitions struct {
			Owned []ownedKind `json:"owned"`
		} `json:"customresourcedefinitions"`
		MinKubeVersion string `json:"minKubeVersion"`
		Version        string `json:"version"`
	} `json:"spec"`
}

type ownedKind struct {
	Name, Kind        string
	SpecDescriptors   []descriptor `json:"specDescriptors"`
	StatusDescriptors []descriptor `json:"statusDescriptors"`
}

type descriptor struct {
	Path string `json:"path"`
}

// read reads the bundle of the repository.
func read(t *testing.T) (clusterServiceVersion, []*unstructured.Unstructured) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(apiserver.Root(), "bundle", "manifests", "*.yaml"))
	check(t, err)
	var csv clusterServiceVersion
	var others []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file)
		check(t, err)
		object := &unstructured.Unstructured{}
		check(t, yaml.Unmarshal(data, &object.Object))
		if object.GetKind() == "ClusterServiceVersion" {
			check(t, yaml.Unmarshal(data, &csv))
			continue
		}
		others = append(others, object)
	}
	if csv.Metadata.Name == "" || len(others) == 0 {
		t.Fatalf("%d manifests in bundle/manifests, want a ClusterServiceVersion and others; make bundle writes them",
			len(files))
	}
	return csv, others
}

// layOut returns what OLM makes of the bundle for all namespaces. It follows the rules of operator-controller's
// renderer of registry+v1 bundles:
//   - the annotations of the ClusterServiceVersion become those of the Deployment's pods;
//   - permissions become cluster-wide ones, because they are asked for in all namespaces;
//   - manifests of a namespace get the one that is installed to, and nothing else in them changes.
func layOut(t *testing.T, namespace string) []*unstructured.Unstructured {
	t.Helper()
	csv, others := read(t)
	install := csv.Spec.Install.Spec
	var objects []*unstructured.Unstructured
	accounts := map[string]bool{}
	for i, p := range slices.Concat(install.ClusterPermissions, install.Permissions) {
		accounts[p.ServiceAccountName] = true
		objects = append(objects, grant(t, csv, p, i, namespace)...)
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		account := &corev1.ServiceAccount{}
		account.Name, account.Namespace = name, namespace
		objects = append(objects, encode(t, "v1", "ServiceAccount", account))
	}
	for _, other := range others {
		if of, supported := namespaced[other.GetKind()]; !supported {
			t.Fatalf("the bundle carries %s %s, which OLM refuses", other.GetKind(), other.GetName())
		} else if of {
			other.SetNamespace(namespace)
		}
		objects = append(objects, other)
	}
	for _, d := range install.Deployments {
		deployment := &appsv1.Deployment{Spec: d.Spec}
		deployment.Name, deployment.Namespace, deployment.Labels = d.Name, namespace, d.Label
		deployment.Spec.RevisionHistoryLimit = ptr.To(int32(1))
		annotations := maps.Clone(csv.Metadata.Annotations)
		maps.Copy(annotations, d.Spec.Template.Annotations)
		annotations["olm.targetNamespaces"] = ""
		deployment.Spec.Template.Annotations = annotations
		objects = append(objects, encode(t, "apps/v1", "Deployment", deployment))
	}
	return objects
}

// grant is a ClusterRole with its binding.
func grant(t *testing.T, csv clusterServiceVersion, p permission, i int,
	namespace string) []*unstructured.Unstructured {
	t.Helper()
	role, binding := &rbacv1.ClusterRole{Rules: p.Rules}, &rbacv1.ClusterRoleBinding{}
	role.Name = fmt.Sprintf("%s-%s-%d", csv.Metadata.Name, p.ServiceAccountName, i)
	binding.Name = role.Name
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
	binding.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Name: p.ServiceAccountName, Namespace: namespace}}
	return []*unstructured.Unstructured{encode(t, "rbac.authorization.k8s.io/v1", "ClusterRole", role),
		encode(t, "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", binding)}
}

func encode(t *testing.T, apiVersion, kind string, object runtime.Object) *unstructured.Unstructured {
	t.Helper()
	data, err := json.Marshal(object)
	check(t, err)
	u := &unstructured.Unstructured{}
	check(t, json.Unmarshal(data, &u.Object))
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	delete(u.Object, "status")
	return u
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
