/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// limited is a context for one wait. It outlives the test's own: the clean-up waits too.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

// volume is one claim of a test.
type volume struct {
	t      *testing.T
	claim  string
	handle string
	block  bool
	// meanwhile is what a pod does after its steps.
	meanwhile []string
	// tolerations of its pods.
	tolerations []corev1.Toleration
}

// newVolume creates a claim and waits until it is bound. When the test ends, it waits until nothing is attached
// any more, and deletes the claim and its volume.
func newVolume(t *testing.T, mode corev1.PersistentVolumeMode) *volume {
	t.Helper()
	v := claimOf(t, claimSpec(mode))
	v.bind()
	return v
}

// newSharedVolume provisions a block volume that several nodes may use at once.
func newSharedVolume(t *testing.T) *volume {
	t.Helper()
	spec := claimSpec(corev1.PersistentVolumeBlock)
	spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	v := claimOf(t, spec)
	v.bind()
	return v
}

// claimOf creates a claim as newVolume does, and does not wait until it is bound.
func claimOf(t *testing.T, spec corev1.PersistentVolumeClaimSpec) *volume {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "claim-"},
		Spec:       spec,
	}
	create(t, claim)
	v := &volume{t: t, claim: claim.Name, block: *spec.VolumeMode == corev1.PersistentVolumeBlock,
		meanwhile: []string{"pause"}}
	t.Cleanup(func() {
		remove(t, claim)
		settle(t)
	})
	return v
}

func claimSpec(mode corev1.PersistentVolumeMode) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(class),
		VolumeMode:       &mode,
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}},
	}
}

// bind waits until the claim is bound and stores its volume's handle.
func (v *volume) bind() {
	v.t.Helper()
	ctx := limited(v.t)
	bound, err := sys.AwaitClaim(ctx, namespace, v.claim, func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	if err != nil {
		v.t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{}
	if err := sys.Client.Get(ctx, client.ObjectKey{Name: bound.Spec.VolumeName}, pv); err != nil {
		v.t.Fatal(err)
	}
	v.handle = pv.Spec.CSI.VolumeHandle
}

// path is the file that a container writes to.
func (v *volume) path() string {
	if v.block {
		return "/dev/data"
	}
	return "/data/file"
}

func (v *volume) write(text string) []string { return []string{"write", v.path(), text} }
func (v *volume) read(text string) []string  { return []string{"read", v.path(), text} }

// pod creates a pod on a node. The pod runs the steps on the volume, one after the other, and then waits. It is
// deleted when the test ends.
func (v *volume) pod(node string, steps ...[]string) *corev1.Pod {
	v.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
		Spec:       podSpec(node, v.block, v.meanwhile, steps...),
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.claim},
	}}}
	pod.Spec.Tolerations = v.tolerations
	create(v.t, pod)
	v.t.Cleanup(func() { remove(v.t, pod) })
	return pod
}

// podSpec uses the volume "data" in every step and meanwhile.
func podSpec(node string, block bool, meanwhile []string, steps ...[]string) corev1.PodSpec {
	spec := corev1.PodSpec{
		NodeName:                      node,
		HostNetwork:                   true,
		EnableServiceLinks:            ptr.To(false),
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](5),
		Containers:                    []corev1.Container{container("meanwhile", block, meanwhile...)},
	}
	for i, step := range steps {
		spec.InitContainers = append(spec.InitContainers, container(fmt.Sprintf("step-%d", i+1), block, step...))
	}
	return spec
}

func container(name string, block bool, args ...string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: system.Image, ImagePullPolicy: corev1.PullNever, Args: args,
		Env: []corev1.EnvVar{
			{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
	}
	if block {
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	} else {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	return c
}

func create(t *testing.T, object client.Object) {
	t.Helper()
	if err := sys.Client.Create(limited(t), object); err != nil {
		t.Fatal(err)
	}
}

// remove deletes an object and waits until it is gone. It succeeds if the object does not exist.
func remove(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(sys.Client.Delete(limited(t), object)); err != nil {
		t.Error(err)
	}
	gone(t, object)
}

func gone(t *testing.T, object client.Object) {
	t.Helper()
	key := client.ObjectKeyFromObject(object)
	var err error
	switch object.(type) {
	case *corev1.Pod:
		_, err = awaitPod(t, key.Name, func(p *corev1.Pod) bool { return p == nil || p.UID != object.GetUID() })
	case *corev1.PersistentVolumeClaim:
		_, err = sys.AwaitClaim(limited(t), key.Namespace, key.Name,
			func(c *corev1.PersistentVolumeClaim) bool { return c == nil })
	default:
		err = fmt.Errorf("waiting for the end of %T is not implemented", object)
	}
	if err != nil {
		t.Error(err)
		dump(t)
	}
}

func awaitPod(t *testing.T, name string, done func(*corev1.Pod) bool) (*corev1.Pod, error) {
	t.Helper()
	return system.Await(limited(t), sys, &corev1.PodList{}, client.ObjectKey{Namespace: namespace, Name: name}, done)
}

// runs waits until a pod has run its steps.
func runs(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	_, err := awaitPod(t, pod.Name, func(p *corev1.Pod) bool { return p != nil && isReady(p) })
	if err != nil {
		dump(t)
		t.Fatal(err)
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// settle waits until nothing is attached anywhere and judges the driver's ledger.
func settle(t *testing.T) {
	t.Helper()
	var attachments storagev1.VolumeAttachmentList
	if err := sys.Client.List(limited(t), &attachments); err != nil {
		t.Fatal(err)
	}
	for _, a := range attachments.Items {
		if err := sys.AwaitAttachmentGone(limited(t), a.Name); err != nil {
			t.Error(err)
			dump(t)
		}
	}
	for _, node := range sys.Nodes {
		if _, err := awaitNode(t, node, func(n *corev1.Node) bool { return len(n.Status.VolumesAttached) == 0 }); err != nil {
			t.Error(err)
		}
	}
	if os.Getenv(attachVariable) == hawser {
		settleHawser(t)
	}
	judge(t)
}

// settleHawser waits until Hawser's own objects are consistent.
func settleHawser(t *testing.T) {
	t.Helper()
	var intents volumesv1alpha1.VolumeAttachmentIntentList
	if err := sys.Client.List(limited(t), &intents); err != nil {
		t.Fatal(err)
	}
	for _, i := range intents.Items {
		if err := sys.AwaitGone(limited(t), i.Namespace, i.Name); err != nil {
			t.Error(err)
		}
	}
	for _, node := range sys.Nodes {
		if _, err := sys.AwaitNode(limited(t), node, func(nvs *volumesv1alpha1.NodeVolumeState) bool {
			return len(nvs.Spec.Attachments) == 0 && len(nvs.Status.Volumes) == 0
		}); err != nil {
			t.Error(err)
		}
	}
}

func awaitNode(t *testing.T, name string, done func(*corev1.Node) bool) (*corev1.Node, error) {
	t.Helper()
	return system.Await(limited(t), sys, &corev1.NodeList{}, client.ObjectKey{Name: name}, done)
}

// byForce are the volumes that a test detached from a node that still had them mounted.
var byForce []string

// judge reads the driver's own ledger. No volume may be attached on two nodes, or used where it is not
// attached. None may be detached while it is in use, except by force.
func judge(t *testing.T) {
	t.Helper()
	entries, err := ledger.Read(sys.BackingDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []func([]ledger.Entry) []ledger.Violation{ledger.PublishedTwice, ledger.UnpublishedWhileStaged,
		ledger.UsedUnattached} {
		for _, violation := range rule(entries) {
			if violation.Method == "ControllerUnpublishVolume" && slices.Contains(byForce, violation.Volume) {
				continue
			}
			t.Errorf("violation in the ledger: %v; want none", violation)
		}
	}
}

// dump logs the API's objects, to find out why a wait failed.
func dump(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "nodes,pods,pvc,volumeattachments", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"get", "volumeattachmentintents", "-A", "-o", "wide"},
		{"get", "nodevolumestates", "-o", "yaml"},
	} {
		out, err := sys.Kubectl(limited(t), args...)
		t.Logf("kubectl %v (%v):\n%s", args, err, out)
	}
}
