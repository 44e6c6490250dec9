/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
)

func TestPodsUseTheVolumesOfIntents(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"a pod gets the volume of its intent, once, and gives it back":               testPodBind,
		"the figures of a volume have the claim of the intent while pods have it":    testPodFigures,
		"a pod that reads only gets a read-only mount":                               testPodReadOnly,
		"a read-only intent is that for its pods, also where its driver ignores it":  testPodReadOnlyIntent,
		"a call waits until the intent is published":                                 testPodWaits,
		"a call that waits ends when the intent is deleted":                          testPodWaitEnds,
		"a call for a claim ends when the intent of the pod has gone":                testPodOfClaimWaitEnds,
		"an intent that is created again gives the pod its own volume alone":         testPodIntentAgain,
		"an intent is released once its last pod is gone, and takes no other pod":    testPodHoldsIntent,
		"a change of an intent takes effect once its pods are gone":                  testPodHoldsChange,
		"a pod ends while the API server is down, after a restart of the agent":      testPodEndsAlone,
		"the record of a bind that is lost is found in the mount table":              testPodRecordLost,
		"the record of a bind that was never made holds nothing":                     testPodRecordStale,
		"a volume for a single pod waits for the pod that has it":                    testPodSingle,
		"a volume that was forced away is shut down and waits for its pods":          testPodForcedAway,
		"a bind that goes on after its call keeps its record, and is the pod's then": testPodLateBind,
		"what is not the pod's volume is neither bound nor unmounted":                testPodForeignMount,
		"a directory with files at the target path stays":                            testPodOccupied,
		"an intent of another node, or none, is explained":                           testPodExplains,
		"a volume for pods is no use of the kubelet, also where it mounts sub path":  testPodIsNoUseOfKubelet,
	})
}

func testPodFigures(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	pods := []testPod{n.pod("first", i), n.pod("second", i)}
	for _, p := range pods {
		p.mounted(a, v)
	}
	n.settled(v)
	a.rest()
	view, _ := a.views.Load(v.name())
	a.readStatsOf(t.Context(), view.(*record.Record))
	want := i.Spec.Volume.PersistentVolumeClaim.ClaimName
	got := a.StatsOfPods(t.Context())
	if len(got) != len(pods) {
		t.Fatalf("figures of %d pods, want those of %d", len(got), len(pods))
	}
	for _, f := range got {
		if f.Namespace != i.Namespace || f.Claim != want || f.Figures.Used == nil || f.Figures.Used.String() != "5Mi" ||
			f.Figures.Capacity == nil {
			t.Errorf("figures of claim %s/%s: %+v, want %s/%s with 5Mi used and its capacity", f.Namespace, f.Claim,
				f.Figures, i.Namespace, want)
		}
	}
	if err := pods[0].answer(pods[0].unpublish(a)); err != nil {
		t.Fatal(err)
	}
	pods[1].ended(a)
	if got := a.StatsOfPods(t.Context()); len(got) > 0 {
		t.Errorf("figures after the end of the pods: %+v, want none", got)
	}
}

// testPod is a pod with one inline volume, named data.
type testPod struct {
	*node
	name       string
	attributes map[string]string
	readOnly   bool
	// uid is made of the name where the pod is not in the API.
	uid types.UID
}

func (p testPod) id() string {
	if p.uid != "" {
		return string(p.uid)
	}
	return p.name + "-uid"
}

func (n *node) pod(name string, i *volumesv1alpha1.VolumeAttachmentIntent) testPod {
	n.t.Helper()
	p := testPod{node: n, name: name, attributes: map[string]string{volumesv1alpha1.AttributeIntent: i.Name}}
	p.made()
	return p
}

func (p testPod) dir() string {
	return filepath.Join(p.kubelet, "pods", p.id(), "volumes", "kubernetes.io~csi", "data")
}

func (p testPod) target() string { return filepath.Join(p.dir(), "mount") }

// made is what the kubelet does before it calls the plugin.
func (p testPod) made() {
	p.t.Helper()
	p.must(os.MkdirAll(p.dir(), 0o750))
	p.must(os.WriteFile(filepath.Join(p.dir(), "vol_data.json"), fmt.Appendf(nil,
		`{"driverName":%q,"volumeHandle":"csi-%s","volumeLifecycleMode":"Ephemeral"}`, volumesv1alpha1.InlineDriver,
		p.name), 0o600))
}

func (p testPod) request() *csi.NodePublishVolumeRequest {
	attributes := map[string]string{
		"csi.storage.k8s.io/pod.name": p.name, "csi.storage.k8s.io/pod.namespace": "default",
		"csi.storage.k8s.io/pod.uid": p.id(), "csi.storage.k8s.io/ephemeral": "true",
		"csi.storage.k8s.io/serviceAccount.name": "default",
	}
	for k, v := range p.attributes {
		attributes[k] = v
	}
	return &csi.NodePublishVolumeRequest{
		VolumeId: "csi-" + p.name, TargetPath: p.target(), Readonly: p.readOnly, VolumeContext: attributes,
		VolumeCapability: capabilityOf(corev1.PersistentVolumeFilesystem, ""),
	}
}

// publish calls the plugin and returns its answer, or no answer if the agent is killed.
func (p testPod) publish(r *running) <-chan error {
	answer := make(chan error, 1)
	go func() {
		_, err := r.plugin.NodePublishVolume(p.t.Context(), p.request())
		answer <- err
	}()
	return answer
}

func (p testPod) unpublish(r *running) <-chan error {
	answer := make(chan error, 1)
	go func() {
		_, err := r.plugin.NodeUnpublishVolume(p.t.Context(),
			&csi.NodeUnpublishVolumeRequest{VolumeId: "csi-" + p.name, TargetPath: p.target()})
		answer <- err
	}()
	return answer
}

// mounted publishes and checks that the pod has the volume.
func (p testPod) mounted(r *running, v testVolume) {
	p.t.Helper()
	if err := p.answer(p.publish(r)); err != nil {
		p.t.Fatalf("publishing to pod %s: %v, want no error", p.name, err)
	}
	e, ok := p.kernel.at(p.target())
	if !ok || e.Minor != minorOf(v.handle) {
		p.t.Errorf("at the target path of pod %s is %+v, want volume %s", p.name, e, v.handle)
	}
}

func (p testPod) answer(c <-chan error) error {
	p.t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		p.t.Fatalf("no answer to pod %s within %s, want one", p.name, patience)
		return nil
	}
}

// ended unpublishes and checks that nothing of the pod is left but what the kubelet made.
func (p testPod) ended(r *running) {
	p.t.Helper()
	if err := p.answer(p.unpublish(r)); err != nil {
		p.t.Fatalf("unpublishing pod %s: %v, want no error", p.name, err)
	}
	p.nothing()
}

func (p testPod) nothing() {
	p.t.Helper()
	if _, ok := p.kernel.at(p.target()); ok {
		p.t.Errorf("pod %s has something mounted at its target path, want nothing", p.name)
	}
	if _, err := os.Lstat(p.target()); !os.IsNotExist(err) {
		p.t.Errorf("target path of pod %s: error %v, want that it does not exist", p.name, err)
	}
	if records := p.podRecords(); len(records) > 0 {
		p.t.Errorf("records of pods %v, want none", records)
	}
}

func (n *node) podRecords() []string {
	n.t.Helper()
	found, err := filepath.Glob(n.root + "/pods/*")
	n.must(err)
	return found
}

func (p testPod) refused(r *running, code codes.Code, text string) {
	p.t.Helper()
	err := p.answer(p.publish(r))
	if status.Code(err) != code || !strings.Contains(err.Error(), text) {
		p.t.Errorf("publishing to pod %s: %v, want code %s and %q", p.name, err, code, text)
	}
}

// usedBy waits until the intent names the pods that it waits for.
func (n *node) usedBy(i *volumesv1alpha1.VolumeAttachmentIntent, pods ...string) {
	n.t.Helper()
	n.intent(i, "waiting for pods", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		return c != nil && c.Reason == volumesv1alpha1.ReasonUsedByPods &&
			strings.HasSuffix(c.Message, ": "+strings.Join(pods, ", "))
	})
}

func (n *node) notCalled(call string) {
	n.t.Helper()
	if times, _ := n.driver.count(call); times > 0 {
		n.t.Errorf("driver of node %s: call %s, want none", n.name, call)
	}
}

func testPodBind(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.mounted(a, v)
	p.mounted(a, v)
	if records, mounts := n.podRecords(), len(n.kernel.mounted()); len(records) != 1 || mounts != 4 {
		t.Errorf("records %v and %d mounts, want 1 record and 4 mounts: stage, reference, publication, pod", records, mounts)
	}
	p.ended(a)
	p.ended(a) // the kubelet repeats its call when the answer was lost
	n.ready(i)
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testPodReadOnly(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	reader, writer := n.pod("reader", i), n.pod("writer", i)
	reader.readOnly = true
	reader.mounted(a, v)
	writer.mounted(a, v)
	for p, want := range map[*testPod]bool{&reader: true, &writer: false} {
		if e, _ := n.kernel.at(p.target()); e.ReadOnly() != want {
			t.Errorf("mount of pod %s is read-only: %t, want %t", p.name, e.ReadOnly(), want)
		}
	}
	reader.endedBeside(a)
	writer.ended(a)
}

func testPodReadOnlyIntent(t *testing.T, c *cluster) {
	n, v := c.node(t), testVolume{handle: "vol"}
	n.driver.writable = true
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data", readOnlyUse)
	path := n.ready(i).Status.Path
	p := n.pod("web", i)
	p.mounted(a, v)
	for _, at := range []string{path, p.target()} {
		if e, ok := n.kernel.at(at); !ok || !e.ReadOnly() {
			t.Errorf("mounted at %s is %+v, want volume %s read-only", at, e, v.handle)
		}
	}
	p.ended(a)
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

func testPodWaits(t *testing.T, c *cluster) {
	n, v, a := c.started(t)
	i := n.want(v, "data")
	p := n.pod("web", i)
	answer := p.publish(a)
	n.attach(v, "uid-1")
	if err := p.answer(answer); err != nil {
		t.Errorf("publishing to pod %s: %v, want no error", p.name, err)
	}
	n.ready(i)
}

func testPodWaitEnds(t *testing.T, c *cluster) {
	n, v, a := c.started(t)
	i := n.want(v, "data")
	p := n.pod("web", i)
	answer := p.publish(a)
	n.release(i)
	if err := p.answer(answer); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("publishing to pod %s: %v, want that the intent is being deleted", p.name, err)
	}
	p.nothing()
}

// testPodOfClaimWaitEnds asks again after the end of the intent, as a kubelet does for a pod that ends.
func testPodOfClaimWaitEnds(t *testing.T, c *cluster) {
	n, v, a := c.started(t)
	p := testPod{node: n, name: "web", attributes: map[string]string{volumesv1alpha1.AttributeClaim: "data"}}
	p.made()
	made := func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Name = volumesv1alpha1.InlineIntentName("web", "web-uid", "data")
		i.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: "web-uid"}
		i.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "web-uid",
			Controller: ptr.To(true)}}
		i.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}
	}
	i := n.want(v, "data", made)
	answer := p.publish(a)
	n.release(i)
	if err := p.answer(answer); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("publishing to pod %s: %v, want that the intent is being deleted", p.name, err)
	}
	n.unfinalize(i)
	p.refused(a, codes.FailedPrecondition, "deleted")
	p.nothing()

	again := n.want(v, "data", made) // somebody else had deleted it
	n.attach(v, "uid-1")
	n.ready(again)
	p.mounted(a, v)
	p.ended(a)
}

// testPodIntentAgain has the intent deleted, and created again for another volume, after the call has found what is
// published for it.
func testPodIntentAgain(t *testing.T, c *cluster) {
	for _, at := range []string{"before pod record", "after pod record"} {
		t.Run(at, func(t *testing.T) {
			n := c.node(t)
			earlier, later := testVolume{handle: "earlier"}, testVolume{handle: "later"}
			n.attach(earlier, "uid-1")
			n.attach(later, "uid-2")
			reached, proceed := make(chan struct{}), make(chan struct{})
			var once sync.Once
			n.drive = func(o *Options) {
				step := o.Step
				o.Step = func(name string) {
					if name == at {
						once.Do(func() { close(reached); <-proceed })
					}
					step(name)
				}
			}
			a := n.start()
			i := n.want(earlier, "data")
			n.ready(i)
			p := n.pod("web", i)
			answer := p.publish(a)
			<-reached
			n.release(i)
			if at == "before pod record" {
				n.intentGone(i, earlier)
				n.ready(n.want(later, "data"))
			} else {
				n.usedBy(i, "default/web") // it is not undone under the call
			}
			close(proceed)
			if err := p.answer(answer); err != nil {
				t.Fatalf("publishing to pod %s: %v, want no error", p.name, err)
			}
			want := later
			if at != "before pod record" {
				want = earlier
			}
			if e, ok := n.kernel.at(p.target()); !ok || e.Minor != minorOf(want.handle) {
				t.Errorf("at the target path of pod %s is %+v, want volume %s", p.name, e, want.handle)
			}
			p.ended(a)
		})
	}
}

func testPodHoldsIntent(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	first, second := n.pod("first", i), n.pod("second", i)
	first.mounted(a, v)
	second.mounted(a, v)
	n.release(i)
	n.usedBy(i, "default/first", "default/second")
	n.pod("third", i).refused(a, codes.FailedPrecondition, "is being deleted")
	first.mounted(a, v) // what a pod has, it keeps
	second.endedBeside(a)
	n.usedBy(i, "default/first")
	n.notCalled("unpublish vol")
	first.ended(a)
	n.gone(v)
	n.nothingLeft()
}

// endedBeside unpublishes while other pods have the volume.
func (p testPod) endedBeside(r *running) {
	p.t.Helper()
	if err := p.answer(p.unpublish(r)); err != nil {
		p.t.Fatalf("unpublishing pod %s: %v, want no error", p.name, err)
	}
}

func testPodHoldsChange(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.mounted(a, v)
	n.update(i, func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.ReadOnly = true })
	n.usedBy(i, "default/web")
	n.notCalled("unpublish vol")
	late := n.pod("late", i)
	answer := late.publish(a) // it is not to get what is on its way out
	p.endedBeside(a)
	if err := late.answer(answer); err != nil {
		t.Errorf("publishing to pod %s: %v, want no error", late.name, err)
	}
	n.ready(i)
	if e, ok := n.kernel.at(late.target()); !ok || !e.ReadOnly() {
		t.Errorf("mount of pod %s: %+v, want the read-only publication", late.name, e)
	}
	n.called("unpublish vol")
}

func testPodEndsAlone(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.mounted(a, v)
	a.kill()
	a = n.start()
	n.release(i)
	n.usedBy(i, "default/web")
	a.writes.setDown(true)
	p.ended(a)
	a.writes.setDown(false)
	n.gone(v)
	n.nothingLeft()
}

func testPodRecordLost(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.mounted(a, v)
	a.stop()
	n.must(os.RemoveAll(filepath.Join(n.root, "pods")))
	a = n.start()
	n.release(i)
	n.usedBy(i, "with UID web-uid")
	n.notCalled("unpublish vol")
	p.ended(a)
	n.gone(v)
	n.nothingLeft()
}

func testPodRecordStale(t *testing.T, c *cluster) {
	n, v := c.node(t), testVolume{handle: "vol"}
	n.attach(v, "uid-1")
	n.dieAt = "after pod record"
	a := n.start()
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.publish(a)
	<-a.dead
	n.dieAt = ""
	n.start()
	if records := n.podRecords(); len(records) > 0 {
		t.Errorf("records of pods %v, want none: nothing was mounted", records)
	}
	n.release(i)
	n.gone(v)
}

func testPodSingle(t *testing.T, c *cluster) {
	n, _, a := c.started(t)
	v := testVolume{handle: "single", change: func(e *volumesv1alpha1.NodeAttachment) {
		e.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}}
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	first, second := n.pod("first", i), n.pod("second", i)
	first.mounted(a, v)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+50*time.Millisecond) // the call ends 5 s before
	defer cancel()
	_, err := a.plugin.NodePublishVolume(ctx, second.request())
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "which is default/first") {
		t.Errorf("publishing to pod %s: %v, want that it waits for default/first", second.name, err)
	}
	answer := second.publish(a)
	first.endedBeside(a)
	if err := second.answer(answer); err != nil {
		t.Errorf("publishing to pod %s: %v, want no error", second.name, err)
	}
}

func testPodForcedAway(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.mounted(a, v)
	n.attach(v, "uid-2")
	n.state("shut down, and waiting for the pod", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return n.kernel.shutDown() == 1 && l != nil && l.InUse && l.AttachmentUID == "uid-1" && l.Error != nil &&
			l.Error.Code == volumesv1alpha1.ReasonUsedByPods
	})
	late := n.pod("late", i)
	answer := late.publish(a)
	n.notCalled("unstage vol")
	p.endedBeside(a)
	if err := late.answer(answer); err != nil {
		t.Errorf("publishing to pod %s: %v, want no error", late.name, err)
	}
	l := handshake.VolumeOf(n.state("in use again", func(s *volumesv1alpha1.NodeVolumeState) bool {
		l := handshake.VolumeOf(s, v.name())
		return l != nil && l.AttachmentUID == "uid-2"
	}), v.name())
	if times, _ := n.driver.count("stage vol"); times != 2 || !l.InUse {
		t.Errorf("volume %s: %d calls to stage, in use %t; want another stage for the next attachment", v.handle, times,
			l.InUse)
	}
}

func testPodForeignMount(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p, covered := n.pod("web", i), n.pod("covered", i)
	n.must(os.MkdirAll(p.target(), 0o750))
	n.kernel.mount(n.kernel.filesystemOf("foreign", "ext4", p.target()))
	p.refused(a, codes.FailedPrecondition, "another mount")
	covered.mounted(a, v)
	n.kernel.umount(covered.target())
	n.kernel.mount(n.kernel.filesystemOf("foreign", "ext4", covered.target()))
	if err := covered.answer(covered.unpublish(a)); err == nil {
		t.Errorf("unpublishing pod %s: no error, want one for the other mount", covered.name)
	}
	if e, ok := n.kernel.at(covered.target()); !ok || e.Minor != minorOf("foreign") {
		t.Errorf("at the target path of pod %s is %+v, want the other mount", covered.name, e)
	}
}

func testPodOccupied(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	file := filepath.Join(p.target(), "file")
	n.must(os.MkdirAll(p.target(), 0o750))
	n.must(os.WriteFile(file, []byte("kept"), 0o600))
	if err := p.answer(p.unpublish(a)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("unpublishing pod %s: %v, want a refusal to delete files", p.name, err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "kept" {
		t.Errorf("file at the target path: %q, error %v, want it kept", data, err)
	}
}

func testPodExplains(t *testing.T, c *cluster) {
	n, v, a := c.started(t)
	foreign := n.want(v, "foreign", func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.NodeName = "elsewhere" })
	n.pod("foreign", foreign).refused(a, codes.FailedPrecondition, "is for node elsewhere")
	missing := foreign.DeepCopy()
	missing.Name = "missing"
	n.pod("missing", missing).refused(a, codes.NotFound, "does not exist")
	staged := n.want(v, "staged", func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.DesiredState = volumesv1alpha1.DesiredStaged
	})
	n.pod("staged", staged).refused(a, codes.FailedPrecondition, "asks for desiredState Staged")
}

func testPodIsNoUseOfKubelet(t *testing.T, c *cluster) {
	n, v, a := c.attached(t)
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	p.mounted(a, v)
	part := filepath.Join(n.kubelet, "pods", "web-uid", "volume-subpaths", "data", "container", "0")
	n.must(os.MkdirAll(part, 0o750))
	e := n.kernel.filesystemOf(v.handle, "ext4", part)
	e.Root = "/part"
	n.kernel.mount(e)
	a.observer.ObserveSoon()
	fakeKubelet{n}.publish(testVolume{handle: "other"}, "other") // whose line shows that it was observed
	n.state("an observation", func(s *volumesv1alpha1.NodeVolumeState) bool {
		return handshake.VolumeOf(s, testVolume{handle: "other"}.name()) != nil
	})
	if u := a.observer.Use(v.name()); u != nil {
		t.Errorf("the kubelet's use of volume %s is %+v, want none: the pod has it from the agent", v.handle, u)
	}
}

func TestAnAgentKilledAtAnyStepOfAPodLosesNothingAndLeavesNothing(t *testing.T) {
	c := newCluster(t)
	steps, _ := c.podLife(t, "")
	if len(steps) < 7 {
		t.Fatalf("steps of a pod %v, want at least 7", steps)
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			if _, killed := c.podLife(t, step); !killed {
				t.Errorf("agent was not killed at step %q, want that it is", step)
			}
		})
	}
}

// podLife brings a volume into a pod and out of it on a node of its own; see node.podLife.
func (c *cluster) podLife(t *testing.T, killAt string) (steps []string, killed bool) {
	t.Helper()
	n := c.node(t)
	v := testVolume{handle: "vol"}
	steps, killed = n.podLife(v, killAt, func(target string) bool {
		e, ok := n.kernel.at(target)
		return ok && e.Minor == minorOf(v.handle)
	})
	n.nothingLeft()
	return steps, killed
}

// podLife brings a volume into a pod and out of it, with an agent that is killed at the step, and one that comes after.
// has reports whether the volume is at the target path. It returns the steps of the plugin.
func (n *node) podLife(v testVolume, killAt string, has func(target string) bool) (steps []string, killed bool) {
	n.t.Helper()
	n.attach(v, "uid-1")
	var passed []string
	drive := n.drive
	n.drive = func(o *Options) {
		if drive != nil {
			drive(o)
		}
		step := o.Step
		o.Step = func(name string) {
			if strings.Contains(name, "pod") || strings.Contains(name, "target") {
				passed = append(passed, name)
			}
			step(name)
		}
	}
	n.dieAt = killAt
	a := n.start()
	i := n.want(v, "data")
	n.ready(i)
	p := n.pod("web", i)
	again := func(call func(*running) <-chan error) {
		n.t.Helper()
		answer := call(a)
		select {
		case err := <-answer:
			if err != nil {
				n.t.Fatalf("call of pod %s: %v, want no error", p.name, err)
			}
			return
		case <-a.dead:
			killed = true
		}
		n.dieAt = ""
		a = n.start()
		if err := p.answer(call(a)); err != nil {
			n.t.Fatalf("call of pod %s after the agent was killed %s: %v, want no error", p.name, killAt, err)
		}
	}
	again(p.publish)
	if !has(p.target()) {
		n.t.Fatalf("target path of pod %s does not have volume %s, want it there", p.name, v.handle)
	}
	again(p.unpublish)
	if has(p.target()) {
		n.t.Errorf("target path of pod %s has volume %s, want it gone", p.name, v.handle)
	}
	p.nothing()
	n.release(i)
	n.gone(v)
	return slices.Clone(passed), killed
}
