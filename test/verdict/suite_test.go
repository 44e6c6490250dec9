/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package verdict makes situations in which a pod or a claim is stuck, in a cluster without Hawser: upstream's
// attach/detach controller, real kubelets and the sidecars of the loop driver. For each it compares the verdicts of
// `kubectl hawser why` and `kubectl hawser doctor`, of an administrator and of a user who may read one namespace, with
// what is broken, and then does what the finding advises, until the wait ends. It takes a quarter of an hour;
// `make test-verdict` runs it.
package verdict

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/system"
)

const (
	// Nodes. The first two have nothing wrong. nodeFull can take one volume, nodeBare loses its driver, nodeDead ends, and
	// nodeIll loses its container runtime and its CSINode.
	nodeA, nodeB, nodeFull, nodeBare, nodeDead, nodeIll = "node-a", "node-b", "node-c", "node-d", "node-e", "node-f"

	namespace, reader = "shop", "reader"
	class             = "loop"
	secretClass       = "secret"
	xfsClass          = "xfs"
	// waitTimeout is the timeout of every wait. A doctor reports what a component works on after five minutes.
	waitTimeout = 8 * time.Minute
	// dirVariable enables the suite and names the directory of its cluster.
	dirVariable = "HAWSER_TEST_VERDICT"
)

// sys is shared by all tests. Each has its own claims and pods.
var sys *system.System

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(dirVariable) == "" {
		fmt.Println("not asked for: make test-verdict runs these tests")
		return 0
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := start(ctx); err != nil {
		fmt.Println("FAIL: starting the system:", err)
		return 1
	}
	code := m.Run()
	if err := sys.Down(context.Background()); err != nil {
		fmt.Println("FAIL: stopping the system:", err)
		return 1
	}
	return code
}

func start(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root")
	}
	program, err := system.BuildStatic(ctx, "./test/kubelet/cmd/program")
	if err != nil {
		return err
	}
	options := system.Options{
		Dir: os.Getenv(dirVariable), Nodes: []string{nodeA, nodeB, nodeFull, nodeBare, nodeDead, nodeIll}, Out: os.Stdout,
		ContainerProgram: program, AttachDetach: true, OnlyUpstream: true,
		ControllerManagerArgs: []string{"--node-monitor-grace-period=12s"},
		ArgsOfDriver:          map[string][]string{nodeFull: {"--max-volumes=1"}},
	}
	if err := system.Open(options).Down(ctx); err != nil {
		return fmt.Errorf("taking down an earlier run: %w", err)
	}
	if sys, err = system.Up(ctx, options); err != nil {
		return err
	}
	for _, object := range objects() {
		if err := sys.Client.Create(ctx, object); err != nil {
			return errors.Join(fmt.Errorf("creating %s: %w", object.GetName(), err), sys.Down(ctx))
		}
	}
	return sys.StartScheduler(ctx)
}

// objects are the namespace with its reader, the driver, and the classes.
func objects() []client.Object {
	inShop := metav1.ObjectMeta{Name: reader, Namespace: namespace}
	loop := func(name string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: system.DriverName,
			AllowVolumeExpansion: ptr.To(true)}
	}
	xfs, secret := loop(xfsClass), loop(secretClass)
	xfs.Parameters = map[string]string{"csi.storage.k8s.io/fstype": "xfs"}
	secret.Parameters = map[string]string{"csi.storage.k8s.io/node-stage-secret-name": stageSecret,
		"csi.storage.k8s.io/node-stage-secret-namespace": namespace}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}},
		loop(class), xfs, secret,
		&rbacv1.Role{ObjectMeta: inShop, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""},
			Resources: []string{"pods", "persistentvolumeclaims", "events"}, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.RoleBinding{ObjectMeta: inShop,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: reader},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: reader}}},
	}
}
