/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// samplesNamespace is the namespace of config/samples.
const samplesNamespace = "hawser-demo"

// localPods has the pods of config/samples run the only image of these nodes, in the network of their node. The driver
// is there already.
const localPods = `images: [{name: registry.k8s.io/pause, newName: localcluster.local/program, newTag: latest}]
patches:
- target: {kind: Pod}
  patch: |-
    - {op: add, path: /spec/hostNetwork, value: true}
    - {op: add, path: /spec/enableServiceLinks, value: false}
    - {op: add, path: /spec/automountServiceAccountToken, value: false}
    - {op: add, path: /spec/containers/0/imagePullPolicy, value: Never}
- patch: |-
    {apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: loop.csi.hawser.io}, $patch: delete}
`

func TestTheSampleManifestsOfPodsRun(t *testing.T) {
	inlineVolumes(t)
	schedules(t)
	dir := filepath.Join(sys.Dir, "samples")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Rel(dir, filepath.Join(apiserver.Root(), "config", "samples"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%[1]s, %[1]s/pods]\n", samples) + localPods
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The namespace goes last, so that its claims are not deleted before what uses them.
		for _, kinds := range []string{"pods", "volumeattachmentintents", "persistentvolumeclaims"} {
			if out, err := sys.Kubectl(limited(t), "delete", kinds, "--all", "-n", samplesNamespace); err != nil {
				t.Errorf("deleting the %s of the samples: %v\n%s", kinds, err, out)
			}
		}
		settle(t)
		if out, err := sys.Kubectl(limited(t), "delete", "-k", dir, "--ignore-not-found"); err != nil {
			t.Errorf("deleting the samples: %v\n%s", err, out)
		}
	})
	if out, err := sys.Kubectl(limited(t), "apply", "-k", dir); err != nil {
		t.Fatalf("applying the samples: %v\n%s", err, out)
	}
	for _, name := range []string{"reader-of-an-intent", "user-of-a-claim"} {
		_, err := system.Await(limited(t), sys, &corev1.PodList{}, client.ObjectKey{Namespace: samplesNamespace, Name: name},
			func(p *corev1.Pod) bool { return p != nil && isReady(p) })
		if err != nil {
			dump(t)
			t.Errorf("pod %s of the samples does not run: %v", name, err)
		}
	}
}
