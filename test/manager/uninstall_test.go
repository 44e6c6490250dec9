/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/test/apiserver"
)

// TestTheDocumentedUninstallCompletes runs the commands of docs/install.md, with a manager that does what its
// Deployment says, while a pod continues to use its volume.
func TestTheDocumentedUninstallCompletes(t *testing.T) {
	for _, arg := range []string{"--attach-mode=Replace", "--pod-intents=true", "--attach-mode=Coexist"} {
		t.Run("installed with "+arg, func(t *testing.T) { uninstall(t, arg) })
	}
}

func uninstall(t *testing.T, arg string) {
	w := newWorld(t)
	w.walk(t, "kubectl apply -k config/standalone")
	if arg == "--attach-mode=Replace" {
		w.kubectl(t)("", "apply", "-f", "replace/role.yaml")
	}
	i := &installed{world: w, t: t}
	manager := hawserManager()
	w.change(t, manager, func() {
		args := &manager.Spec.Template.Spec.Containers[0].Args
		*args = append(*args, arg)
	})
	i.follow(manager)
	t.Cleanup(func() { i.stop() })

	a := w.managedNode(t, "node")
	claims := []*corev1.PersistentVolumeClaim{w.volume(t, "data", volumeOptions{}), w.volume(t, "bare", volumeOptions{}),
		w.volume(t, "pod", volumeOptions{})}
	w.usedByPod(t, a, arg)
	until(t, w, w.intent(t, "data", "node", "data"), "the intent is Ready", isReady)
	gated := inlinePod("gated", volumesv1alpha1.AttributeClaim, "missing")
	w.create(t, gated)
	bare := newIntent("bare", "node", "bare")
	bare.Spec.DesiredState = volumesv1alpha1.DesiredAttached
	w.create(t, bare)
	w.attached(t, bare)

	for _, step := range []string{
		"1. Give the pods back to upstream", "2. Delete the intents", "3. Wait until nothing is being detached",
		"4. Remove the admission bindings",
		"5. Stop manager and agents", "6. Delete the NodeVolumeStates", "7. Delete the rest",
		"8. Let the PersistentVolumeClaims go",
	} {
		i.walk(step)
		switch step[0] {
		case '3':
			gone(t, w, attachmentOf("data", "node"))
			gone(t, w, attachmentOf("bare", "node"))
		case '5':
			a.stop()
		}
	}

	until(t, w, gated, "the gate of the pod is lifted", func(p *corev1.Pod) bool {
		return exists(p) && index.Ungated(p) && p.Labels[volumesv1alpha1.GatedLabel] == ""
	})
	for _, claim := range claims {
		until(t, w, claim, "the claim is let go", func(c *corev1.PersistentVolumeClaim) bool {
			return !slices.Contains(c.Finalizers, volumesv1alpha1.ClaimFinalizer)
		})
	}
	va := until(t, w, attachmentOf("pod", "node"), "the pod's attachment stays",
		func(va *storagev1.VolumeAttachment) bool { return exists(va) && va.Status.Attached })
	// Nothing keeps upstream from detaching it when the pod has gone.
	w.delete(t, va)
	gone(t, w, va)
	if err := w.client.List(t.Context(), &volumesv1alpha1.NodeVolumeStateList{}); !meta.IsNoMatchError(err) &&
		!apierrors.IsNotFound(err) {
		t.Errorf("listing node states after the uninstall: error %v, want no match or not found", err)
	}
}

// usedByPod runs a pod on the node whose volume is mounted by the kubelet, attached by what attaches for pods.
func (w *world) usedByPod(t *testing.T, a *agent, arg string) {
	t.Helper()
	w.run(t, w.pod(t, "pod", "node", "pod"), true)
	if arg != "--attach-mode=Replace" {
		w.create(t, upstreamAttachment("", "pod", "node"))
		n := nodeNamed("node")
		w.changeStatus(t, n, func() {
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName(uniqueName("pod"))}}
		})
	}
	w.listed(t, "node", "pod")
	w.kubeletUses(t, "node", "pod")
	a.set(func() { a.mounted = map[string]bool{uniqueName("pod"): true} })
	until(t, w, attachmentOf("pod", "node"), "the pod's volume is attached", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.Attached
	})
}

func hawserManager() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: volumesv1alpha1.InstallNamespace, Name: "hawser-manager"},
	}
}

// installed is a fake of the controllers that run Hawser's Deployment and empty namespaces.
type installed struct {
	*world
	t *testing.T
	// args with which the manager runs that stop stops.
	args []string
	stop func()
}

// walk runs the commands under a heading, and meanwhile follows the Deployment and the namespace.
func (i *installed) walk(heading string) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), 6*patience)
	defer cancel()
	var watches []watch.Interface
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.NamespaceList{}} {
		watcher, err := i.client.Watch(ctx, list)
		if err != nil {
			i.t.Fatal(err)
		}
		defer watcher.Stop()
		watches = append(watches, watcher)
	}
	script := apiserver.Commands(i.t, documented(i.t, "install.md", heading))
	commands := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	assets, err := filepath.Abs(os.Getenv(apiserver.AssetsVariable))
	if err != nil {
		i.t.Fatal(err)
	}
	commands.Dir = apiserver.Root()
	commands.Env = append(os.Environ(), "KUBECONFIG="+apiserver.Kubeconfig(i.t, i.config),
		"PATH="+assets+":"+os.Getenv("PATH"))
	var message strings.Builder
	commands.Stdout, commands.Stderr = &message, &message
	done := make(chan error, 1)
	go func() { done <- commands.Run() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				i.t.Fatalf("running the commands of step %q: %v: %s", heading, err, message.String())
			}
			return
		case e := <-watches[0].ResultChan():
			if d, ok := e.Object.(*appsv1.Deployment); ok && e.Type == watch.Deleted {
				i.stop()
			} else if ok {
				i.follow(d)
			}
		case e := <-watches[1].ResultChan():
			if namespace, ok := e.Object.(*corev1.Namespace); ok && e.Type != watch.Deleted &&
				namespace.DeletionTimestamp != nil {
				i.empty(namespace)
			}
		}
	}
}

// follow runs the manager as its Deployment says, and says in the Deployment that it does.
func (i *installed) follow(d *appsv1.Deployment) {
	i.t.Helper()
	args := d.Spec.Template.Spec.Containers[0].Args
	if i.stop == nil || !slices.Equal(args, i.args) {
		if i.stop != nil {
			i.stop()
		}
		o := managerOptions{policies: policy.New(clock.RealClock{})}
		for _, arg := range args {
			switch name, value, _ := strings.Cut(arg, "="); name {
			case "--attach-mode":
				o.attachMode = controller.AttachMode(value)
			case "--pod-intents":
				o.podIntents = value == "true"
			}
		}
		i.args = slices.Clone(args)
		_, i.stop = i.manage(i.t, o)
	}
	n := ptr.Deref(d.Spec.Replicas, 1)
	if d.Status.ObservedGeneration == d.Generation {
		return
	}
	d = d.DeepCopy()
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n,
		AvailableReplicas: n}
	if err := i.client.Status().Update(i.t.Context(), d); err != nil && !apierrors.IsConflict(err) &&
		!apierrors.IsNotFound(err) {
		i.t.Fatal(err)
	}
}

// empty does what a namespace that is deleted waits for.
func (i *installed) empty(namespace *corev1.Namespace) {
	i.t.Helper()
	if err := i.client.DeleteAllOf(i.t.Context(), &corev1.ConfigMap{}, client.InNamespace(namespace.Name)); err != nil {
		i.t.Errorf("deleting what is in namespace %s: %v", namespace.Name, err)
	}
	namespace = namespace.DeepCopy()
	namespace.Spec.Finalizers = nil
	_, err := kubernetes.NewForConfigOrDie(i.config).CoreV1().Namespaces().Finalize(i.t.Context(), namespace,
		metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		i.t.Errorf("finalizing namespace %s: %v", namespace.Name, err)
	}
}
