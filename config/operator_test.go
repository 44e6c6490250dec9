/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// testVolumeManagers applies each documented VolumeManager. No operator runs here.
func (in installation) testVolumeManagers(t *testing.T) {
	for mode, want := range map[string]volumesv1alpha1.VolumeManagerSpec{
		"coexist": {AttachMode: volumesv1alpha1.AttachCoexist, PodIntents: volumesv1alpha1.PodIntentsAuto},
		"observe": {AttachMode: volumesv1alpha1.AttachCoexist, PodIntents: volumesv1alpha1.PodIntentsAlways},
		"replace": {AttachMode: volumesv1alpha1.AttachReplace, PodIntents: volumesv1alpha1.PodIntentsAuto},
	} {
		in.kubectl(t, "apply", "-k", "volumemanager/"+mode)
		vm := &volumesv1alpha1.VolumeManager{}
		expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName}, vm))
		if vm.Spec.AttachMode != want.AttachMode || vm.Spec.PodIntents != want.PodIntents {
			t.Errorf("config/volumemanager/%s: attach mode %s, pod intents %s; want %s, %s", mode, vm.Spec.AttachMode,
				vm.Spec.PodIntents, want.AttachMode, want.PodIntents)
		}
		in.kubectl(t, "delete", "-k", "volumemanager/"+mode)
	}
}

// TestAnOverlayNamesTheImagesThatTheOperatorDeploys sets all three images as docs/install.md does.
func TestAnOverlayNamesTheImagesThatTheOperatorDeploys(t *testing.T) {
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s, a directory with kubectl; make test builds it)", apiserver.AssetsVariable)
	}
	dir := apiserver.Kustomization{Resources: []string{"default"}}.Write(t)
	file, err := os.OpenFile(dir+"/kustomization.yaml", os.O_APPEND|os.O_WRONLY, 0)
	expectAllowed(t, err)
	_, err = file.WriteString(`images:
- {name: hawser/operator, newName: example.com/o, newTag: v1}
- {name: hawser/manager, newName: example.com/m, newTag: v2}
- {name: hawser/agent, newName: example.com/a, newTag: v3}
`)
	expectAllowed(t, err)
	expectAllowed(t, file.Close())
	objects := parsed(t, apiserver.Kubectl(t, "", "", "kustomize", dir))
	operator := decode[appsv1.Deployment](t, find(t, objects, "Deployment", operatorAccount))
	container := operator.Spec.Template.Spec.Containers[0]
	got := map[string]string{"image": container.Image}
	for _, variable := range container.Env {
		got[variable.Name] = variable.Value
	}
	for name, want := range map[string]string{"image": "example.com/o:v1", "RELATED_IMAGE_MANAGER": "example.com/m:v2",
		"RELATED_IMAGE_AGENT": "example.com/a:v3"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}
