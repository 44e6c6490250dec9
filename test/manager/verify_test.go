/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/attachment"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/report"
	"github.com/hawser-io/hawser/internal/controller/verify"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/csiloop"
	"github.com/hawser-io/hawser/test/csiloop/driver"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/csiloop/harness"
	"github.com/hawser-io/hawser/test/csiloop/harness/harnesstest"
	"github.com/hawser-io/hawser/test/csiloop/store"
)

// realDriver is the loop driver with the real external-attacher, on one node, which the driver calls node.id.
type realDriver struct {
	backing    string
	controller *harness.Process
	node, id   string
}

func (w *world) realDriver(t *testing.T, node string) *realDriver {
	t.Helper()
	dir := harnesstest.Dir(t)
	d := &realDriver{backing: filepath.Join(dir, "backing"), node: node, id: node + ".id"}
	d.controller = harnesstest.Start(t, dir, harness.Options{Mode: driver.ModeController})
	harnesstest.Start(t, dir, harness.Options{Mode: driver.ModeNode, NodeID: d.id})
	w.startRealAttacher(t, d.controller.Endpoint)
	w.create(t,
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiloop.DriverName}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}}},
		&storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: csiloop.DriverName, NodeID: d.id}}},
		},
	)
	w.agent(t, node)
	return d
}

// startRealAttacher runs the external-attacher until the test ends. Its own reconciliation with the driver is left
// out: this one is about Hawser's.
func (w *world) startRealAttacher(t *testing.T, socket string) {
	t.Helper()
	var message bytes.Buffer
	cmd := exec.Command(filepath.Join(os.Getenv(apiserver.AssetsVariable), "csi-attacher"),
		"--csi-address="+socket, "--kubeconfig="+kubeconfig(t, w.config), "--reconcile-sync=24h")
	cmd.Stderr = &message
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting csi-attacher: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it ends by itself when its driver does
		_ = cmd.Wait()         // and was killed otherwise
		if t.Failed() {
			t.Logf("csi-attacher said:\n%s", message.String())
		}
	})
}

func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// volume makes one with the driver, and a claim that is bound to it. It returns the driver's handle of it.
func (d *realDriver) volume(t *testing.T, w *world, name string) string {
	t.Helper()
	conn, err := d.controller.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // fails only for one that is closed
	made, err := csi.NewControllerClient(conn).CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	claim := newClaim(name, volumeOptions{})
	w.create(t, claim)
	pv := newVolume(claim, volumeOptions{})
	pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = csiloop.DriverName, made.GetVolume().GetVolumeId()
	w.create(t, pv)
	w.bind(t, claim)
	return made.GetVolume().GetVolumeId()
}

// verify runs a verifier until the test ends.
func (w *world) verify(t *testing.T, d *realDriver) {
	t.Helper()
	mgr, err := manager.New(w.config, manager.Options{
		Scheme: apiserver.Scheme(), Cache: cached.Options(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := &verify.Verifier{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("hawser"),
		Endpoints: verify.Endpoints{csiloop.DriverName: d.controller.Endpoint}, Period: 200 * time.Millisecond,
	}
	// The controllers' caches; in the manager they watch all of these already.
	for _, o := range []client.Object{&storagev1.VolumeAttachment{}, &storagev1.CSINode{}, &corev1.PersistentVolume{},
		&volumesv1alpha1.NodeVolumeState{}} {
		if _, err := mgr.GetCache().GetInformer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Register(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("running the verifier: %v", err)
		}
	})
}

// awaitEvent waits for an event about the object of that name, and returns its note.
func (w *world) awaitEvent(t *testing.T, name, reason string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watcher, err := w.client.Watch(ctx, &eventsv1.EventList{},
		client.MatchingFields{"regarding.name": name, "reason": reason})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		if event, ok := e.Object.(*eventsv1.Event); ok {
			return event.Note
		}
	}
	t.Fatalf("no event %s about %s within %s, want one", reason, name, patience)
	return ""
}

func TestAVolumeThatAnotherClientDetachedInTheDriverIsAttachedAgain(t *testing.T) {
	harnesstest.NeedRoot(t)
	w := newWorld(t)
	d := w.realDriver(t, "verified")
	handle := d.volume(t, w, "verified")
	w.manage(t, managerOptions{})
	intent := newIntent("verified", "verified", "verified")
	setOnlyAttached(intent)
	w.create(t, intent)
	w.attached(t, intent)
	name := volume.AttachmentName(csiloop.DriverName, handle, "verified")
	va := until(t, w, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}, "it is attached",
		func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
	uid := va.UID

	backend, err := store.Open(d.backing, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := backend.Unpublish(t.Context(), handle, d.id); err != nil {
		t.Fatal(err)
	}
	// The driver hangs when it is to attach it again, so that what is said meanwhile can be read.
	fault, err := faults.Add(d.backing,
		faults.Fault{Method: "ControllerPublishVolume", Volume: handle, Action: faults.Hang})
	if err != nil {
		t.Fatal(err)
	}
	w.verify(t, d)
	message := w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse,
		volumesv1alpha1.ReasonAttachmentLost)
	if !strings.Contains(message, "not by Hawser") || !strings.Contains(message, name) {
		t.Errorf("message of the intent: %q; want that attachment %s was detached, not by Hawser", message, name)
	}
	if note := w.awaitEvent(t, "verified", verify.ReasonAttachmentLost); !strings.Contains(note, name) ||
		!strings.Contains(note, "node verified") {
		t.Errorf("event of attachment %s: %q; want its name and node verified", name, note)
	}
	state := until(t, w, stateOf("verified"), "the entry stays", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 1
	})
	if e := state.Spec.Attachments[0]; e.State != volumesv1alpha1.AttachmentAttached || e.AttachmentUID != uid {
		t.Errorf("entry of the volume: %s; want Attached with UID %s", dump(e), uid)
	}
	if err := faults.Remove(d.backing, fault); err != nil {
		t.Fatal(err)
	}
	w.attached(t, intent)
	until(t, w, va, "it is attached by the same attachment", func(va *storagev1.VolumeAttachment) bool {
		return va.UID == uid && va.Status.Attached
	})
	if _, err := backend.Published(handle, d.id); err != nil {
		t.Errorf("volume %s on node %s in the driver: error %v, want it published again", handle, d.id, err)
	}
	w.delete(t, intent)
	gone(t, w, intent)
	gone(t, w, va)
}

func TestADriverThatIsDownLeavesAttachmentsUnchanged(t *testing.T) {
	harnesstest.NeedRoot(t)
	w := newWorld(t)
	d := w.realDriver(t, "unverified")
	handle := d.volume(t, w, "unverified")
	w.manage(t, managerOptions{})
	intent := newIntent("unverified", "unverified", "unverified")
	setOnlyAttached(intent)
	w.create(t, intent)
	w.attached(t, intent)
	if err := d.controller.Stop(); err != nil {
		t.Fatal(err)
	}
	w.verify(t, d)
	if note := w.awaitEvent(t, csiloop.DriverName, verify.ReasonVerificationFailed); !strings.Contains(note,
		"not verified") {
		t.Errorf("event of the driver: %q; want that its volumes are not verified", note)
	}
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(csiloop.DriverName, handle, "unverified")},
	}
	until(t, w, va, "it is attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
	until(t, w, intent, "the intent is", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
	})
}

// anAttachmentMarkedAsDetachedIsReportedUntilItIsAttachedAgain: by the attacher, by the verification, or by a user.
func anAttachmentMarkedAsDetachedIsReportedUntilItIsAttachedAgain(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	w.node(t, "marked")
	w.volume(t, "marked", volumeOptions{})
	intent := w.intent(t, "marked", "marked", "marked")
	until(t, w, intent, "the intent is Ready", isReady)
	w.attacher.set("pv-marked", "", true)
	va := attachmentOf("marked", "marked")
	w.changeStatus(t, va, func() { va.Status.Attached = false })
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonAttachmentLost)
	w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonAttachmentLost)
	w.awaitIntentEvent(t, intent, report.EventFailedAttach)
	w.changeStatus(t, va, func() {
		va.Status.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: "the array is on fire"}
	})
	until(t, w, intent, "the attacher's words are told", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i.Status.LastError != nil && strings.Contains(i.Status.LastError.Message, "the array is on fire")
	})
	state := until(t, w, stateOf("marked"), "the entry stays", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return entryIn(s, "marked").AttachmentUID == va.UID
	})
	if e := entryIn(state, "marked"); e.State != volumesv1alpha1.AttachmentAttached || !state.Status.Volumes[0].InUse {
		t.Errorf("node state of volume marked: %s; want the entry Attached and the volume in use", dump(state))
	}
	// It comes back as another device.
	w.changeStatus(t, va, func() {
		va.Status = storagev1.VolumeAttachmentStatus{
			Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/other"},
		}
	})
	w.attached(t, intent)
	until(t, w, stateOf("marked"), "the node is told of the device", func(s *volumesv1alpha1.NodeVolumeState) bool {
		e := entryIn(s, "marked")
		return e.PublishContext["device"] == "/dev/other" && e.AttachmentUID == va.UID
	})
	if intent.Status.LastError != nil {
		t.Errorf("lastError of intent %s after the attach: %s; want none", intent.Name, dump(intent.Status.LastError))
	}
	w.attacher.set("pv-marked", "", false)
	w.delete(t, intent)
	gone(t, w, intent)
}

// aFailedDetachIsReportedOnItsNodeUntilItSucceeds: the intent is gone by then, and maybe its namespace.
func aFailedDetachIsReportedOnItsNodeUntilItSucceeds(t *testing.T, w *world) {
	requests, _ := w.manage(t, managerOptions{})
	w.node(t, "undetached")
	w.volume(t, "undetached", volumeOptions{})
	intent := w.intent(t, "undetached", "undetached", "undetached")
	until(t, w, intent, "the intent is Ready", isReady)
	w.attacher.set("pv-undetached", "", true)
	w.delete(t, intent)
	gone(t, w, intent)
	va := attachmentOf("undetached", "undetached")
	until(t, w, va, "it is to be detached", func(va *storagev1.VolumeAttachment) bool {
		return va.DeletionTimestamp != nil
	})
	requests.reset()
	fail := func(at time.Time, message string) {
		w.changeStatus(t, va, func() {
			va.Status.DetachError = &storagev1.VolumeError{Time: metav1.NewTime(at), Message: message}
		})
		until(t, w, stateOf("undetached"), "the node's state says why not", func(s *volumesv1alpha1.NodeVolumeState) bool {
			return entryIn(s, "undetached").DetachError == message
		})
	}
	now := time.Now()
	fail(now, `failed to load secret "tenant/publish"`)
	if note := w.awaitEvent(t, "undetached", attachment.EventFailedDetach); !strings.Contains(note, "tenant/publish") ||
		!strings.Contains(note, va.Name) {
		t.Errorf("event of node state undetached: %q; want the driver's error and attachment %s", note, va.Name)
	}
	// The same again costs nothing.
	w.changeStatus(t, va, func() { va.Status.DetachError.Time = metav1.NewTime(now.Add(time.Minute)) })
	fail(now.Add(2*time.Minute), "the array is on fire")
	if n := requests.count("PUT nodevolumestates"); n != 2 {
		t.Errorf("%d writes of node states to report two errors, want 2", n)
	}
	w.attacher.set("pv-undetached", "", false)
	gone(t, w, va)
	until(t, w, stateOf("undetached"), "the entry is gone", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return len(s.Spec.Attachments) == 0
	})
}

// aDeletedIntentReportsThatItWaitsForAnUnreachableAgent: its namespace may wait with it.
func aDeletedIntentReportsThatItWaitsForAnUnreachableAgent(t *testing.T, w *world) {
	w.manage(t, managerOptions{})
	machine := w.node(t, "mute")
	w.renew(t, "mute", 1)
	w.volume(t, "mute", volumeOptions{})
	intent := newIntent("mute", "mute", "mute")
	intent.Spec.DetachPolicy = &volumesv1alpha1.DetachPolicy{ForceAfter: metav1.Duration{Duration: 6 * time.Minute}}
	w.create(t, intent)
	until(t, w, intent, "the intent is Ready", isReady)
	machine.stop()
	w.delete(t, intent)
	w.renew(t, "mute", 1)
	message := w.reason(t, intent, volumesv1alpha1.ConditionReady, metav1.ConditionUnknown,
		volumesv1alpha1.ReasonAgentUnreachable)
	for _, words := range []string{"being deleted", "6m0s", corev1.TaintNodeOutOfService} {
		if !strings.Contains(message, words) {
			t.Errorf("message of intent %s: %q; want %q in it", intent.Name, message, words)
		}
	}
	w.renew(t, "mute", 3600)
	w.agent(t, "mute")
	gone(t, w, intent)
}
