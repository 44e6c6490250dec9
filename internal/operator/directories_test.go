/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
	"github.com/hawser-io/hawser/internal/operator/usage"
)

func agentsOf(t *testing.T, objects []*unstructured.Unstructured) *appsv1.DaemonSet {
	t.Helper()
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" })
	agents, err := fromUnstructured[appsv1.DaemonSet](objects[at])
	if err != nil {
		t.Fatal(err)
	}
	return agents
}

// The directories of the spec were changed while no operator ran, or forgotten when an installation was adopted.
func TestTheDirectoriesOfTheAgentsStayWhileVolumesAreInUse(t *testing.T) {
	in := render.Input{Namespace: "hawser", Images: volumesv1alpha1.Images{Manager: "m", Agent: "a"},
		Serves: func(schema.GroupVersionKind) bool { return true }}
	in.Spec.RootDirectory = "/srv/hawser"
	objects, err := render.Objects(in)
	if err != nil {
		t.Fatal(err)
	}
	m := newMeanwhile(t, agentsOf(t, objects))
	shown := make([]volumesv1alpha1.VolumeAttachmentIntent, 1)
	before := render.Directories{Kubelet: "/var/lib/kubelet", Root: "/srv/hawser"}
	after := render.Directories{Kubelet: "/data/kubelet", Root: "/var/lib/hawser"}
	in.Spec.KubeletRoot, in.Spec.RootDirectory = after.Kubelet, after.Root
	for name, test := range map[string]struct {
		used used
		want render.Directories
		held int
	}{
		"nothing is in use":                     {used{known: true}, after, 0},
		"intents only show what upstream does":  {used{known: true, intents: shown}, after, 0},
		"a volume is in use":                    {used{known: true, uses: []usage.Use{{Node: "node-a"}}}, before, 1},
		"a directory of intents is left":        {used{known: true, directories: []string{"1 on node node-a"}}, before, 1},
		"it is not known whether one is in use": {used{}, before, 1},
	} {
		t.Run(name, func(t *testing.T) {
			objects, held, err := m.render(t.Context(), in, test.used)
			if err != nil || len(held) != test.held {
				t.Fatalf("problems: %v, error %v; want %d problem(s)", held, err, test.held)
			}
			agents := agentsOf(t, objects)
			if got := render.DirectoriesOf(agents.Spec.Template.Spec); got != test.want {
				t.Errorf("directories of the agents: %+v, want %+v", got, test.want)
			}
			args := agents.Spec.Template.Spec.Containers[0].Args
			for _, flag := range []string{"--kubelet-dir=" + test.want.Kubelet, "--root-dir=" + test.want.Root} {
				if !slices.Contains(args, flag) {
					t.Errorf("arguments of the agents: %q, want %s among them", args, flag)
				}
			}
		})
	}
}
