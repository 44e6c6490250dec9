/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package kubelet has the end-to-end tests with pods. They use two nodes, each a machine with a real containerd
// and an unmodified kubelet. Hawser replaces upstream's attach/detach controller. They take minutes and need
// programs that nothing else needs; `make test-e2e` runs them.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/system"
)

const (
	nodeA, nodeB = "node-a", "node-b"
	namespace    = "default"
	class        = "loop"
	// waitTimeout is the timeout of every wait.
	waitTimeout = 4 * time.Minute
	// gracePeriod after which a silent node is not Ready.
	gracePeriod = 12 * time.Second
	// driverTimeout is how long an agent waits for a call to the driver of one that was killed.
	driverTimeout = 20 * time.Second

	// attachVariable enables this suite and selects the attaching controller: hawser or, for a comparison, upstream.
	attachVariable = "HAWSER_TEST_E2E"
	hawser         = "hawser"
	upstream       = "upstream"
	// plainVariable leaves out the race detector, for measurements.
	plainVariable = "HAWSER_TEST_E2E_PLAIN"
	// dirVariable names the directory of the cluster. The suite first takes down what an earlier run left there.
	dirVariable = "HAWSER_TEST_E2E_DIR"
)

// sys is shared by all tests of the package. Each test has its own claims and pods.
var sys *system.System

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	attach := os.Getenv(attachVariable)
	if attach == "" {
		fmt.Println("not asked for: make test-e2e runs these tests")
		return 0
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if err := start(ctx, attach); err != nil {
		fmt.Println("FAIL: starting the system:", err)
		return 1
	}
	code := m.Run()
	for _, found := range sys.Raced() {
		fmt.Println("FAIL: a program raced or panicked:", found)
		code = 1
	}
	if err := sys.Down(context.Background()); err != nil {
		fmt.Println("FAIL: stopping the system:", err)
		code = 1
	}
	for _, left := range leftovers() {
		fmt.Println("FAIL: left behind:", left)
		code = 1
	}
	return code
}

func start(ctx context.Context, attach string) error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root")
	}
	if attach != hawser && attach != upstream {
		return fmt.Errorf("%s is %q, neither %s nor %s", attachVariable, attach, hawser, upstream)
	}
	build := system.BuildRace
	if os.Getenv(plainVariable) != "" {
		build = system.Build
	}
	bin, err := build(ctx)
	if err != nil {
		return err
	}
	program, err := system.BuildStatic(ctx, "./test/kubelet/cmd/program")
	if err != nil {
		return err
	}
	options := system.Options{
		Dir: os.Getenv(dirVariable), Bin: bin, Nodes: []string{nodeA, nodeB}, Out: os.Stdout,
		ContainerProgram: program,
		LinkedKubelets:   []string{nodeB}, // as if /var/lib/kubelet were a link to another disk
		AttachDetach:     attach == upstream,
		OnlyUpstream:     attach == upstream,
		ControllerManagerArgs: []string{"--node-monitor-grace-period=" + gracePeriod.String(),
			// A quota of a kind that is new is counted with the next period, not when the kind is found.
			"--resource-quota-sync-period=5s"},
		ManagerArgs: []string{"--attach-mode=Replace", "--label-nodes"},
		AgentArgs:   []string{"--driver-timeout=" + driverTimeout.String()},
	}
	if options.Dir == "" {
		options.Dir = "/tmp/hawser-test-e2e"
	}
	if err := system.Open(options).Down(ctx); err != nil {
		return fmt.Errorf("taking down an earlier run: %w", err)
	}
	if sys, err = system.Up(ctx, options); err != nil {
		return err
	}
	for _, object := range []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: system.DriverName},
	} {
		if err := sys.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// leftovers lists what the machines must have removed. Control groups that stay already fail Down.
func leftovers() []string {
	devices, err := system.LoopDevicesOn(sys.Dir)
	if err != nil {
		return []string{err.Error()}
	}
	mounts, err := system.MountsBelow(sys.Dir)
	if err != nil {
		return []string{err.Error()}
	}
	if _, err := os.Stat(sys.Dir); err == nil {
		mounts = append(mounts, sys.Dir)
	}
	return append(devices, mounts...)
}
