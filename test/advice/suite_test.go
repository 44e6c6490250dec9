/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package advice brings a cluster with Hawser into the situations of the plugin's findings, reads what
// `kubectl hawser why` or `doctor` advises, does that, and waits until the wait has ended. The control plane, the
// scheduler, manager, agents, sidecars and the loop driver are real. Nodes have no kubelet, except for those of
// TestTheOperator, which has a cluster of its own. TestBeforeAnInstallation does the same with `preflight` and an API
// server without Hawser. `make test-advice` runs it. docs/internals/situations.md lists the codes.
package advice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/system"
)

// Nodes. Nothing is wrong with the first two, and each of the others has what its name means at times.
const (
	nodeA, nodeB = "node-a", "node-b"
	nodeFull     = "node-full"
	nodeBare     = "node-bare"
	nodeTainted  = "node-tainted"
	nodeStopped  = "node-stopped"
	nodeDead     = "node-dead"
	nodeOdd      = "node-odd"
)

const (
	namespace = "shop"
	// class, and those whose volumes wait for a pod, or are made by hand.
	class, lateClass, byHand = "loop", "late", "by-hand"
	// waitTimeout is the timeout of every wait. The doctor reports many findings after some minutes only.
	waitTimeout = 5 * time.Minute
	// dirVariable enables the suite and names the directory of its cluster.
	dirVariable = "HAWSER_TEST_ADVICE"
)

// sys is shared by all tests. Each has its own claims, intents and pods.
var sys *system.System

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(dirVariable) == "" {
		fmt.Println("not asked for: make test-advice runs these tests")
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
	options := system.Options{
		Dir:   os.Getenv(dirVariable),
		Nodes: []string{nodeA, nodeB, nodeFull, nodeBare, nodeTainted, nodeStopped, nodeDead, nodeOdd},
		Out:   os.Stdout, AttachDetach: true, Machines: true,
		ControllerManagerArgs: []string{"--node-monitor-grace-period=12s"},
		AgentArgs:             []string{"--driver-timeout=4s", "--stats-period=5s"},
		// By its defaults it would send five requests a second, for all situations at once.
		AttacherArgs: []string{"--retry-interval-max=5s", "--kube-api-qps=1000", "--kube-api-burst=1000"},
		ArgsOfDriver: map[string][]string{nodeFull: {"--max-volumes=1"}},
	}
	if err := system.Open(options).Down(ctx); err != nil {
		return fmt.Errorf("taking down an earlier run: %w", err)
	}
	var err error
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

// objects are the namespace, the driver and the classes.
func objects() []client.Object {
	loop := func(name string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: system.DriverName,
			AllowVolumeExpansion: ptr.To(true)}
	}
	late := loop(lateClass)
	late.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
			Labels: map[string]string{"volumes.hawser.io/allow-publisher-kubelet": "true"}}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true),
				FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy)}},
		loop(class), late,
	}
}
