/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// actOnPods is one wish for pods, or a restart of their kubelet; false where it is neither.
func (w *World) actOnPods(node, volume string) bool {
	r := w.chance.draw("wish", "pod")
	name := fmt.Sprintf("pod-of-%s-%s-%d", volume, node, r.IntN(2))
	switch n := r.IntN(40); {
	case n < 9:
		w.wantPod(name, node, volume)
	case n < 13:
		w.deletePod(name, false)
	case n < 15:
		w.deletePod(name, true)
	case n < 17:
		if w.deletePod(name, n == 15) {
			w.later(w.chance.between("wish", 0, 30*time.Second), func() {
				if !w.chance.ceased() {
					w.wantPod(name, node, volume)
				}
			})
		}
	case n == 17:
		w.wantPod(name, node, volume)
		w.want(fmt.Sprintf("%s-%s-0", volume, node), node, volume)
	case n == 18 || n == 19:
		w.nodes[node].restartKubelet()
	default:
		return false
	}
	return true
}

// wantPod makes a pod that is bound to the node. A scheduler keeps two pods apart that want a volume for a single user.
func (w *World) wantPod(name, node, volume string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != "" || w.pod(name) != nil {
		return
	}
	for _, o := range w.pods() {
		if volume == "pod" && claimOf(o) == volume {
			return
		}
	}
	w.by = "somebody"
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "main"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	})
}

// deletePod asks the kubelet to end the pod. With force the pod is gone at once, whatever its kubelet does.
func (w *World) deletePod(name string, force bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := w.pod(name)
	if pod == nil || w.broken != "" || pod.DeletionTimestamp != nil && !force {
		return false
	}
	w.by = "somebody"
	if !force {
		w.must(w.api.delete(pod, nil))
		return true
	}
	w.chance.reach(podForced)
	w.must(w.api.deleteNow(pod, nil))
	return true
}

func (w *World) pod(name string) *corev1.Pod {
	o, ok := w.api.kind(&corev1.Pod{}).objects[client.ObjectKey{Namespace: "default", Name: name}]
	if !ok {
		return nil
	}
	return o.(*corev1.Pod)
}

func (w *World) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range w.api.list(&corev1.Pod{}) {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

func (w *World) node(name string) *corev1.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodeLocked(name)
}

func (w *World) nodeLocked(name string) *corev1.Node {
	o, err := w.api.get(&corev1.Node{}, client.ObjectKey{Name: name})
	w.must(err)
	return o.(*corev1.Node)
}

// withdrawPods deletes pods.
func (w *World) withdrawPods(which func(*corev1.Pod) bool) {
	w.mu.Lock()
	var names []string
	for _, pod := range w.pods() {
		if which(pod) {
			names = append(names, pod.Name)
		}
	}
	w.mu.Unlock()
	for _, n := range names {
		w.deletePod(n, false)
	}
}

// podFits reports whether the pod can have its volume beside all intents of people, and the pods before it in order of
// name.
func (w *World) podFits(pod *corev1.Pod) bool {
	volume := claimOf(pod)
	if volume == "rwx" {
		return true
	}
	for _, i := range w.intents() {
		same := i.Spec.Volume.PersistentVolumeClaim.ClaimName == volume && i.DeletionTimestamp == nil
		if same && (volume == "pod" || i.Spec.NodeName != pod.Spec.NodeName) {
			return false
		}
	}
	for _, other := range w.pods() {
		if other.Name == pod.Name {
			return true
		}
		if claimOf(other) == volume && other.Spec.NodeName != pod.Spec.NodeName {
			return false
		}
	}
	return true
}

// intents of people; those of pods are the manager's.
func (w *World) intents() []*volumesv1alpha1.VolumeAttachmentIntent {
	var intents []*volumesv1alpha1.VolumeAttachmentIntent
	for _, o := range w.api.list(&volumesv1alpha1.VolumeAttachmentIntent{}) {
		if i := o.(*volumesv1alpha1.VolumeAttachmentIntent); i.Spec.Publisher == volumesv1alpha1.PublisherAgent {
			intents = append(intents, i)
		}
	}
	return intents
}

// missingPods are those that do not run with their volume.
func (w *World) missingPods() []string {
	var missing []string
	for _, pod := range w.pods() {
		m := w.nodes[pod.Spec.NodeName]
		e, ok := m.at(filepath.Join(m.podDir(pod.UID, claimOf(pod)), "mount"))
		if _, runs := m.containers[pod.UID]; !runs || !ok || e.handle != "vol-"+claimOf(pod) {
			missing = append(missing, describePod(pod, false))
		}
	}
	return missing
}

// relieve deletes the pods that wait, or that others wait for, without end, as administrators do.
func (w *World) relieve() {
	w.withdrawPods(func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil && (w.waitsWithoutEnd(pod) || w.usesDetaching(pod))
	})
}

// waitsWithoutEnd: what the pod's kubelet may have used in this boot was forced away, see docs/operations.md.
func (w *World) waitsWithoutEnd(pod *corev1.Pod) bool {
	m, handle := w.nodes[pod.Spec.NodeName], "vol-"+claimOf(pod)
	e := handshake.AttachmentOf(w.state(m.name), uniqueName(handle))
	return e != nil && e.Evidence != nil && w.forced[e.AttachmentUID] &&
		(e.Protocol.UnlistedBootID == "" || e.Protocol.UnlistedBootID == m.bootIDLocked() || m.recorded[handle] == m.boot)
}

// usesDetaching reports whether the attachment that the pod waits for is being detached and the kubelet does not let go
// of it. The kubelet may have begun to use it just as it was marked as detaching. Or a restarted kubelet does not know
// of a stage, whose record is left; while a pod waits, nobody cleans that up.
func (w *World) usesDetaching(pod *corev1.Pod) bool {
	m, handle := w.nodes[pod.Spec.NodeName], "vol-"+claimOf(pod)
	node, name := w.nodeLocked(m.name), uniqueName(handle)
	e := handshake.AttachmentOf(w.state(node.Name), name)
	return e != nil && e.State == volumesv1alpha1.AttachmentDetaching &&
		slices.Contains(node.Status.VolumesInUse, corev1.UniqueVolumeName(name)) &&
		(listsAttached(node, handle) || m.stageRecorded(handle))
}

func describePod(pod *corev1.Pod, gone bool) string {
	line := fmt.Sprintf("pod %s (%s, %s)", pod.Name, pod.UID, strings.ToLower(string(pod.Status.Phase)))
	switch {
	case gone:
		line += " is gone"
	case pod.DeletionTimestamp != nil:
		line += " deleted"
	}
	return line
}

// noteShared counts a volume that the kubelet has published beside the agent.
func (m *machine) noteShared(handle string) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	for _, e := range m.of(handle) {
		if strings.HasPrefix(e.Path, m.root()) {
			m.world.chance.reach(shared)
			return
		}
	}
}
