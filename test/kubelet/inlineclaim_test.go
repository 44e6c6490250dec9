/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/inline"
	"github.com/hawser-io/hawser/test/system"
)

func (v *volume) claimed() map[string]string {
	return map[string]string{volumesv1alpha1.AttributeClaim: v.claim}
}

func TestAPodUsesAClaimThroughAnInlineVolume(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	begin := time.Now()
	first := v.inline(nodeA, v.claimed(), nil, v.write("inline"))
	runs(t, first)
	t.Logf("pod created -> running %.1f s", time.Since(begin).Seconds())
	ordinary := v.pod(nodeA, v.read("inline"), v.write("ordinary"))
	runs(t, ordinary)
	reader := v.inline(nodeA, v.claimed(), readOnly, v.read("ordinary"), []string{"refused", v.path()})
	runs(t, reader)

	waits := v.inline(nodeB, v.claimed(), nil, v.read("ordinary"))
	awaitEvent(t, waits, inline.ReasonWaitingForIntent, "is held by node "+nodeA)
	remove(t, first)
	remove(t, ordinary)
	if nodes := v.attachedTo(); !slices.Equal(nodes, []string{nodeA}) {
		t.Errorf("volume %s is attached to %v, want %s alone while a pod there has it", v.handle, nodes, nodeA)
	}
	v.notUnstaged()
	remove(t, reader)
	runs(t, waits)
	remove(t, waits)
	v.leavesNothing(nodeA, nodeB)
}

// leavesNothing waits until no intent is left, and checks that the agents keep no record of a pod.
func (v *volume) leavesNothing(nodes ...string) {
	v.t.Helper()
	settleHawser(v.t)
	for _, node := range nodes {
		records, err := filepath.Glob(filepath.Join(sys.AgentRoot(node), "pods", "*"))
		if err != nil || len(records) > 0 {
			v.t.Errorf("records of pods on node %s: %v, error %v; want none", node, records, err)
		}
	}
}

func TestInlineVolumesThatAreRefusedSayWhy(t *testing.T) {
	inlineVolumes(t)
	v, elsewhere := newVolume(t, corev1.PersistentVolumeFilesystem), newVolume(t, corev1.PersistentVolumeFilesystem)
	block := newVolume(t, corev1.PersistentVolumeBlock)
	mine, foreign, device := v.intent(nodeA), elsewhere.intent(nodeB), block.intent(nodeA)
	user := v.inline(nodeA, v.claimed(), nil)
	runs(t, user)
	ofPod := volumesv1alpha1.InlineIntentName(user.Name, user.UID, v.claim)
	intent, claim := volumesv1alpha1.AttributeIntent, volumesv1alpha1.AttributeClaim
	for name, c := range map[string]struct {
		attributes map[string]string
		change     func(*corev1.Pod)
		want       string
	}{
		"an intent of another node":     {map[string]string{intent: foreign.Name}, nil, "is for node " + nodeB},
		"an intent that does not exist": {map[string]string{intent: "missing"}, nil, "does not exist"},
		"a raw block device":            {map[string]string{intent: device.Name}, nil, "is a raw block device"},
		"an intent of another pod":      {map[string]string{intent: ofPod}, nil, "belongs to the pod"},
		"a name that is a path":         {map[string]string{intent: "../" + mine.Name}, nil, "is not a name"},
		"a name in another namespace":   {map[string]string{intent: "kube-system/" + mine.Name}, nil, "is not a name"},
		"an attribute for another namespace": {map[string]string{intent: mine.Name, "namespace": "kube-system"}, nil,
			"unknown attribute"},
		"an absolute path": {map[string]string{intent: "/etc"}, nil, "is not a name"},
		"a forged namespace of the pod": {map[string]string{intent: "theirs",
			volumesv1alpha1.KubeletAttributes + "pod.namespace": "kube-system"}, nil,
			"VolumeAttachmentIntent " + namespace + "/theirs does not exist"},
		"both an intent and a claim": {map[string]string{intent: mine.Name, claim: v.claim}, nil, "name one of them"},
		"neither":                    {nil, nil, "names neither"},
		"a filesystem": {map[string]string{intent: mine.Name}, func(p *corev1.Pod) {
			p.Spec.Volumes[0].CSI.FSType = new("xfs")
		}, "csi.fsType has no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			mine := *v
			mine.t = t
			refused(t, mine.inline(nodeA, c.attributes, c.change), c.want)
		})
	}
}

// TestAPodThatForgesWhatTheKubeletSaysOfItGetsItsOwnVolume has attributes with the names of the kubelet's own.
func TestAPodThatForgesWhatTheKubeletSaysOfItGetsItsOwnVolume(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	intent := v.intent(nodeA)
	for _, attributes := range []map[string]string{intentNamed(intent), v.claimed()} {
		for key, value := range map[string]string{"pod.namespace": "kube-system", "pod.name": "another", "pod.uid": "another",
			"ephemeral": "false", "serviceAccount.name": "another", "serviceAccount.tokens": "{}", "of.none": "x"} {
			attributes[volumesv1alpha1.KubeletAttributes+key] = value
		}
		pod := v.inline(nodeA, attributes, nil, v.write("of the pod"))
		runs(t, pod)
		v.publishes(nodeA, intent, "of the pod")
		remove(t, pod)
	}
	v.release(intent)
	v.leavesNothing(nodeA)
}

func TestPodsWithInlineVolumesOutliveTheirAgentAndKubelet(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	v.meanwhile = []string{"insist", v.path(), "still here"}
	intent := v.intent(nodeA)
	first, second := v.inline(nodeA, intentNamed(intent), nil), v.inline(nodeA, v.claimed(), nil)
	runs(t, first)
	runs(t, second)

	if err := sys.Kill(system.Kubelet(nodeA)); err != nil {
		t.Fatal(err)
	}
	startAgain(t, system.Kubelet(nodeA))
	if err := sys.Kill(system.Agent(nodeA)); err != nil {
		t.Fatal(err)
	}
	if err := sys.Client.Delete(limited(t), second); err != nil { // nothing can unmount its volume now
		t.Fatal(err)
	}
	startAgain(t, system.Agent(nodeA))
	gone(t, second)
	v.publishes(nodeA, intent, "still here")
	v.notUnstaged()
	third := v.inline(nodeA, intentNamed(intent), readOnly, v.read("still here"))
	runs(t, third)
	for _, pod := range []*corev1.Pod{first, third} {
		remove(t, pod)
	}
	v.release(intent)
	v.leavesNothing(nodeA)
}

func TestAPodSeesOnlyTheSubPathOfItsIntent(t *testing.T) {
	inlineVolumes(t)
	v := newVolume(t, corev1.PersistentVolumeFilesystem)
	whole := v.intent(nodeA)
	pid, err := sys.PID(system.Machine(nodeA))
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join("/proc", strconv.Itoa(pid), "root", whole.Status.Path)
	for _, err := range []error{os.Mkdir(filepath.Join(root, "part"), 0o755),
		os.WriteFile(filepath.Join(root, "part", "file"), []byte("part"), 0o600),
		os.Symlink("/etc", filepath.Join(root, "etc")), os.Symlink("..", filepath.Join(root, "up"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	part := v.partOf(nodeA, "part")
	runs(t, v.inline(nodeA, intentNamed(part), nil, v.read("part")))
	for _, link := range []string{"etc", "up"} {
		leading := v.partOf(nodeA, link)
		awaitEvent(t, v.inline(nodeA, intentNamed(leading), nil), inline.ReasonWaitingForIntent,
			volumesv1alpha1.ReasonSubPathInvalid)
	}
}

// partOf is an intent for a part of the volume.
func (v *volume) partOf(node, subPath string) *volumesv1alpha1.VolumeAttachmentIntent {
	v.t.Helper()
	i := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.claim + "-" + subPath},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node, Mount: &volumesv1alpha1.MountSpec{SubPath: subPath},
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: v.claim}},
		},
	}
	create(v.t, i)
	v.t.Cleanup(func() { v.release(i) })
	return i
}
