/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// testKubectl installs and removes with the commands of docs/install.md and docs/remove.md. Meanwhile it tries the
// wrong orders of docs/remove.md.
func (s suite) testKubectl(t *testing.T, before inventory) {
	overlay := s.overlay(t, s.initialSpec(t, volumesv1alpha1.AttachReplace))
	withManager := apiserver.Kustomization{Resources: []string{overlay, "volumemanager/replace"}}.Write(t)
	s.kubectl(t, "apply", "-k", overlay)
	s.awaitInstalled(t)
	s.publishIntent(t)
	pod := s.runPod(t, "writer", corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ofPod}})
	s.testInline(t)
	s.testRestarts(t)
	s.testDeletedNode(t)
	s.attachToGoneNode(t)
	s.awaitMarks(t, "3")
	for _, order := range wrongOrders(overlay) {
		t.Run(order.name, func(t *testing.T) { s.testRefused(t, overlay, order) })
	}
	s.awaitAvailable(t)
	s.drain(t, withManager, pod)
	s.kubectl(t, "delete", "-k", withManager, "--ignore-not-found")
	s.expectAsBefore(t, before)
}

// testInline runs a pod with an inline volume.
func (s suite) testInline(t *testing.T) {
	t.Helper()
	pod := s.runPod(t, "inline", inlineVolume(ofInline))
	check(t, s.Client.Delete(limited(t), pod))
	s.awaitPod(t, pod, func(p *corev1.Pod) bool { return p == nil })
}

// attachToGoneNode has a volume attached to a node whose machine then dies, and whose Node is deleted.
func (s suite) attachToGoneNode(t *testing.T) {
	t.Helper()
	intent := newIntent(ofGoneNode, goneNode)
	intent.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	s.create(t, intent)
	_, err := s.AwaitReady(limited(t), intent.Namespace, intent.Name)
	s.explain(t, err)
	check(t, s.Kill(system.Machine(goneNode)))
	check(t, s.Client.Delete(limited(t), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: goneNode}}))
}

// awaitMarks waits until everything protected shows the number of volumes in use.
func (s suite) awaitMarks(t *testing.T, number string) {
	t.Helper()
	for _, kinds := range []string{"hvm,crd,clusterrole,clusterrolebinding,namespace",
		"deployment,serviceaccount,role,rolebinding"} {
		s.kubectl(t, "wait", "--timeout=1m", "-n", hawser, kinds, "-l", volumesv1alpha1.InUseLabel,
			`--for=jsonpath={.metadata.labels.volumes\.hawser\.io/in-use}=`+number)
	}
}

// wrongOrder is an attempt to remove something too early.
type wrongOrder struct {
	name string
	args []string
	// refusals are parts of the message.
	refusals []string
}

func wrongOrders(overlay string) []wrongOrder {
	const first = "3 volume(s) are wanted, attached or in use through it. Delete VolumeManager cluster first"
	needs := func(what string) string { return "Hawser is installed and needs " + what }
	return []wrongOrder{
		{"the VolumeManager while volumes are in use", []string{"volumemanager", "cluster"},
			[]string{"3 volume(s) are wanted, attached or in use through Hawser. Release them first", "spec.removal"}},
		{"the kinds first", []string{"-k", inConfig("crd")}, []string{first,
			needs("customresourcedefinitions nodevolumestates.volumes.hawser.io"),
			needs("customresourcedefinitions volumeattachmentintents.volumes.hawser.io"),
			needs("customresourcedefinitions volumeattachmentintentsets.volumes.hawser.io"),
			needs("customresourcedefinitions volumemanagers.volumes.hawser.io")}},
		{"the namespace first", []string{"namespace", hawser}, []string{first, needs("namespaces hawser-system")}},
		{"the operator first", []string{"-k", inConfig("operator")}, []string{first,
			needs("deployments hawser-operator"), needs("serviceaccounts hawser-operator"),
			needs("clusterroles hawser-operator"), needs("clusterrolebindings hawser-operator"),
			needs("roles hawser-operator"), needs("rolebindings hawser-operator")}},
		{"everything at once", []string{"-k", overlay}, []string{first, needs("namespaces hawser-system"),
			needs("deployments hawser-operator"), needs("resourcequotas hawser-critical-pods")}},
	}
}

// testRefused fails if anything of the installation goes or begins to.
func (s suite) testRefused(t *testing.T, overlay string, order wrongOrder) {
	_, err := s.Kubectl(limited(t), append([]string{"delete", "--wait=false"}, order.args...)...)
	if err == nil {
		t.Fatalf("kubectl delete %v: no error, want it refused", order.args)
	}
	for _, refusal := range order.refusals {
		if !strings.Contains(err.Error(), refusal) {
			t.Errorf("kubectl delete %v: error %v, want %q in it", order.args, err, refusal)
		}
	}
	for _, what := range [][]string{{"-k", overlay}, {"volumemanager", "cluster"}} {
		leaving, err := s.Kubectl(limited(t), append([]string{"get",
			`-o=jsonpath={range .items[*]}{.metadata.deletionTimestamp}{end}{.metadata.deletionTimestamp}`}, what...)...)
		check(t, err)
		if leaving != "" {
			t.Errorf("kubectl delete %v was refused, but something of %v is being deleted: %s", order.args, what, leaving)
		}
	}
}

// drain deletes everything at once, with the VolumeManager among it, while a pod uses a volume and a node is gone. Only
// the VolumeManager begins to go. Then it does what the messages ask for.
func (s suite) drain(t *testing.T, withManager string, pod *corev1.Pod) {
	t.Helper()
	s.kubectl(t, "patch", "volumemanager", "cluster", "--type=merge", "-p", `{"spec":{"removal":"Drain"}}`)
	out, err := s.Kubectl(limited(t), "delete", "-k", withManager, "--wait=false")
	if err == nil || !strings.Contains(err.Error(), "Delete VolumeManager cluster first") ||
		strings.Count(out, " deleted") != 1 || !strings.Contains(out, `volumemanager.volumes.hawser.io "cluster" deleted`) {
		t.Errorf("deleting everything at once: error %v, want all refused but the VolumeManager; deleted: %s", err, out)
	}
	s.awaitRemoved(t, "Draining", "used by pods", "the Node is gone: declare it released")
	s.awaitNoIntents(t)
	check(t, s.Client.Delete(limited(t), pod))
	s.awaitPod(t, pod, func(p *corev1.Pod) bool { return p == nil })
	state := s.awaitRemoved(t, "Draining", "1 volume(s) on 1 node(s): node "+goneNode)
	if strings.Contains(state, "used by pods") {
		t.Errorf("the pod is gone, but the message of condition Removed is: %s", state)
	}
	s.declareReleased(t)
	_, err = system.Await(limited(t), s.System, &volumesv1alpha1.VolumeManagerList{},
		client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName},
		func(vm *volumesv1alpha1.VolumeManager) bool { return vm == nil })
	s.explain(t, err)
}

// awaitNoIntents waits until new intents are refused. No event signals that the API server has begun to apply a policy.
func (s suite) awaitNoIntents(t *testing.T) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(limited(t), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			late := newIntent(ofIntent, nodeA)
			late.Name, late.GenerateName = "", "late-"
			last = s.Client.Create(ctx, late)
			return apierrors.IsForbidden(last) && strings.Contains(last.Error(), "Hawser is being removed"), nil
		})
	if err != nil {
		t.Fatalf("creating an intent while Hawser is removed: error %v, want it forbidden with the reason", last)
	}
}

// awaitRemoved waits until the condition Removed has the reason and all texts. It returns its message.
func (s suite) awaitRemoved(t *testing.T, reason string, texts ...string) string {
	t.Helper()
	var message string
	_, err := system.Await(limited(t), s.System, &volumesv1alpha1.VolumeManagerList{},
		client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName}, func(vm *volumesv1alpha1.VolumeManager) bool {
			if vm == nil {
				return false
			}
			c := meta.FindStatusCondition(vm.Status.Conditions, volumesv1alpha1.ConditionRemoved)
			if c == nil || c.Reason != reason {
				return false
			}
			for _, text := range texts {
				if !strings.Contains(c.Message, text) {
					return false
				}
			}
			message = c.Message
			return true
		})
	s.explain(t, err)
	return message
}

// declareReleased declares what the message about the gone node asks for.
func (s suite) declareReleased(t *testing.T) {
	t.Helper()
	state := &volumesv1alpha1.NodeVolumeState{}
	check(t, s.Client.Get(limited(t), client.ObjectKey{Name: goneNode}, state))
	for _, entry := range state.Spec.Attachments {
		patch := `{"metadata":{"annotations":{"` + volumesv1alpha1.DeclaredReleasedPrefix + string(entry.AttachmentUID) +
			`":"the machine is scrapped"}}}`
		check(t, s.Client.Patch(limited(t), state, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
}
