/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package layout makes of an OLM bundle what OLM makes of it.
package layout

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/test/apiserver"
)

// namespaced has the kinds that a bundle may carry beside the ClusterServiceVersion, true for those of a namespace.
var namespaced = map[string]bool{
	"CustomResourceDefinition": false, "ClusterRole": false, "ClusterRoleBinding": false, "PriorityClass": false,
	"Service": true, "ServiceAccount": true, "Role": true, "RoleBinding": true, "PrometheusRule": true,
	"ServiceMonitor": true, "PodMonitor": true, "Secret": true, "ConfigMap": true, "PodDisruptionBudget": true,
	"NetworkPolicy": true,
}

// Permission is an element of a ClusterServiceVersion's permissions.
type Permission struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// ClusterServiceVersion has the fields that decide what is installed.
type ClusterServiceVersion struct {
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
				Permissions        []Permission `json:"permissions"`
				ClusterPermissions []Permission `json:"clusterPermissions"`
			} `json:"spec"`
		} `json:"install"`
		RelatedImages []struct {
			Image string `json:"image"`
		} `json:"relatedImages"`
		CustomResourceDefinitions struct {
			Owned []OwnedKind `json:"owned"`
		} `json:"customresourcedefinitions"`
		MinKubeVersion string `json:"minKubeVersion"`
		Version        string `json:"version"`
	} `json:"spec"`
}

// OwnedKind is a kind that the bundle brings.
type OwnedKind struct {
	Name, Kind        string
	SpecDescriptors   []Descriptor `json:"specDescriptors"`
	StatusDescriptors []Descriptor `json:"statusDescriptors"`
}

// Descriptor is about a field in the form of a console.
type Descriptor struct {
	Path string `json:"path"`
}

// Own is the directory of the repository's bundle.
func Own() string { return filepath.Join(apiserver.Root(), "bundle") }

// Read returns the ClusterServiceVersion and the other manifests of the bundle in a directory.
func Read(bundle string) (ClusterServiceVersion, []*unstructured.Unstructured, error) {
	var csv ClusterServiceVersion
	files, err := filepath.Glob(filepath.Join(bundle, "manifests", "*.yaml"))
	if err != nil {
		return csv, nil, fmt.Errorf("listing the manifests of the bundle: %w", err)
	}
	var others []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return csv, nil, fmt.Errorf("reading a manifest of the bundle: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &object.Object); err != nil {
			return csv, nil, fmt.Errorf("parsing %s: %w", file, err)
		}
		if object.GetKind() != "ClusterServiceVersion" {
			others = append(others, object)
		} else if err := yaml.Unmarshal(data, &csv); err != nil {
			return csv, nil, fmt.Errorf("parsing %s: %w", file, err)
		}
	}
	if csv.Metadata.Name == "" || len(others) == 0 {
		return csv, nil, fmt.Errorf("%d manifests in %s, want a ClusterServiceVersion and others; make bundle writes them",
			len(files), bundle)
	}
	return csv, others, nil
}

// Namespace is the one that the bundle suggests, under another name.
func Namespace(bundle, name string) (*corev1.Namespace, error) {
	csv, _, err := Read(bundle)
	if err != nil {
		return nil, err
	}
	annotations, namespace := csv.Metadata.Annotations, &corev1.Namespace{}
	template := annotations["operatorframework.io/suggested-namespace-template"]
	if err := json.Unmarshal([]byte(template), namespace); err != nil {
		return nil, fmt.Errorf("parsing the template of the suggested namespace: %w", err)
	}
	if suggested := annotations["operatorframework.io/suggested-namespace"]; namespace.Name != suggested {
		return nil, fmt.Errorf("the template's namespace is %s, want the suggested one, %s", namespace.Name, suggested)
	}
	namespace.Name = name
	return namespace, nil
}

// Objects are what OLM makes of the bundle for all namespaces, in the order in which they are applied. They follow the
// rules of operator-controller's renderer of registry+v1 bundles:
//   - the annotations of the ClusterServiceVersion become those of the Deployment's pods;
//   - permissions become cluster-wide ones, because they are asked for in all namespaces;
//   - manifests of a namespace get the one that is installed to, and nothing else in them changes.
func Objects(bundle, namespace string) ([]*unstructured.Unstructured, error) {
	csv, others, err := Read(bundle)
	if err != nil {
		return nil, err
	}
	install := csv.Spec.Install.Spec
	var typed []runtime.Object
	accounts := map[string]bool{}
	for i, p := range slices.Concat(install.ClusterPermissions, install.Permissions) {
		accounts[p.ServiceAccountName] = true
		typed = append(typed, grant(csv, p, i, namespace)...)
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}}
		account.Name, account.Namespace = name, namespace
		typed = append(typed, account)
	}
	objects, err := encode(typed)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if of, supported := namespaced[other.GetKind()]; !supported {
			return nil, fmt.Errorf("the bundle carries %s %s, which OLM refuses", other.GetKind(), other.GetName())
		} else if of {
			other.SetNamespace(namespace)
		}
		objects = append(objects, other)
	}
	deployments, err := encode(deployments(csv, namespace))
	return append(objects, deployments...), err
}

func deployments(csv ClusterServiceVersion, namespace string) []runtime.Object {
	var objects []runtime.Object
	for _, d := range csv.Spec.Install.Spec.Deployments {
		deployment := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, Spec: d.Spec}
		deployment.Name, deployment.Namespace, deployment.Labels = d.Name, namespace, d.Label
		deployment.Spec.RevisionHistoryLimit = ptr.To(int32(1))
		annotations := maps.Clone(csv.Metadata.Annotations)
		maps.Copy(annotations, d.Spec.Template.Annotations)
		annotations["olm.targetNamespaces"] = ""
		deployment.Spec.Template.Annotations = annotations
		objects = append(objects, deployment)
	}
	return objects
}

// grant is a ClusterRole with its binding.
func grant(csv ClusterServiceVersion, p Permission, i int, namespace string) []runtime.Object {
	const version = "rbac.authorization.k8s.io/v1"
	role := &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ClusterRole"}, Rules: p.Rules}
	role.Name = fmt.Sprintf("%s-%s-%d", csv.Metadata.Name, p.ServiceAccountName, i)
	binding := &rbacv1.ClusterRoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ClusterRoleBinding"}}
	binding.Name = role.Name
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
	binding.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Name: p.ServiceAccountName, Namespace: namespace}}
	return []runtime.Object{role, binding}
}

func encode(objects []runtime.Object) ([]*unstructured.Unstructured, error) {
	var encoded []*unstructured.Unstructured
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("encoding a %T: %w", object, err)
		}
		delete(fields, "status")
		encoded = append(encoded, &unstructured.Unstructured{Object: fields})
	}
	return encoded, nil
}
