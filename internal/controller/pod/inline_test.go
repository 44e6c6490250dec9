/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// inlinePodOf is a pod on node n with an inline volume for each of the attributes.
func inlinePodOf(attributes ...map[string]string) *corev1.Pod {
	w := newWorld()
	w.pod.Spec.Volumes = nil
	for _, a := range attributes {
		w.pod.Spec.Volumes = append(w.pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
			CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver, VolumeAttributes: a}}})
	}
	return w.pod
}

func TestDecideOnInlineVolumes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*facts)
		want   summary
	}{
		{"a claim gets an intent", func(*facts) {}, summary{create: 1}},
		{"also while other volumes of pods get none", func(f *facts) { f.enabled = false }, summary{create: 1}},
		{"also on a node that is not managed", func(f *facts) { f.node.Annotations = nil }, summary{create: 1}},
		{"a node that is not there gets none", func(f *facts) { f.node = nil }, summary{}},
		{"a pod that has ended gets none", func(f *facts) { f.pod.Status.Phase = corev1.PodFailed }, summary{}},
		{"an intent is kept while other volumes of pods get none", func(f *facts) {
			f.intents, f.enabled = []*volumesv1alpha1.VolumeAttachmentIntent{f.volumes[0].intent}, false
		}, summary{}},
		{"an intent of a pod that has ended is removed", func(f *facts) {
			f.intents = []*volumesv1alpha1.VolumeAttachmentIntent{f.volumes[0].intent}
			f.pod.Status.Phase, f.enabled = corev1.PodSucceeded, false
		}, summary{remove: 1}},
		{"an intent of an earlier pod of the name may be an orphan", func(f *facts) {
			f.intents, f.enabled = []*volumesv1alpha1.VolumeAttachmentIntent{f.volumes[0].intent}, false
			f.pod = f.pod.DeepCopy()
			f.pod.UID, f.volumes = "uid-2", nil
		}, summary{orphans: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			f := facts{enabled: true, pod: inlinePodOf(map[string]string{"claim": "c"}), node: w.node}
			f.volumes = (&Controller{}).inlineVolumes(f.pod)
			c.change(&f)
			if got := decide(f).summary(); got != c.want {
				t.Errorf("plan %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestInlineVolumesOfAPodShareTheIntentOfTheirClaim(t *testing.T) {
	pod := inlinePodOf(map[string]string{"claim": "a"}, map[string]string{"claim": "a"}, map[string]string{"claim": "b"},
		map[string]string{"intent": "c"}, map[string]string{"claim": "d", "intent": "d"})
	pod.Spec.Volumes[0].CSI.ReadOnly, pod.Spec.Volumes[2].CSI.ReadOnly = ptr.To(true), ptr.To(true)
	volumes := (&Controller{}).inlineVolumes(pod)
	if len(volumes) != 2 {
		t.Fatalf("%d intents, want one for claim a and one for claim b", len(volumes))
	}
	for i, want := range []struct {
		claim    string
		readOnly bool
	}{{"a", false}, {"b", true}} {
		intent := volumes[i].intent
		if intent.Name != volumesv1alpha1.InlineIntentName(pod.Name, pod.UID, want.claim) ||
			intent.Spec.ReadOnly != want.readOnly {
			t.Errorf("intent %s, read-only %t; want that of claim %s, read-only %t", intent.Name, intent.Spec.ReadOnly,
				want.claim, want.readOnly)
		}
	}
}

func TestWhileSwitchedOffOnlyPodsWithInlineClaimsAreReconciled(t *testing.T) {
	off := &Controller{}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"an inline claim": {inlinePodOf(map[string]string{"claim": "c"}), true},
		"an inline claim, and what the kubelet replaces": {inlinePodOf(map[string]string{"claim": "c",
			volumesv1alpha1.KubeletAttributes + "pod.uid": "u"}), true},
		"an inline claim, and something else": {inlinePodOf(map[string]string{"claim": "c", "x": "y"}), false},
		"an inline intent":                    {inlinePodOf(map[string]string{"intent": "c"}), false},
		"an ordinary claim":                   {newWorld().pod, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := off.concerns(c.pod); got != c.want {
				t.Errorf("pod with %s is reconciled: %t, want %t", name, got, c.want)
			}
		})
	}
}

func TestWhileSwitchedOffANodeWakesOnlyItsPodsWithInlineClaims(t *testing.T) {
	w, inline := newWorld(), inlinePodOf(map[string]string{"claim": "c"})
	inline.Name, inline.UID = "inline", "inline"
	elsewhere := inline.DeepCopy()
	elsewhere.Name, elsewhere.UID, elsewhere.Spec.NodeName = "elsewhere", "elsewhere", "another"
	cache, _ := holding(t, w.pod, inline, elsewhere)
	got := (&Controller{Client: cache}).ofNode(t.Context(), w.node)
	want := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(inline)}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("node %s wakes the pods %v, want %v", w.node.Name, got, want)
	}
}

func TestTheIntentOfAnInlineVolumeHasTheSELinuxLabelOfItsContainers(t *testing.T) {
	label := func(level string) *corev1.SELinuxOptions { return &corev1.SELinuxOptions{Level: level} }
	for name, test := range map[string]struct {
		change func(*corev1.PodSpec)
		want   *corev1.SELinuxOptions
	}{
		"no label":  {func(*corev1.PodSpec) {}, nil},
		"the pod's": {func(s *corev1.PodSpec) { s.SecurityContext.SELinuxOptions = label("s0:c1,c2") }, label("s0:c1,c2")},
		"a container's": {func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = label("s0:c1,c2")
			s.Containers[0].SecurityContext = &corev1.SecurityContext{SELinuxOptions: label("s0:c3,c4")}
		}, label("s0:c3,c4")},
		"two": {func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = label("s0:c1,c2")
			s.InitContainers = []corev1.Container{{VolumeMounts: s.Containers[0].VolumeMounts,
				SecurityContext: &corev1.SecurityContext{SELinuxOptions: label("s0:c3,c4")}}}
		}, nil},
		"two, one of a container without the volume": {func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = label("s0:c1,c2")
			s.InitContainers = []corev1.Container{{SecurityContext: &corev1.SecurityContext{
				SELinuxOptions: label("s0:c3,c4")}}}
		}, label("s0:c1,c2")},
		"one without a level": {func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "container_t"}
		}, nil},
		"one that no mount option can have": {func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = label("s0\"")
		}, nil},
		"labels of files": {func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = label("s0:c1,c2")
			s.SecurityContext.SELinuxChangePolicy = ptr.To(corev1.SELinuxChangePolicyRecursive)
		}, nil},
	} {
		pod := inlinePodOf(map[string]string{"claim": "a"})
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
		pod.Spec.Containers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: pod.Spec.Volumes[0].Name}}}}
		test.change(&pod.Spec)
		trimmed, err := transformOf(pod)(pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*corev1.Pod{pod, trimmed.(*corev1.Pod)} {
			var got *corev1.SELinuxOptions
			if m := (&Controller{}).inlineVolumes(p)[0].intent.Spec.Mount; m != nil {
				got = m.SELinuxOptions
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("label of the intent for a pod with %s: %+v, want %+v", name, got, test.want)
			}
		}
	}
}
