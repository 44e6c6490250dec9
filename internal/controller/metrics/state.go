/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/resolve"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/metrics"
)

var (
	totalVolumes = prometheus.NewDesc("attachdetach_controller_total_volumes",
		"Volumes, each once for each node. desired_state_of_world: those that intents want. actual_state_of_world: "+
			"VolumeAttachments that are attached, or may be because an attempt failed.",
		[]string{"plugin_name", "state"}, nil)
	volumesInUse = prometheus.NewDesc("storage_count_attachable_volumes_in_use",
		"Volumes that pods on the node use, and intents that were not made for pods.",
		[]string{"node", "volume_plugin"}, nil)
)

// notAvailable names a plugin that is not known any more, as upstream has it.
const notAvailable = "N/A"

// stateCollector counts what the cache holds each time it is asked.
type stateCollector struct {
	reader client.Reader
	// leading is closed once this process leads; a process that does not lead reports nothing, so that nothing is
	// reported twice.
	leading <-chan struct{}
}

// Describe as prometheus.Collector has it.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- totalVolumes
	ch <- volumesInUse
}

// counts by the values of two labels.
type counts map[[2]string]int

func (c counts) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	for labels, n := range c {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
}

// Collect as prometheus.Collector has it. What cannot be read, because the cache has not been filled, is left out.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	if !isClosed(c.leading) {
		return
	}
	ctx := context.Background() // the cache answers at once
	total, inUse := counts{}, counts{}
	for _, count := range []func(context.Context, counts, counts) error{c.countIntents, c.countAttachments, c.countPods} {
		if err := count(ctx, total, inUse); err != nil {
			return
		}
	}
	total.collect(ch, totalVolumes)
	inUse.collect(ch, volumesInUse)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// countIntents: a volume is wanted once on a node, however many want it. Those that kubelets mount for pods are in use
// by the pods.
func (c *stateCollector) countIntents(ctx context.Context, total, inUse counts) error {
	intents := &volumesv1alpha1.VolumeAttachmentIntentList{}
	if err := c.reader.List(ctx, intents); err != nil {
		return err
	}
	type place struct{ volume, node string }
	seen := map[place]bool{}
	for i := range intents.Items {
		intent := &intents.Items[i]
		if !intent.DeletionTimestamp.IsZero() || intent.Status.UniqueVolumeName == "" {
			continue
		}
		volumes, err := resolve.Volumes(ctx, c.reader, intent.Status.UniqueVolumeName)
		if err != nil {
			return err
		}
		plugin := pluginOf(volumes...)
		if p := (place{intent.Status.UniqueVolumeName, intent.Spec.NodeName}); !seen[p] {
			seen[p] = true
			total[[2]string{plugin, "desired_state_of_world"}]++
		}
		_, _, ofPod := index.PodOf(intent)
		if !ofPod || intent.Spec.Publisher != volumesv1alpha1.PublisherKubelet {
			inUse[[2]string{intent.Spec.NodeName, plugin}]++
		}
	}
	return nil
}

// countAttachments: what may be attached counts as attached.
func (c *stateCollector) countAttachments(ctx context.Context, total, _ counts) error {
	attachments := &storagev1.VolumeAttachmentList{}
	if err := c.reader.List(ctx, attachments); err != nil {
		return err
	}
	for i := range attachments.Items {
		va := &attachments.Items[i]
		if (va.Status.Attached || va.Status.AttachError != nil) && !handshake.AttachmentFrom(va).Gone() {
			total[[2]string{metrics.PluginName(va.Spec.Attacher), "actual_state_of_world"}]++
		}
	}
	return nil
}

func (c *stateCollector) countPods(ctx context.Context, _, inUse counts) error {
	pods := &corev1.PodList{}
	if err := c.reader.List(ctx, pods); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !index.UsesVolumes(pod) {
			continue
		}
		for _, pv := range volume.InlineOf(pod) {
			inUse[[2]string{pod.Spec.NodeName, pluginOf(*pv)}]++
		}
		for _, claim := range index.PodClaims(pod) {
			if volumes := c.claimed(ctx, pod.Namespace, claim); volumes != nil {
				inUse[[2]string{pod.Spec.NodeName, pluginOf(volumes...)}]++
			}
		}
	}
	return nil
}

// claimed is the PersistentVolume that a claim names, empty where it is not there; nil where the claim names none.
func (c *stateCollector) claimed(ctx context.Context, namespace, name string) []corev1.PersistentVolume {
	claim, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim); err != nil ||
		claim.Spec.VolumeName == "" {
		return nil
	}
	if err := c.reader.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err != nil {
		return []corev1.PersistentVolume{}
	}
	return []corev1.PersistentVolume{*pv}
}

// pluginOf a volume that is known as these PersistentVolumes.
func pluginOf(volumes ...corev1.PersistentVolume) string {
	if len(volumes) == 0 || volume.DriverOf(&volumes[0]) == "" {
		return notAvailable
	}
	return metrics.PluginName(volume.DriverOf(&volumes[0]))
}
