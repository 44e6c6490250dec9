/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator"
	"github.com/hawser-io/hawser/test/apiserver"
)

// cluster is an installation by the operator. The test plays the controllers of its workloads.
type cluster struct {
	installed
	agent *agent
}

// operated installs Hawser by the operator, with one node.
func operated(t *testing.T, mode volumesv1alpha1.AttachMode) (c *cluster, stopOperator func()) {
	t.Helper()
	w := newWorld(t)
	w.kubectl(t)("", "apply", "-k", "default")
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name, vm.Spec.AttachMode = volumesv1alpha1.VolumeManagerName, mode
	w.create(t, vm)
	stopOperator = w.operate(t)
	c = &cluster{installed: installed{world: w, t: t}}
	t.Cleanup(func() {
		if c.stop != nil {
			c.stop()
		}
	})
	c.serve("the manager runs", func(*volumesv1alpha1.VolumeManager) bool { return c.stop != nil })
	c.agent = w.managedNode(t, "node")
	for _, component := range []string{"manager", "agent"} {
		w.create(t, programPod(component))
	}
	return c, stopOperator
}

func programPod(component string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: volumesv1alpha1.InstallNamespace, Name: "hawser-" + component + "-x",
			Labels: map[string]string{"app.kubernetes.io/name": "hawser", "app.kubernetes.io/component": component}},
		Spec: corev1.PodSpec{NodeName: "node", TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers: []corev1.Container{{Name: component, Image: component}}},
	}
}

// operate runs the operator under its own account until the test ends or stop is called.
func (w *world) operate(t *testing.T) (stop func()) {
	t.Helper()
	config := apiserver.ServiceAccount(w.config, volumesv1alpha1.InstallNamespace, "hawser-operator")
	kinds, err := operator.FindKinds(w.client.RESTMapper())
	if err != nil {
		t.Fatalf("finding the kinds: %v", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: apiserver.Scheme(), MapperProvider: w.mapper,
		Cache:   kinds.CacheOptions(volumesv1alpha1.InstallNamespace),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatalf("creating the operator's manager: %v", err)
	}
	if err := operator.Register(mgr, operator.Options{Namespace: volumesv1alpha1.InstallNamespace, Version: "test",
		Images: volumesv1alpha1.Images{Manager: "manager", Agent: "agent"}, Kinds: kinds, Clock: clock.RealClock{},
		Recount: time.Millisecond, SkipNameValidation: true}); err != nil {
		t.Fatalf("registering the operator: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("running the operator: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// serve does what the controllers of workloads do until the VolumeManager, nil once it is gone, is as it should be.
func (c *cluster) serve(what string, ok func(*volumesv1alpha1.VolumeManager) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var watches []watch.Interface
	for _, list := range []client.ObjectList{&volumesv1alpha1.VolumeManagerList{}, &appsv1.DeploymentList{},
		&appsv1.DaemonSetList{}} {
		watcher, err := c.client.Watch(ctx, list)
		if err != nil {
			c.t.Fatalf("watching %T: %v", list, err)
		}
		defer watcher.Stop()
		watches = append(watches, watcher)
	}
	last := c.volumeManager(ctx)
	for {
		var event watch.Event
		var open bool
		select {
		case event, open = <-watches[0].ResultChan():
		case event, open = <-watches[1].ResultChan():
		case event, open = <-watches[2].ResultChan():
		}
		if !open {
			c.t.Fatalf("within %s it did not come about that %s; the last VolumeManager is %s", patience, what, dump(last))
		}
		if vm, is := event.Object.(*volumesv1alpha1.VolumeManager); is {
			if last = vm; event.Type == watch.Deleted {
				last = nil
			}
		}
		c.play(event)
		if ok(last) {
			return
		}
	}
}

// volumeManager is nil if there is none.
func (c *cluster) volumeManager(ctx context.Context) *volumesv1alpha1.VolumeManager {
	c.t.Helper()
	vm := &volumesv1alpha1.VolumeManager{}
	err := c.client.Get(ctx, client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName}, vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return vm
}

// play runs the program of a workload, or ends it.
func (c *cluster) play(event watch.Event) {
	c.t.Helper()
	deleted := event.Type == watch.Deleted
	switch o := event.Object.(type) {
	case *appsv1.Deployment:
		switch {
		case o.Name != "hawser-manager":
		case deleted:
			c.stop()
			c.delete(c.t, programPod("manager"))
		default:
			c.follow(o)
		}
	case *appsv1.DaemonSet:
		if deleted {
			c.agent.stop()
			c.delete(c.t, programPod("agent"))
			return
		}
		if o.Status.ObservedGeneration == o.Generation {
			return
		}
		o.Status = appsv1.DaemonSetStatus{ObservedGeneration: o.Generation, DesiredNumberScheduled: 1,
			CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1}
		err := c.client.Status().Update(c.t.Context(), o)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) set(patch string) {
	c.t.Helper()
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = volumesv1alpha1.VolumeManagerName
	err := c.client.Patch(c.t.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+patch+`}`)))
	if err != nil {
		c.t.Fatalf("changing the VolumeManager: %v", err)
	}
}

// remove deletes the VolumeManager.
func (c *cluster) remove() error {
	vm := &volumesv1alpha1.VolumeManager{}
	vm.Name = volumesv1alpha1.VolumeManagerName
	return c.client.Delete(c.t.Context(), vm)
}

func removed(vm *volumesv1alpha1.VolumeManager) bool { return vm == nil }

// says is true once the condition Removed has the reason, and every text in its message.
func says(reason string, texts ...string) func(*volumesv1alpha1.VolumeManager) bool {
	return func(vm *volumesv1alpha1.VolumeManager) bool {
		if vm == nil {
			return false
		}
		c := meta.FindStatusCondition(vm.Status.Conditions, volumesv1alpha1.ConditionRemoved)
		return c != nil && c.Reason == reason && !slices.ContainsFunc(texts, func(text string) bool {
			return !strings.Contains(c.Message, text)
		})
	}
}

// uses lets two intents and a pod use volumes of the node, and waits until this is in the mark.
func (c *cluster) uses(count int) []*corev1.PersistentVolumeClaim {
	t, w := c.t, c.world
	claims := []*corev1.PersistentVolumeClaim{w.volume(t, "data", volumeOptions{}), w.volume(t, "bare", volumeOptions{}),
		w.volume(t, "pod", volumeOptions{})}
	w.usedByPod(t, c.agent, c.args[len(c.args)-1])
	until(t, w, w.intent(t, "data", "node", "data"), "the intent is Ready", isReady)
	bare := newIntent("bare", "node", "bare")
	bare.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	w.create(t, bare)
	w.attached(t, bare)
	c.serve(fmt.Sprintf("the mark has %d", count), func(vm *volumesv1alpha1.VolumeManager) bool {
		return vm != nil && vm.Labels[volumesv1alpha1.InUseLabel] == fmt.Sprint(count)
	})
	return claims
}

// expectNoTrace looks for what Hawser wrote.
func (c *cluster) expectNoTrace(claims []*corev1.PersistentVolumeClaim) {
	c.t.Helper()
	for _, claim := range claims {
		until(c.t, c.world, claim, "it exists", exists)
		if slices.Contains(claim.Finalizers, volumesv1alpha1.ClaimFinalizer) {
			c.t.Errorf("claim %s has finalizers %v after the removal, want none of Hawser", claim.Name, claim.Finalizers)
		}
	}
	for _, list := range []client.ObjectList{&volumesv1alpha1.VolumeAttachmentIntentList{},
		&volumesv1alpha1.NodeVolumeStateList{}} {
		if err := c.client.List(c.t.Context(), list); err != nil || meta.LenList(list) != 0 {
			c.t.Errorf("%T after the removal: error %v, %d objects; want none", list, err, meta.LenList(list))
		}
	}
	attachments := &storagev1.VolumeAttachmentList{}
	if err := c.client.List(c.t.Context(), attachments); err != nil {
		c.t.Fatal(err)
	}
	for i := range attachments.Items {
		if va := &attachments.Items[i]; !released(va) || va.Annotations[volumesv1alpha1.VolumeNameAnnotation] != "" {
			c.t.Errorf("attachment after the removal: %s; want one without annotations of Hawser", dump(va))
		}
	}
	left := c.kubectl(c.t)("", "get", "configmap,lease,serviceaccount", "-o", "name",
		"-n", volumesv1alpha1.InstallNamespace)
	for line := range strings.Lines(left) {
		if strings.Contains(line, "hawser-") && !strings.HasSuffix(strings.TrimSpace(line), "/hawser-operator") {
			c.t.Errorf("after the removal there is still %s", line)
		}
	}
}

func TestDrainingInCoexistLeavesTheVolumesOfPodsToUpstream(t *testing.T) {
	c, _ := operated(t, volumesv1alpha1.AttachCoexist)
	claims := c.uses(2)
	if err := c.remove(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "2 volume(s) are") {
		t.Fatalf("deleting the VolumeManager with volumes in use: error %v, want that it is forbidden for 2 volume(s)", err)
	}
	c.set(`{"removal":"Drain"}`)
	c.agent.set(func() { c.agent.hangs = true })
	if err := c.remove(); err != nil {
		t.Fatal(err)
	}
	c.serve("what blocks is named", says(volumesv1alpha1.ReasonDraining, "node node, "+uniqueName("data"),
		"intent default/data"))
	c.agent.set(func() { c.agent.hangs = false })
	c.serve("the VolumeManager is gone", removed)
	gone(t, c.world, attachmentOf("data", "node"))
	gone(t, c.world, attachmentOf("bare", "node"))
	c.expectPodAttached()
	c.expectNoTrace(claims)
}

// expectPodAttached expects that the pod still has its volume, and that upstream may detach it.
func (c *cluster) expectPodAttached() {
	c.t.Helper()
	va := until(c.t, c.world, attachmentOf("pod", "node"), "the pod's attachment stays",
		func(va *storagev1.VolumeAttachment) bool { return exists(va) && va.Status.Attached })
	if !released(va) {
		c.t.Errorf("the pod's attachment after the removal: %s; want one without a hold", dump(va))
	}
}

func TestDrainingInReplaceWaitsForPods(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*testing.T, *cluster)
		// stays: the pod and its attachment are upstream's then.
		stays bool
	}{
		{name: "until they have ended", end: func(t *testing.T, c *cluster) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}}
			c.kill(t, pod)
			c.kubeletUses(t, "node")
			c.agent.set(func() { c.agent.mounted = nil })
		}},
		{name: "or until they are given back to upstream", stays: true, end: func(_ *testing.T, c *cluster) {
			c.set(`{"attachMode":"Coexist"}`)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := operated(t, volumesv1alpha1.AttachReplace)
			claims := c.uses(3)
			c.set(`{"removal":"Drain"}`)
			if err := c.remove(); err != nil {
				t.Fatal(err)
			}
			c.serve("only the pod's volume is left", says(volumesv1alpha1.ReasonDraining, "1 volume(s) on 1 node(s)",
				uniqueName("pod"), "Delete the pods that use volumes", "set spec.attachMode to Coexist"))
			test.end(t, c)
			c.serve("the VolumeManager is gone", removed)
			if test.stays {
				c.expectPodAttached()
			} else {
				gone(t, c.world, attachmentOf("pod", "node"))
			}
			c.expectNoTrace(claims)
		})
	}
}

func TestPoliciesThatAreDeletedComeBackAndNothingNewIsAttachedInBetween(t *testing.T) {
	c, stopOperator := operated(t, volumesv1alpha1.AttachCoexist)
	c.volume(t, "data", volumeOptions{})
	c.volume(t, "late", volumeOptions{})
	c.attached(t, c.intent(t, "data", "node", "data"))
	stopOperator()
	c.kubectl(t)("", "delete", "validatingadmissionpolicybinding", "hawser-hold", "hawser-exclusive-locks")
	late := c.intent(t, "late", "node", "late")
	c.reason(t, late, volumesv1alpha1.ConditionResolved, metav1.ConditionFalse, withoutPolicies)
	c.notAttached(t, "late", "node")
	c.operate(t)
	c.attached(t, late)
	c.kubectl(t)("", "get", "validatingadmissionpolicybinding", "hawser-hold", "hawser-exclusive-locks")
}
