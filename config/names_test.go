/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// testNames checks the accounts of overlays that put something before or after every name, with a hyphen and without.
func (in installation) testNames(t *testing.T) {
	expectAllowed(t, in.admin.Create(t.Context(), newNodeState("named")))
	for _, pattern := range []string{"eu-NAME", "euNAME", "NAME-eu", "NAMEeu"} {
		t.Run("agent "+pattern, func(t *testing.T) {
			account := strings.Replace(pattern, "NAME", agentAccount, 1)
			in.grantEverything(t, account)
			state := newNodeState("named")
			expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state))
			state.Status.Protocol.Reports++
			expectForbidden(t, in.as(t, account, "other").Status().Update(t.Context(), state), "the agent of node other")
			expectAllowed(t, in.as(t, account, "named").Status().Update(t.Context(), state))
		})
		t.Run("manager "+pattern, func(t *testing.T) {
			account := strings.Replace(pattern, "NAME", managerAccount, 1)
			in.grantEverything(t, account)
			manager := in.as(t, account)
			expectForbidden(t, manager.Create(t.Context(), in.newConfigMap("of-"+account)), "the manager may write only")
			held := newAttachment("of-"+account, "t1")
			expectAllowed(t, manager.Create(t.Context(), held))
			expectAllowed(t, manager.Delete(t.Context(), held))
		})
	}
}

// TestEveryReferenceOfAnOverlayIsToWhatItContains renders config/standalone with each component that it may have.
func TestEveryReferenceOfAnOverlayIsToWhatItContains(t *testing.T) {
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a directory with kubectl; make test builds it)", apiserver.AssetsVariable)
	}
	for _, overlay := range []apiserver.Kustomization{
		{Namespace: "storage-system"},
		{Namespace: "storage-system", NamePrefix: "acme-"},
		{Namespace: volumesv1alpha1.InstallNamespace, NamePrefix: "acme-"},
	} {
		t.Run(overlay.NamePrefix+overlay.Namespace, func(t *testing.T) {
			overlay.Resources = []string{"standalone"}
			overlay.Components = []string{"monitoring", "kube-state-metrics", "kube-state-metrics/monitor", "grafana",
				"networkpolicy", "forget-gone-nodes", "node-writes", "replace"}
			rendered := apiserver.Kubectl(t, "", "", "kustomize", overlay.Write(t))
			if former := volumesv1alpha1.InstallNamespace; overlay.Namespace != former && strings.Contains(rendered, former) {
				t.Errorf("the overlay for namespace %s contains %s", overlay.Namespace, former)
			}
			// kustomize gives a namespace to objects of some kinds that have none. The API server drops it.
			// The operator has an overlay of its own, and applies the FlowSchemas of this one.
			there := map[string]bool{"PriorityLevelConfiguration leader-election": true, "ServiceAccount hawser-operator": true}
			for _, object := range parsed(t, rendered) {
				there[object.GetKind()+" "+object.GetName()] = true
			}
			for _, object := range parsed(t, rendered) {
				for _, reference := range references(object) {
					if !there[reference] {
						t.Errorf("%s %s refers to %s, which is not in the overlay", object.GetKind(), object.GetName(), reference)
					}
				}
			}
		})
	}
}

// TestTheDocumentedOverlayLeavesOutWhatItSays renders the kustomization of docs/install.md with both of its patches.
func TestTheDocumentedOverlayLeavesOutWhatItSays(t *testing.T) {
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a directory with kubectl; make test builds it)", apiserver.AssetsVariable)
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "install.md"))
	expectAllowed(t, err)
	_, section, _ := strings.Cut(string(page), "### Another namespace or name\n")
	section, _, _ = strings.Cut(section, "\n## ")
	names, patches := "", "patches:\n"
	for line := range strings.Lines(section) {
		line, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented && strings.HasPrefix(line, "name"):
			names += line
		case indented && (strings.HasPrefix(line, "- patch:") || strings.HasPrefix(line, " ")):
			patches += line
		}
	}
	overlay := apiserver.Kustomization{Resources: []string{"standalone"}}.Write(t)
	file, err := os.OpenFile(filepath.Join(overlay, "kustomization.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	expectAllowed(t, err)
	_, err = file.WriteString(names + patches)
	expectAllowed(t, errors.Join(err, file.Close()))
	objects := parsed(t, apiserver.Kubectl(t, "", "", "kustomize", overlay))
	find(t, objects, "Deployment", "acme-hawser-manager")
	for _, object := range objects {
		if kind := object.GetKind(); kind == "CSIDriver" || kind == "Namespace" {
			t.Errorf("the documented overlay has %s %s, want it left out", kind, object.GetName())
		}
	}
}

// references are kind and name of what an object refers to.
func references(object *unstructured.Unstructured) []string {
	kinds := map[string]string{"serviceAccountName": "ServiceAccount", "serviceAccount": "ServiceAccount",
		"policyName": strings.TrimSuffix(object.GetKind(), "Binding"), "credentials": "Secret", "configMap": "ConfigMap",
		"priorityLevelConfiguration":         "PriorityLevelConfiguration",
		"kubernetes.io/service-account.name": "ServiceAccount"}
	var found []string
	var walk func(value any)
	walk = func(value any) {
		list, _ := value.([]any)
		for _, inner := range list {
			walk(inner)
		}
		fields, _ := value.(map[string]any)
		for key, inner := range fields {
			in, _ := inner.(map[string]any)
			switch name, _ := in["name"].(string); {
			case key == "roleRef":
				found = append(found, fmt.Sprint(in["kind"])+" "+name)
			case kinds[key] != "" && name != "":
				found = append(found, kinds[key]+" "+name)
			case kinds[key] != "" && in == nil:
				found = append(found, kinds[key]+" "+fmt.Sprint(inner))
			}
			walk(inner)
		}
		if fields["kind"] == "ServiceAccount" && fields["name"] != nil {
			found = append(found, "ServiceAccount "+fmt.Sprint(fields["name"]))
		}
	}
	walk(object.Object)
	return found
}

// testDirectories checks that the uninstall of docs/install.md finds the objects of an overlay: the directories that it
// names have other names than the overlay, unless they have its namespace and prefix too.
func (in installation) testDirectories(t *testing.T) {
	whole := in.identities(t, "standalone")
	for _, directory := range []string{"admission", "manager", "agent"} {
		for _, object := range in.identities(t, directory) {
			if !slices.Contains(whole, object) {
				t.Errorf("config/%s with the namespace and prefix of the installation has %s, which is not there", directory,
					object)
			}
		}
	}
}

// identities are kind, namespace and name of what a directory contains in this installation.
func (in installation) identities(t *testing.T, directory string) []string {
	t.Helper()
	var found []string
	for _, object := range parsed(t, in.kubectl(t, "kustomize", in.overlay(t, directory))) {
		found = append(found, object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
	}
	return found
}
