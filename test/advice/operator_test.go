/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// operator is the name of its process.
const operator = "operator"

// step is a situation that begins where the one before has ended.
type step struct {
	name string
	situation
}

// TestTheOperator takes one installation through the whole of its life. It has a cluster of its own with real kubelets,
// on which manager and agents run from their images. Only the operator is a program beside them.
func TestTheOperator(t *testing.T) {
	own := withKubelets(t) // before there are volumes, whose mounts its nodes would keep
	t.Parallel()
	for _, step := range slices.Concat(before, rollouts, installed, removal) {
		if !t.Run(step.name, func(t *testing.T) {
			s := newStory(t)
			s.sys = own
			step.play(s)
		}) {
			return
		}
	}
}

// withKubelets starts the cluster. The scheduler places the pods of Hawser there.
func withKubelets(t *testing.T) *system.System {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	program, err := system.BuildStatic(ctx, "./test/kubelet/cmd/program")
	if err != nil {
		t.Fatal(err)
	}
	options := system.Options{Dir: os.Getenv(dirVariable) + "-operator", Nodes: []string{nodeA, nodeB}, Out: os.Stdout,
		ContainerProgram: program, OnlyUpstream: true}
	if err := system.Open(options).Down(ctx); err != nil {
		t.Fatal(err)
	}
	var own *system.System
	t.Run("a cluster with kubelets", func(t *testing.T) {
		// The local cluster has accounts and pods of its own, which are not those of this installation.
		t.Setenv("POD_NAMESPACE", "localcluster")
		if own, err = system.Up(ctx, options); err != nil {
			t.Fatal(err)
		}
	})
	if own == nil {
		t.FailNow()
	}
	t.Cleanup(func() {
		if err := own.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := prepare(ctx, own); err != nil {
		t.Fatal(err)
	}
	return own
}

// prepare gives a cluster what Hawser finds: its images, a pod network, a scheduler, a driver and a namespace.
func prepare(ctx context.Context, own *system.System) error {
	for _, node := range own.Nodes {
		if err := own.ImportImages(ctx, node, filepath.Join(apiserver.Root(), ".cache", "images")); err != nil {
			return err
		}
	}
	// All agents expect the kubelet's directory at one path.
	err := errors.Join(own.ShareKubeletDir(ctx, nodeB, nodeA), own.PlayNetwork(ctx, false), own.StartScheduler(ctx))
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install.Namespace(),
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}}
	for _, object := range append(objects(), home) {
		err = errors.Join(err, own.Client.Create(ctx, object))
	}
	return err
}

// operates starts the operator.
func operates(s *story) {
	s.t.Helper()
	s.must(s.sys.Run(s.limited(), operator, filepath.Join(s.sys.Bin, "operator"), "--kubeconfig="+s.sys.Kubeconfig(),
		"--leader-elect=true", "--metrics-bind-address=0", "--health-probe-bind-address=0"))
}

// kinds installs those of Hawser.
func kinds(s *story) {
	s.t.Helper()
	s.bash("kubectl apply --server-side -k " + filepath.Join(apiserver.Root(), "config", "crd") +
		" && kubectl wait --for=condition=Established crd --all --timeout=1m")
}

func volumeManager() *volumesv1alpha1.VolumeManager {
	return &volumesv1alpha1.VolumeManager{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.VolumeManagerName}}
}

// theManager asks about the VolumeManager.
func theManager(*story) question { return why("volumemanager", volumesv1alpha1.VolumeManagerName) }

// spec changes that of the VolumeManager.
func spec(patch string) func(*story) {
	return func(s *story) { s.t.Helper(); s.patch(volumeManager(), `{"spec":`+patch+`}`) }
}

// after asks about the VolumeManager after a change of its spec.
func after(patch string) func(*story) question {
	return func(s *story) question { s.t.Helper(); spec(patch)(s); return theManager(s) }
}

// settled waits until everything runs as the VolumeManager asks for.
func settled(s *story) {
	s.t.Helper()
	s.bash("kubectl wait volumemanager/" + volumesv1alpha1.VolumeManagerName +
		" --for=condition=Ready --for=condition=Progressing=False --timeout=" + waitTimeout.String())
}

// managerGone waits until the VolumeManager is removed.
func managerGone(s *story) {
	s.t.Helper()
	awaitGone(s, &volumesv1alpha1.VolumeManagerList{}, volumeManager())
}

// refusing is a quota that lets no object of a kind be created in Hawser's namespace, or only no pod of a priority.
func refusing(name string, kind corev1.ResourceName, priority ...string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: name},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{kind: resource.MustParse("0")}}}
	if len(priority) > 0 {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: priority}}}
	}
	return q
}

// permits deletes a quota.
func permits(name string) func(*story) {
	return func(s *story) { s.t.Helper(); s.remove(refusing(name, "")) }
}

// unserved is a webhook that nothing serves, which the API server calls before an operation on a kind.
func unserved(operation admissionv1.OperationType, group, kind string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "unserved"},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "unserved.example.com",
			FailurePolicy: ptr.To(admissionv1.Fail), SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](1), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:9/")},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{operation},
				Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{kind}}}},
		}}}
}

// withoutWebhook deletes it.
func withoutWebhook(s *story) { s.t.Helper(); s.remove(unserved("", "", "")) }
