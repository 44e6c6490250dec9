/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// inline is a pod with an inline volume "data" of Hawser.
func (v *volume) inline(node string, attributes map[string]string, change func(*corev1.Pod),
	steps ...[]string) *corev1.Pod {
	v.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "inline-"},
		Spec:       podSpec(node, false, v.meanwhile, steps...),
	}
	pod.Spec.Volumes = inlineOf(attributes)
	if change != nil {
		change(pod)
	}
	create(v.t, pod)
	v.t.Cleanup(func() { remove(v.t, pod) })
	return pod
}

// inlineOf is the inline volume "data" with the attributes.
func inlineOf(attributes map[string]string) []corev1.Volume {
	return []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: attributes}}}}
}

func intentNamed(i *volumesv1alpha1.VolumeAttachmentIntent) map[string]string {
	return map[string]string{volumesv1alpha1.AttributeIntent: i.Name}
}

func readOnly(pod *corev1.Pod) { pod.Spec.Volumes[0].CSI.ReadOnly = ptr.To(true) }

// inlineVolumes begins a test of inline volumes: with Hawser alone, and on kubelets in their default configuration.
func inlineVolumes(t *testing.T) {
	t.Helper()
	if os.Getenv(attachVariable) != hawser {
		t.Skip("upstream does not know intents")
	}
	reportsByDefault(t)
}

func TestAPodUsesTheVolumeOfAnIntent(t *testing.T) {
	inlineVolumes(t)
	for _, node := range sys.Nodes { // the kubelet's directory of one of them is a symbolic link
		t.Run("on "+node, func(t *testing.T) {
			v := newVolume(t, corev1.PersistentVolumeFilesystem)
			intent := v.intent(node)
			begin := time.Now()
			writer := v.inline(node, intentNamed(intent), nil, v.write("from the pod"))
			runs(t, writer)
			t.Logf("pod created -> running %.1f s", time.Since(begin).Seconds())
			v.publishes(node, intent, "from the pod")
			reader := v.inline(node, intentNamed(intent), readOnly, v.read("from the pod"),
				[]string{"refused", v.path()})
			runs(t, reader)

			if err := sys.Client.Delete(limited(t), intent); err != nil {
				t.Fatal(err)
			}
			v.namesPods(intent, writer, reader)
			refused(t, v.inline(node, intentNamed(intent), nil), "is being deleted")
			remove(t, reader)
			v.publishes(node, intent, "from the pod")
			v.notUnstaged()
			remove(t, writer)
			if err := sys.AwaitGone(limited(t), namespace, intent.Name); err != nil {
				dump(t)
				t.Error(err)
			}
			v.eventually("the volume unstaged", func() (bool, error) { return v.unstaged(), nil })
		})
	}
}

// publishes checks what the file of the volume contains at the intent's path.
func (v *volume) publishes(node string, i *volumesv1alpha1.VolumeAttachmentIntent, want string) {
	v.t.Helper()
	pid, err := sys.PID(system.Machine(node))
	if err != nil {
		v.t.Fatal(err)
	}
	path := filepath.Join(fmt.Sprintf("/proc/%d/root", pid), i.Status.Path, "file")
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		v.t.Errorf("file of intent %s on node %s: %q, error %v; want %q", i.Name, node, got, err, want)
	}
}

// namesPods waits until the intent, which is being deleted, names the pods that it waits for.
func (v *volume) namesPods(i *volumesv1alpha1.VolumeAttachmentIntent, pods ...*corev1.Pod) {
	v.t.Helper()
	_, err := system.Await(limited(v.t), sys, &volumesv1alpha1.VolumeAttachmentIntentList{},
		client.ObjectKeyFromObject(i), func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			if i == nil {
				return false
			}
			c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
			named := c != nil && c.Reason == volumesv1alpha1.ReasonUsedByPods
			for _, pod := range pods {
				named = named && strings.Contains(c.Message, pod.Namespace+"/"+pod.Name)
			}
			return named
		})
	if err != nil {
		dump(v.t)
		v.t.Errorf("intent %s does not name the pods that use it: %v", i.Name, err)
	}
}

// refused waits for an event of the pod that contains the text, and removes the pod.
func refused(t *testing.T, pod *corev1.Pod, text string) {
	t.Helper()
	awaitEvent(t, pod, "FailedMount", text)
	remove(t, pod)
}

func awaitEvent(t *testing.T, pod *corev1.Pod, reason, text string) {
	t.Helper()
	err := sys.AwaitEventWith(limited(t), pod.Namespace, pod.Name, reason, text)
	if err != nil {
		dump(t)
		t.Errorf("event %s of pod %s with %q: %v", reason, pod.Name, text, err)
	}
}
