/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// TestTheOperator has a cluster of its own, whose pods run nowhere. So it has the situations before Hawser runs.
func TestTheOperator(t *testing.T) {
	own, err := system.Up(t.Context(), system.Options{Dir: os.Getenv(dirVariable) + "-operator", Nodes: []string{nodeA},
		Out: os.Stdout, OnlyUpstream: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	manager := why("volumemanager", volumesv1alpha1.VolumeManagerName)
	operate := func(s *story) {
		s.must(own.Run(s.limited(), "operator", filepath.Join(own.Bin, "operator"), "--kubeconfig="+own.Kubeconfig(),
			"--leader-elect=true", "--metrics-bind-address=0", "--health-probe-bind-address=0"))
	}
	for _, step := range []struct {
		name string
		situation
	}{
		{"before the operator runs", situation{code: "HWS519", way: "Run the operator", act: operate,
			comes: func(s *story) question {
				s.bash("kubectl apply --server-side -k " + filepath.Join(apiserver.Root(), "config", "crd") +
					" && kubectl wait --for=condition=Established crd --all --timeout=1m")
				s.create(&volumesv1alpha1.VolumeManager{
					ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName}})
				return manager
			}}},
		{"no image", situation{code: "HWS507", way: "Set spec.images", comes: func(*story) question { return manager },
			act: func(s *story) {
				s.patch(&volumesv1alpha1.VolumeManager{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName}},
					`{"spec":{"images":{"manager":"example.com/manager:1","agent":"example.com/agent:1"}}}`)
			}}},
		{"an object that is refused", situation{code: "HWS508", way: "The API server refused an object",
			comes: func(s *story) question {
				s.create(noObject("daemonsets.apps"))
				s.bash("kubectl delete daemonset --all -n " + install.Namespace())
				return manager
			},
			act: func(s *story) { s.remove(noObject("")) }}},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			s := newStory(t)
			s.sys = own
			step.play(s)
		}) {
			return // the next one begins where this one has ended
		}
	}
}

// noObject lets no object of a kind be created in Hawser's namespace.
func noObject(kind corev1.ResourceName) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/" + kind: resource.MustParse("0")}}}
}
