/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkTenThousandPodsWait is the part of the time that no API server takes: each pod is explained.
func BenchmarkTenThousandPodsWait(b *testing.B) {
	w := newWorld()
	for i := range 1000 {
		w.addNode(fmt.Sprint("n-", i))
	}
	for i := range 10000 {
		n := fmt.Sprint("v-", i)
		w.addVolume(n, "pv-"+n, "h-"+n)
		pod := w.addPod(n, fmt.Sprint("n-", i%1000), n)
		pod.Status.Phase = corev1.PodPending
		pod.CreationTimestamp = ago(20 * time.Minute)
		w.addAttachment("pv-"+n, "h-"+n, fmt.Sprint("n-", i%1000))
		w.event(pod.UID, "Pod", "FailedMount", "MountVolume.MountDevice failed: rpc error: code = Internal desc = no path")
	}
	b.ResetTimer()
	for b.Loop() {
		Examine(w.Cluster, noon)
	}
}
