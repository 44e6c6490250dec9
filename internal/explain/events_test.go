/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package explain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestAKubeletThatWasTooFastForTheAPIServerIsNoCause(t *testing.T) {
	const waits = `Unable to attach or mount volumes: unmounted volumes=[data]`
	for message, want := range map[string]string{
		waits: catalog.MountWaits,
		waits + `: persistentvolumeclaims "data" is forbidden: User "system:node:node-b" cannot get resource ` +
			`"persistentvolumeclaims": no relationship found between node 'node-b' and this object`: "",
	} {
		if got := mountReason(facts.Event{Reason: "FailedMount", Message: message}); got != want {
			t.Errorf("event %q means %q, want %q", message, got, want)
		}
	}
}

func TestAFilesystemThatMayBeDamagedHasAWarningAboutItsData(t *testing.T) {
	for _, tt := range []struct {
		reason, detail string
		device         string
	}{
		{catalog.MountFailed, "mount failed: wrong fs type, bad option, bad superblock on /dev/sdb, missing", "/dev/sdb"},
		{catalog.MountFailed, "'fsck' found errors on device /dev/sdb but could not correct them", "/dev/sdb"},
		{catalog.MountFailed, "fsck: /dev/disk/by-path/pci-0000:00:1f.2-ata-1: errors", "/pci-0000:00:1f.2-ata-1`"},
		{volumesv1alpha1.ReasonStageFailed, "mount: Structure needs cleaning.", "DEVICE"},
		{catalog.MountFailed, "no route to the storage", ""},
		{catalog.AttachEvent, "the fsck of the storage runs", ""},
	} {
		got := warned(about{reason: tt.reason, detail: tt.detail})
		if tt.device == "" && got != "" || !strings.Contains(got, tt.device) {
			t.Errorf("%s %q: warning %q, want one that names %q", tt.reason, tt.detail, got, tt.device)
		}
	}
}

func TestThePodsThatATaintEndsAreNamed(t *testing.T) {
	pod := func(name string, tolerations ...corev1.Toleration) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.PodSpec{Tolerations: tolerations}}
	}
	ended := pod("ended")
	ended.Status.Phase = corev1.PodSucceeded
	b := &builder{f: &facts.Facts{Nodes: []facts.Node{{Name: "node-a", Pods: facts.List[corev1.Pod]{Items: []corev1.Pod{
		pod("db-0"), pod("web-0", corev1.Toleration{Key: "example.com/x", Operator: corev1.TolerationOpExists}), ended,
		pod("agent", corev1.Toleration{Operator: corev1.TolerationOpExists}),
	}}}}}}
	taint := []string{"kubectl taint node node-a node.kubernetes.io/out-of-service=down:NoExecute"}
	if got, want := b.ended(taint, "node-a"), " Pods that it ends: 2, shop/db-0, shop/web-0."; got != want {
		t.Errorf("the advice ends with %q, want %q", got, want)
	}
	if got := b.ended([]string{"kubectl get node node-a"}, "node-a"); got != "" {
		t.Errorf("an advice without a taint ends with %q, want nothing", got)
	}
}
