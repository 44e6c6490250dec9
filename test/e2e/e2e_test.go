/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package e2e tests all of Hawser on one machine: a real control plane, the real external-attacher,
// external-provisioner and external-resizer, and a real CSI driver with loop devices. Every program is built
// with the race detector. The tests kill, stop and mislead the programs.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/environment"
	"github.com/hawser-io/hawser/test/system"
)

const (
	nodeA, nodeB = "node-a", "node-b"
	namespace    = "default"
	class        = "loop"
	// driverTimeout of the tested agents. It is short, so that an agent soon gives up a call that hangs.
	driverTimeout = 3 * time.Second
	// waitTimeout is the timeout of every wait.
	waitTimeout = 5 * time.Minute
)

// sys is shared by all tests of the package. Each test has its own claims and intents.
var sys *system.System

// trap is the cluster that the environment of the tests leads to.
var trap *environment.Trap

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("LEFT OUT (needs root): every end-to-end test")
		return 0
	}
	bin, err := system.BuildRace(context.Background())
	if err != nil {
		fmt.Println("FAIL: building the programs:", err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := start(ctx, bin); err != nil {
		fmt.Println("FAIL: starting the system:", err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(trap.Sprung(), trap.Close()); err != nil {
		fmt.Println("FAIL:", err)
		code = 1
	}
	for _, problem := range rulesWithoutTest() {
		fmt.Println("FAIL:", problem)
		code = 1
	}
	for _, found := range sys.Raced() {
		fmt.Println("FAIL: a program raced or panicked:", found)
		code = 1
	}
	if err := sys.Down(context.Background()); err != nil {
		fmt.Println("FAIL: stopping the system:", err)
		code = 1
	}
	return code
}

func start(ctx context.Context, bin string) error {
	// For all programs of the system: less garbage collection needs less processor time.
	if err := os.Setenv("GOGC", "400"); err != nil {
		return fmt.Errorf("setting the environment of the programs: %w", err)
	}
	dir, err := os.MkdirTemp("", "hawser-e2e-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	if trap, err = environment.Poison(); err != nil {
		return err
	}
	sys, err = system.Up(ctx, system.Options{
		Dir: dir, Bin: bin, Nodes: []string{nodeA, nodeB}, Out: os.Stdout, AttachDetach: true,
		AgentArgs: []string{"--driver-timeout=" + driverTimeout.String()},
	})
	if err != nil {
		return err
	}
	attach, policy := true, storagev1.FileFSGroupPolicy
	for _, object := range []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: &attach, FSGroupPolicy: &policy}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: system.DriverName,
			AllowVolumeExpansion: &attach},
	} {
		if err := sys.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// volume is one claim of a test.
type volume struct {
	t      *testing.T
	name   string
	handle string
	// current intent, and the case under test, where a test has many volumes at once.
	current, what string
}

func limited(t *testing.T) context.Context {
	t.Helper()
	// Not the test's own context: the clean-up waits too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

// newVolume creates a claim and waits until it is bound. Claim and volume are deleted when the test ends.
func newVolume(t *testing.T, change ...func(*corev1.PersistentVolumeClaim)) *volume {
	t.Helper()
	return provision(limited(t), t, change...)
}

func provision(ctx context.Context, t *testing.T, change ...func(*corev1.PersistentVolumeClaim)) *volume {
	t.Helper()
	v := newClaim(ctx, t, change...)
	t.Cleanup(v.remove)
	v.bind(ctx)
	return v
}

// newVolumes creates several volumes at once, and deletes them at once.
func newVolumes(t *testing.T, n int, change ...func(*corev1.PersistentVolumeClaim)) []*volume {
	t.Helper()
	ctx := limited(t)
	volumes := make([]*volume, n)
	for i := range volumes {
		volumes[i] = newClaim(ctx, t, change...)
	}
	t.Cleanup(func() {
		var group sync.WaitGroup
		for _, v := range volumes {
			group.Go(v.remove)
		}
		group.Wait()
	})
	for _, v := range volumes {
		v.bind(ctx)
	}
	return volumes
}

// newClaim creates a claim that the test deletes itself.
func newClaim(ctx context.Context, t *testing.T, change ...func(*corev1.PersistentVolumeClaim)) *volume {
	t.Helper()
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "claim-"}, Spec: claimSpec()}
	for _, c := range change {
		c(pvc)
	}
	if err := sys.Client.Create(ctx, pvc); err != nil {
		t.Fatal(err)
	}
	return &volume{t: t, name: pvc.Name}
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}},
	}
}

// bind waits until the claim is bound and stores its volume's handle.
func (v *volume) bind(ctx context.Context) {
	v.t.Helper()
	bound, err := sys.AwaitClaim(ctx, namespace, v.name, func(c *corev1.PersistentVolumeClaim) bool {
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

// remove deletes the claim and waits until the driver's volume is gone too.
func (v *volume) remove() {
	ctx := limited(v.t)
	pvc := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: namespace, Name: v.name}
	if err := sys.Client.Get(ctx, key, pvc); err != nil {
		v.t.Errorf("reading claim %s: %v", key, err)
		return
	}
	if err := sys.Client.Delete(ctx, pvc); err != nil {
		v.t.Errorf("deleting claim %s: %v", key, err)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName}}
	if pvc.Spec.VolumeName == "" {
		return
	}
	if *pvc.Spec.StorageClassName == "by-hand" {
		if err := sys.Client.Delete(ctx, pv); err != nil {
			v.t.Error(err)
		}
	}
	if err := sys.AwaitVolumeGone(ctx, pv.Name); err != nil {
		v.t.Error(err)
	}
}

// intent creates an intent for the volume. When the test ends, it is deleted with everything that it uses.
func (v *volume) intent(node string, change ...func(*volumesv1alpha1.VolumeAttachmentIntent)) string {
	v.t.Helper()
	intent := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: v.name + "-" + node + "-"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: v.name}},
		},
	}
	for _, c := range change {
		c(intent)
	}
	if err := sys.Client.Create(limited(v.t), intent); err != nil {
		v.t.Error(err)
	}
	v.t.Cleanup(func() { v.release(intent.Name) })
	return intent.Name
}

// release deletes an intent and waits until it is gone. It succeeds if the intent does not exist.
func (v *volume) release(name string) {
	v.t.Helper()
	ctx := limited(v.t)
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := client.IgnoreNotFound(sys.Client.Delete(ctx, intent)); err != nil {
		v.t.Errorf("deleting intent %s: %v", name, err)
	}
	if err := sys.AwaitGone(ctx, namespace, name); err != nil {
		v.t.Error(err)
	}
}

// delete deletes an intent and does not wait.
func (v *volume) delete(name string) {
	v.t.Helper()
	intent := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := sys.Client.Delete(limited(v.t), intent); err != nil {
		v.t.Error(err)
	}
}

// await waits until done is true of an intent.
func (v *volume) await(name string,
	done func(*volumesv1alpha1.VolumeAttachmentIntent) bool) *volumesv1alpha1.VolumeAttachmentIntent {
	v.t.Helper()
	intent, err := sys.AwaitIntent(limited(v.t), namespace, name, done)
	if err != nil {
		v.t.Fatal(err)
	}
	return intent
}

// ready waits until an intent is Ready and returns its path.
func (v *volume) ready(name string) string {
	v.t.Helper()
	return v.await(name, system.Ready).Status.Path
}

// fault puts a fault on the driver's calls for this volume, until the test ends.
func (v *volume) fault(f faults.Fault) string {
	v.t.Helper()
	f.Volume = v.handle
	id, err := faults.Add(sys.BackingDir(), f)
	if err != nil {
		v.t.Error(err)
	}
	v.t.Cleanup(func() { v.removeFault(id) })
	return id
}

// removeFault removes a fault.
func (v *volume) removeFault(id string) {
	v.t.Helper()
	if err := faults.Remove(sys.BackingDir(), id); err != nil {
		v.t.Error(err)
	}
}

// struck waits until the fault has struck.
func (v *volume) struck(id string) {
	v.t.Helper()
	if err := faults.WaitHits(limited(v.t), sys.BackingDir(), id, 1); err != nil {
		v.t.Fatal(err)
	}
}
