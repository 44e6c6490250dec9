/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

// samplesNamespace is the namespace of config/samples.
const samplesNamespace = "hawser-demo"

// localPods has pods run the only image of these nodes, in the network of their node.
const localPods = `images: [{name: registry.k8s.io/pause, newName: localcluster.local/program, newTag: latest}]
patches:
- target: {kind: Pod}
  patch: |-
    - {op: add, path: /spec/hostNetwork, value: true}
    - {op: add, path: /spec/enableServiceLinks, value: false}
    - {op: add, path: /spec/automountServiceAccountToken, value: false}
    - {op: add, path: /spec/containers/0/imagePullPolicy, value: Never}
- target: {kind: StatefulSet|DaemonSet|Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/hostNetwork, value: true}
    - {op: add, path: /spec/template/spec/enableServiceLinks, value: false}
    - {op: add, path: /spec/template/spec/automountServiceAccountToken, value: false}
    - {op: add, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
`

// withoutDriver leaves out the driver of the samples, which is there already.
const withoutDriver = `- patch: |-
    {apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: loop.csi.hawser.io}, $patch: delete}
`

// applied applies files and directories of the repository with the rest of a kustomization. After the test everything
// in the namespaces is deleted: first the users, and last the namespaces, so that no claim is deleted in use.
func applied(t *testing.T, name string, resources []string, rest string, namespaces []string) {
	t.Helper()
	dir := filepath.Join(sys.Dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := rest + "resources:\n"
	for _, resource := range resources {
		text += "- " + reachable(t, dir, filepath.Join(apiserver.Root(), resource)) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, kinds := range []string{"statefulsets,daemonsets,deployments", "pods",
			"volumeattachmentintentsets,volumeattachmentintents", "persistentvolumeclaims"} {
			for _, namespace := range namespaces {
				if out, err := sys.Kubectl(limited(t), "delete", kinds, "--all", "-n", namespace); err != nil {
					t.Errorf("deleting the %s of namespace %s: %v\n%s", kinds, namespace, err, out)
				}
			}
		}
		if len(namespaces) == 0 {
			return
		}
		settle(t)
		if out, err := sys.Kubectl(limited(t), "delete", "-k", dir, "--ignore-not-found"); err != nil {
			t.Errorf("deleting what %s has: %v\n%s", name, err, out)
		}
	})
	if out, err := sys.Kubectl(limited(t), "apply", "-k", dir); err != nil {
		t.Fatalf("applying %s: %v\n%s", name, err, out)
	}
}

// reachable is the name of a resource in a kustomization, which takes directories from anywhere and files from its own.
func reachable(t *testing.T, dir, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(path)
	}
	relative, err := filepath.Rel(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	return relative
}

func TestTheSampleManifestsOfPodsRun(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	applied(t, "samples", []string{"config/samples", "config/samples/pods"}, localPods+withoutDriver,
		[]string{samplesNamespace})
	for _, name := range []string{"reader-of-an-intent", "user-of-a-claim"} {
		awaitReadyPod(t, samplesNamespace, name)
	}
}
