/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"regexp"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// restarts are enough for mounts that double at each one to fill a node (kubevirt#17488).
const restarts = 12

// testRestarts deletes the agent's pod again and again, beside another pod that mounts the kubelet's directory with
// propagation in both directions, as virtual machine and storage add-ons do. The node's mounts stay as they were.
func (s suite) testRestarts(t *testing.T) {
	t.Helper()
	intent := newIntent(ofRestarts, nodeA)
	s.create(t, intent)
	_, err := s.AwaitReady(limited(t), intent.Namespace, intent.Name)
	s.explain(t, err)
	other := s.otherMounter()
	s.create(t, other)
	s.awaitPod(t, other, isRunning)
	before, begin := s.mountsWithoutNames(t), time.Now()
	for range restarts {
		s.replaceAgent(t)
	}
	differ(t, "mounts of node "+nodeA, before, s.mountsWithoutNames(t))
	t.Logf("%d restarts of the agent in %s; node %s has %d mounts", restarts, time.Since(begin).Round(time.Second), nodeA,
		len(before))
	check(t, s.Client.Delete(limited(t), other))
	s.awaitPod(t, other, func(pod *corev1.Pod) bool { return pod == nil })
	check(t, s.Client.Delete(limited(t), intent))
	s.explain(t, s.AwaitGone(limited(t), intent.Namespace, intent.Name))
}

// otherMounter mounts the kubelet's directory as the agent does.
func (s suite) otherMounter() *corev1.Pod {
	dir := s.KubeletDir(nodeA)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other-mounter"}, Spec: corev1.PodSpec{
		NodeName: nodeA, HostNetwork: true, AutomountServiceAccountToken: ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{Name: "pause", Image: system.Image, ImagePullPolicy: corev1.PullNever,
			Args: []string{"pause"}, SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
			VolumeMounts: []corev1.VolumeMount{{Name: "kubelet", MountPath: dir,
				MountPropagation: ptr.To(corev1.MountPropagationBidirectional)}}}},
		Volumes: []corev1.Volume{{Name: "kubelet", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: dir}}}},
	}}
}

// mountsWithoutNames are the mount points of node-a, without what names one pod or container, and without what comes to
// it from this machine, where other programs mount too.
func (s suite) mountsWithoutNames(t *testing.T) []string {
	t.Helper()
	names := regexp.MustCompile(`[0-9a-f]{64}|kube-api-access-[a-z0-9]{5}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	outside, err := mount.ParseMountInfo("/proc/self/mountinfo")
	check(t, err)
	var points []string
	for _, info := range s.mountTable(t, nodeA) {
		if slices.ContainsFunc(outside, func(o mount.MountInfo) bool { return o.MountPoint == info.MountPoint }) {
			continue
		}
		points = append(points, names.ReplaceAllString(info.MountPoint, "NAME"))
	}
	slices.Sort(points)
	return points
}

// replaceAgent deletes the agent's pod and waits until another one works in its place and the first has gone.
func (s suite) replaceAgent(t *testing.T) {
	t.Helper()
	lease := client.ObjectKey{Namespace: hawser, Name: volumesv1alpha1.AgentLeasePrefix + nodeA}
	last := &coordinationv1.Lease{}
	check(t, s.Client.Get(limited(t), lease, last))
	agent := s.agentOn(t, nodeA)
	check(t, s.Client.Delete(limited(t), agent))
	s.awaitPod(t, agent, func(pod *corev1.Pod) bool { return pod == nil })
	_, err := system.Await(limited(t), s.System, &coordinationv1.LeaseList{}, lease,
		func(now *coordinationv1.Lease) bool {
			return now != nil && now.Spec.AcquireTime != nil && now.Spec.AcquireTime.After(last.Spec.AcquireTime.Time)
		})
	s.explain(t, err)
}
