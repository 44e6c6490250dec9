/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/machine"
	"github.com/hawser-io/hawser/test/machine/boot"
	"github.com/hawser-io/hawser/test/machine/disk"
	"github.com/hawser-io/hawser/test/machine/disk/controller"
	"github.com/hawser-io/hawser/test/machine/iscsi"
	"github.com/hawser-io/hawser/test/machine/nfs"
	"github.com/hawser-io/hawser/test/system"
)

const (
	// dirVariable enables the suite, and names the directory of its machines and its cluster.
	dirVariable = "HAWSER_TEST_MACHINES"
	// nodes that the cluster has. Each test with a node takes the next one.
	nodes = 50
	// driverTimeout of the agents is how long one waits for a driver that hangs.
	driverTimeout = 30 * time.Second
)

// lab is what all tests share.
var lab struct {
	dir   string
	files boot.Files
	// booted is a machine that has just booted.
	booted machine.Snapshot
	sys    *system.System
	disks  *controller.Controller
	azure  *controller.Controller
	nfs    *nfs.Controller
	iscsi  *iscsi.Controller

	mu sync.Mutex
	// taken is the number of nodes that tests have taken.
	taken int
	// waits are the times that other volumes needed while a fault lasted.
	waits []time.Duration
}

// nextName returns that of the node that a test takes.
func nextName() string {
	lab.mu.Lock()
	defer lab.mu.Unlock()
	if lab.taken++; lab.taken > nodes {
		panic(fmt.Sprintf("the cluster has %d nodes, and more tests: raise nodes", nodes))
	}
	return fmt.Sprintf("machine-%d", lab.taken)
}

func noteWaits(waits ...time.Duration) {
	lab.mu.Lock()
	defer lab.mu.Unlock()
	lab.waits = append(lab.waits, waits...)
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	lab.dir = os.Getenv(dirVariable)
	if lab.dir == "" {
		fmt.Println("not asked for: make test-machines runs these tests")
		return 0
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		fmt.Println("FAIL: test-machines needs QEMU (Debian package qemu-system-x86)")
		return 1
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop, err := prepare(ctx)
	if err != nil {
		fmt.Println("FAIL: preparing the machines:", err)
		code = 1
	} else {
		code = m.Run()
		fmt.Print(histogram(lab.waits))
	}
	if err := stop(); err != nil {
		fmt.Println("FAIL: stopping the cluster:", err)
		code = 1
	}
	return code
}

func prepare(ctx context.Context) (stop func() error, err error) {
	stop = func() error { return nil }
	options := system.Options{Dir: filepath.Join(lab.dir, "cluster"), Out: os.Stdout,
		ControllerSockets: map[string]string{disk.DriverName: filepath.Join(lab.dir, "disk.sock"),
			controller.AzureDriver: filepath.Join(lab.dir, "azure.sock"),
			nfs.DriverName:         filepath.Join(lab.dir, "nfs.sock"),
			iscsi.DriverName:       filepath.Join(lab.dir, "iscsi.sock")}}
	if options.Bin, err = system.Build(ctx); err != nil {
		return stop, err
	}
	if err := system.Open(options).Down(ctx); err != nil {
		return stop, fmt.Errorf("taking down an earlier run: %w", err)
	}
	for _, dir := range []string{"machines", "disks", "faults", "nfs", "iscsi"} {
		dir = filepath.Join(lab.dir, dir)
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return stop, err
		}
	}
	if err := buildPrograms(ctx); err != nil {
		return stop, err
	}
	if lab.files, err = boot.Prepare(ctx, os.Stdout); err != nil {
		return stop, err
	}
	if err := takeSnapshot(ctx); err != nil {
		return stop, err
	}
	return startCluster(ctx, options)
}

// buildPrograms builds what runs inside the machines.
func buildPrograms(ctx context.Context) error {
	args := []string{"build", "-ldflags=-s -w", "-o", filepath.Join(lab.dir, "bin") + "/"}
	if undetected() {
		fmt.Println("the agent detects no fault, and each test of one must fail")
		changed, err := overlay(lab.dir, nil, withoutDetection()...)
		if err != nil {
			return err
		}
		args, patience = append(args, changed), undetectedTimeout
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/agent", "./test/csiloop/cmd/csi-loop",
		"./test/machine/cmd/csi-disk", "./test/machine/cmd/csi-nfs", "./test/machine/cmd/csi-iscsi",
		"./test/machine/cmd/csi-register")...)
	cmd.Dir, cmd.Env = apiserver.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs: %w: %s", err, out)
	}
	return nil
}

func takeSnapshot(ctx context.Context) error {
	begin := time.Now()
	m, err := machine.Start(ctx, options("booted"))
	if err != nil {
		return err
	}
	fmt.Printf("a machine booted in %.1f s\n", time.Since(begin).Seconds())
	begin = time.Now()
	if lab.booted, err = m.Snapshot(ctx, filepath.Join(lab.dir, "machines", "snapshot")); err != nil {
		return errors.Join(err, m.CutPower())
	}
	fmt.Printf("its snapshot took %.1f s\n", time.Since(begin).Seconds())
	return m.CutPower()
}

func startCluster(ctx context.Context, o system.Options) (stop func() error, err error) {
	for i := range nodes {
		o.Nodes = append(o.Nodes, fmt.Sprintf("machine-%d", i+1))
	}
	o.Outside = o.Nodes
	stopControllers, err := serveControllers(o)
	if err != nil {
		return func() error { return nil }, err
	}
	if lab.sys, err = system.Up(ctx, o); err != nil {
		stopControllers()
		return func() error { return nil }, err
	}
	stop = func() error {
		stopControllers()
		return lab.sys.Down(context.Background())
	}
	for _, driver := range []string{disk.DriverName, controller.AzureDriver, iscsi.DriverName} {
		if err := lab.sys.StartAttacherOf(ctx, driver); err != nil {
			return stop, err
		}
	}
	for _, object := range drivers() {
		if err := lab.sys.Client.Create(ctx, object); err != nil {
			return stop, fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	return stop, nil
}

// serveControllers serves the controllers of the drivers until the returned function is called.
func serveControllers(o system.Options) (stop func(), err error) {
	lab.disks = &controller.Controller{Dir: filepath.Join(lab.dir, "disks")}
	lab.azure = &controller.Controller{Dir: filepath.Join(lab.dir, "disks"), Azure: true}
	lab.nfs = &nfs.Controller{Dir: filepath.Join(lab.dir, "nfs")}
	lab.iscsi = &iscsi.Controller{Dir: filepath.Join(lab.dir, "iscsi")}
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for driver, controller := range map[string]interface {
		Serve(socket string) (stop func(), err error)
	}{disk.DriverName: lab.disks, controller.AzureDriver: lab.azure, nfs.DriverName: lab.nfs,
		iscsi.DriverName: lab.iscsi} {
		one, err := controller.Serve(o.ControllerSockets[driver])
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// Storage classes. The last part is the filesystem. Volumes of a mapped class are devices of the device mapper. Each
// volume of the class byFUSE is mounted by a process of its own (fuse2fs).
const (
	loopExt4   = "loop-ext4"
	diskExt4   = "disk-ext4"
	diskXFS    = "disk-xfs"
	mappedExt4 = "mapped-ext4"
	mappedXFS  = "mapped-xfs"
	byFUSE     = "fuse-fuse.ext4"
	azureExt4  = "azure-ext4"
	azureXFS   = "azure-xfs"
)

func drivers() []client.Object {
	var objects []client.Object
	for name, attaches := range map[string]bool{system.DriverName: true, disk.DriverName: true, nfs.DriverName: false,
		controller.AzureDriver: true, iscsi.DriverName: true} {
		named := metav1.ObjectMeta{Name: name}
		if name == disk.DriverName {
			named.Annotations = map[string]string{volumesv1alpha1.CutsAccessAnnotation: "true"}
		}
		objects = append(objects, &storagev1.CSIDriver{ObjectMeta: named,
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(attaches), SELinuxMount: ptr.To(name == disk.DriverName)}})
	}
	for _, name := range []string{loopExt4, diskExt4, diskXFS, mappedExt4, mappedXFS, byFUSE, azureExt4, azureXFS} {
		kind, fsType, _ := strings.Cut(name, "-")
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: disk.DriverName,
			AllowVolumeExpansion: ptr.To(true), Parameters: map[string]string{"csi.storage.k8s.io/fstype": fsType}}
		switch kind {
		case "loop":
			class.Provisioner = system.DriverName
		case "azure":
			class.Provisioner = controller.AzureDriver
		case "mapped":
			class.Parameters[disk.ParameterMapper] = "true"
		case "fuse":
			class.Parameters[disk.ParameterFUSE] = "true"
		}
		objects = append(objects, class)
	}
	return objects
}

// options of a machine. All have the same devices, so that each can begin with the snapshot.
func options(name string) machine.Options {
	return machine.Options{Name: name, Dir: filepath.Join(lab.dir, "machines", name), Files: lab.files,
		UUID: "6d1f9e8a-52b7-4c5e-9f3a-0123456789ab", Share: lab.dir}
}

// start starts a machine for the test.
func start(t *testing.T, o machine.Options) *machine.Machine {
	t.Helper()
	begin := time.Now()
	m, err := machine.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("machine %s takes commands after %.1f s", o.Name, time.Since(begin).Seconds())
	t.Cleanup(func() {
		if err := m.CutPower(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(m.Failure())
		}
	})
	return m
}

// restored is a machine that begins with the snapshot.
func restored(t *testing.T) *machine.Machine {
	t.Helper()
	o := options(nextName())
	o.From = &lab.booted
	return start(t, o)
}

func must(t *testing.T, m *machine.Machine, script string, args ...any) string {
	t.Helper()
	out, err := m.Run(t.Context(), script, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
