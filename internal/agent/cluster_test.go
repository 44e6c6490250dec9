/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/test/apiserver"
)

// patience is how long a test waits for something that should come about at once.
const patience = 30 * time.Second

// cluster is an API server in which the test plays the cluster controller.
type cluster struct {
	cfg    *rest.Config
	client client.WithWatch
	serial atomic.Int64
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cfg, c := apiserver.Start(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.InstallNamespace}}); err != nil {
		t.Fatal(err)
	}
	return &cluster{cfg: cfg, client: c}
}

// node is one node of the cluster, with a kernel and a driver that outlive its agents.
type node struct {
	*cluster
	t        *testing.T
	name     string
	root     string
	kubelet  string
	boot     string
	kernel   *fakeNode
	driver   *fakeDriver
	registry *fakeRegistry
	timeout  time.Duration
	// drive changes an agent's options, for a node with a real kernel and driver.
	drive func(*Options)
}

func (c *cluster) node(t *testing.T) *node {
	t.Helper()
	k := newFakeNode()
	d := newFakeDriver(k)
	dir := t.TempDir()
	n := &node{
		cluster: c, t: t, name: fmt.Sprintf("node-%d", c.serial.Add(1)), root: filepath.Join(dir, "root"),
		kubelet: filepath.Join(dir, "kubelet"), boot: filepath.Join(dir, "boot_id"),
		kernel: k, driver: d, registry: newFakeRegistry(d), timeout: 5 * time.Second,
	}
	n.setBoot("boot-1")
	n.must(c.client.Create(t.Context(), &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	n.must(c.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}))
	return n
}

func (n *node) setBoot(id string) { n.must(os.WriteFile(n.boot, []byte(id+"\n"), 0o600)) }

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// running is an agent of the node.
type running struct {
	*Agent
	node   *node
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	writes *writes
	events *events.FakeRecorder
	// dead is closed when the agent was killed; all its requests fail from then on.
	dead     chan struct{}
	deadOnce sync.Once
	steps    atomic.Int64
	killAt   int64
	killedAt string
}

// writes counts an agent's requests that change something.
type writes struct {
	base http.RoundTripper
	dead <-chan struct{}
	mu   sync.Mutex
	made []string
	seen []string
	down bool
}

func (w *writes) isDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

// setDown lets every request fail but the watches that stand.
func (w *writes) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

func (w *writes) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.seen...)
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-w.dead:
		return nil, errors.New("the agent is dead")
	default:
	}
	if w.isDown() && !strings.Contains(r.URL.RawQuery, "watch=") {
		return nil, errors.New("connection refused")
	}
	w.mu.Lock()
	line := r.Method + " " + r.URL.Path
	w.seen = append(w.seen, line+"?"+r.URL.RawQuery)
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") && !strings.Contains(r.URL.Path, "/events") {
		w.made = append(w.made, line)
	}
	w.mu.Unlock()
	return w.base.RoundTrip(r)
}

func (w *writes) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.made...)
}

func (w *writes) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = nil
}

// start starts an agent and waits for its first report; killAt > 0 kills it at that step.
func (n *node) start() *running {
	n.t.Helper()
	r := n.launch(0)
	n.t.Cleanup(func() { r.stop() })
	r.await()
	return r
}

func (r *running) await() {
	r.node.t.Helper()
	select {
	case <-r.Started():
	case <-r.done:
		r.node.t.Fatalf("the agent ended: %v", r.err)
	case <-time.After(patience):
		r.node.t.Fatal("the agent did not start")
	}
}

func (n *node) launch(killAt int64) *running {
	n.t.Helper()
	r := &running{node: n, dead: make(chan struct{}), killAt: killAt, done: make(chan struct{}), events: events.NewFakeRecorder(10000)}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	cfg := rest.CopyConfig(n.cfg)
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper {
		if r.writes == nil {
			r.writes = &writes{base: base, dead: r.dead}
		}
		return r.writes
	})
	o := CacheOptions(n.name)
	o.Scheme = apiserver.Scheme()
	held, err := cache.New(cfg, o)
	n.must(err)
	live, err := client.New(cfg, client.Options{Scheme: apiserver.Scheme()})
	n.must(err)
	options := Options{
		NodeName: n.name, RootDir: n.root, KubeletDir: n.kubelet, Version: "test", BootIDFile: n.boot, DriverTimeout: n.timeout,
		Cache: held, Live: live, Registry: n.registry, Mounts: n.kernel, MountChanges: n.kernel.changes,
		Recorder: r.events, Log: logFor(n.t), Step: r.step,
	}
	if n.drive != nil {
		n.drive(&options)
	}
	r.Agent, err = New(options)
	n.must(err)
	go func() { _ = held.Start(ctx) }() // ends with ctx
	go func() {
		r.err = r.Start(ctx)
		close(r.done)
	}()
	return r
}

func logFor(t *testing.T) logr.Logger {
	if os.Getenv("AGENT_TEST_LOG") == "" {
		return logr.Discard()
	}
	return testr.New(t)
}

// step kills the agent at its turn: no request of it goes out any more and the goroutine goes no further.
func (r *running) step(name string) {
	select {
	case <-r.dead:
		select {} // for ever, as a dead process
	default:
	}
	if r.steps.Add(1) == r.killAt {
		r.killedAt = name
		r.kill()
		select {}
	}
}

// kill is kill -9: the lock is let go and nothing else is done.
func (r *running) kill() {
	r.deadOnce.Do(func() {
		close(r.dead)
		r.cancel()
		if r.Agent.lock != nil {
			r.node.must(r.Agent.lock.Close())
		}
	})
}

// stop is SIGTERM.
func (r *running) stop() {
	r.cancel()
	select {
	case <-r.dead:
	case <-r.done:
	case <-time.After(patience):
		r.node.t.Errorf("the agent did not end")
	}
}

// rest waits until the agent has nothing to do any more.
func (r *running) rest() {
	r.node.t.Helper()
	err := wait.PollUntilContextTimeout(r.node.t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		r.state.mu.Lock()
		defer r.state.mu.Unlock()
		return len(r.state.queue) == 0 && r.state.due.IsZero() && r.queue.queue.Len() == 0, nil
	})
	if err != nil {
		r.node.t.Error("the agent does not come to rest")
	}
}

// asks waits until the agent has asked for the node's state.
func (r *running) asks(name string) {
	r.node.t.Helper()
	err := wait.PollUntilContextTimeout(r.node.t.Context(), time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return slices.ContainsFunc(r.writes.all(), func(s string) bool {
			return strings.HasPrefix(s, "GET ") && strings.Contains(s, "/nodevolumestates/"+name)
		}), nil
	})
	if err != nil {
		r.node.t.Error("the agent did not ask")
	}
}

// recorded lists the events.
func (r *running) recorded() []string {
	var all []string
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// testVolume is one volume of the test.
type testVolume struct {
	handle string
	// driver is the fake one unless told.
	driver string
	mode   corev1.PersistentVolumeMode
	change func(*volumesv1alpha1.NodeAttachment)
}

func (v testVolume) name() string {
	if v.driver != "" {
		return "kubernetes.io/csi/" + v.driver + "^" + v.handle
	}
	return "kubernetes.io/csi/" + fakeDriverName + "^" + v.handle
}

func uidOf(s string) types.UID { return types.UID(s) }

// attach plays the controller: it writes the entry.
func (n *node) attach(v testVolume, uid types.UID) {
	n.t.Helper()
	capacity := resource.MustParse("1Gi")
	e := volumesv1alpha1.NodeAttachment{
		VolumeName: v.name(), AttachmentUID: uid, State: volumesv1alpha1.AttachmentAttached, Driver: fakeDriverName, VolumeHandle: v.handle,
		PersistentVolumeName: "pv-" + v.handle, VolumeMode: v.mode, FSType: "ext4", Capacity: &capacity,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MountOptions: []string{"noatime"},
	}
	if v.mode == "" {
		e.VolumeMode = corev1.PersistentVolumeFilesystem
	}
	if v.change != nil {
		v.change(&e)
	}
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) {
		if old := handshake.AttachmentOf(s, v.name()); old != nil {
			*old = e
			return
		}
		s.Spec.Attachments = append(s.Spec.Attachments, e)
	})
}

// changeEntry changes what the controller says of the volume.
func (n *node) changeEntry(v testVolume, f func(*volumesv1alpha1.NodeAttachment)) {
	n.t.Helper()
	n.changeState(func(s *volumesv1alpha1.NodeVolumeState) { f(handshake.AttachmentOf(s, v.name())) })
}

func (n *node) changeState(f func(*volumesv1alpha1.NodeVolumeState)) {
	n.t.Helper()
	for {
		s := &volumesv1alpha1.NodeVolumeState{}
		n.must(n.client.Get(n.t.Context(), types.NamespacedName{Name: n.name}, s))
		f(s)
		err := n.client.Update(n.t.Context(), s)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "the object has been modified") {
			n.t.Fatal(err)
		}
	}
}

// want creates an intent for the volume and plays the controller, which pins it.
func (n *node) want(v testVolume, name string, change ...func(*volumesv1alpha1.VolumeAttachmentIntent)) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	i := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n.name + "-" + name, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: n.name,
			Volume:   volumesv1alpha1.VolumeSource{PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "claim"}},
		},
	}
	for _, f := range change {
		f(i)
	}
	n.must(n.client.Create(n.t.Context(), i))
	n.pin(v, i)
	return i
}

func (n *node) pin(v testVolume, i *volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	i.Status.VolumeName, i.Status.UniqueVolumeName = "pv-"+v.handle, v.name()
	i.Status.ClaimUID, i.Status.VolumeUID = "claim", "volume"
	for _, c := range []string{volumesv1alpha1.ConditionResolved, volumesv1alpha1.ConditionAttached} {
		meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c, ObservedGeneration: i.Generation})
	}
	n.must(n.client.Status().Update(n.t.Context(), i))
}

// release deletes the intent; its finalizer stays until the test takes it off.
func (n *node) release(i *volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	n.must(n.client.Delete(n.t.Context(), i))
}

func (n *node) unfinalize(i *volumesv1alpha1.VolumeAttachmentIntent) {
	n.t.Helper()
	n.must(n.client.Patch(n.t.Context(), i, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// update changes the intent's spec.
func (n *node) update(i *volumesv1alpha1.VolumeAttachmentIntent, f func(*volumesv1alpha1.VolumeAttachmentIntent)) {
	n.t.Helper()
	for {
		n.must(n.client.Get(n.t.Context(), client.ObjectKeyFromObject(i), i))
		f(i)
		err := n.client.Update(n.t.Context(), i)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "the object has been modified") {
			n.t.Fatal(err)
		}
	}
}

// intent waits until the intent is as wanted.
func (n *node) intent(i *volumesv1alpha1.VolumeAttachmentIntent, what string, ok func(*volumesv1alpha1.VolumeAttachmentIntent) bool) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	o := n.await(&volumesv1alpha1.VolumeAttachmentIntentList{}, i.Namespace, i.Name, what, func(o client.Object) bool {
		return ok(o.(*volumesv1alpha1.VolumeAttachmentIntent))
	})
	return o.(*volumesv1alpha1.VolumeAttachmentIntent)
}

func (n *node) ready(i *volumesv1alpha1.VolumeAttachmentIntent) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	return n.intent(i, "Ready", func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionReady) && i.Status.ObservedGeneration == i.Generation
	})
}

// condition waits until a condition has the reason.
func (n *node) condition(i *volumesv1alpha1.VolumeAttachmentIntent, conditionType, reason string) *volumesv1alpha1.VolumeAttachmentIntent {
	n.t.Helper()
	return n.intent(i, conditionType+" "+reason, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, conditionType)
		return c != nil && c.Reason == reason
	})
}

// state waits until the node's state is as wanted.
func (n *node) state(what string, ok func(*volumesv1alpha1.NodeVolumeState) bool) *volumesv1alpha1.NodeVolumeState {
	n.t.Helper()
	o := n.await(&volumesv1alpha1.NodeVolumeStateList{}, "", n.name, what, func(o client.Object) bool {
		return ok(o.(*volumesv1alpha1.NodeVolumeState))
	})
	return o.(*volumesv1alpha1.NodeVolumeState)
}

// gone waits until the agent says nothing of the volume any more.
func (n *node) gone(v testVolume) {
	n.t.Helper()
	n.state(v.handle+" not in use", func(s *volumesv1alpha1.NodeVolumeState) bool { return handshake.VolumeOf(s, v.name()) == nil })
}

func (n *node) await(list client.ObjectList, namespace, name, what string, ok func(client.Object) bool) client.Object {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	var last client.Object
	if !n.reached(ctx, list, namespace, name, func(o client.Object) bool { last = o; return ok(o) }) {
		n.t.Fatalf("%s did not come about; last seen:\n%s\ncalls: %v", what, describe(last), n.driver.made())
	}
	return last
}

// reached watches the object until it is as wanted; false when ctx ends before.
func (n *node) reached(ctx context.Context, list client.ObjectList, namespace, name string, ok func(client.Object) bool) bool {
	for ctx.Err() == nil {
		w, err := n.client.Watch(ctx, list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if o, is := e.Object.(client.Object); is && e.Type != watch.Bookmark && ok(o) {
				w.Stop()
				return true
			}
		}
	}
	return false
}

// called waits until the driver was called so.
func (n *node) called(call string) {
	n.t.Helper()
	n.calledTimes(call, 1)
}

func (n *node) calledTimes(call string, times int) {
	n.t.Helper()
	deadline := time.After(patience)
	for {
		got, more := n.driver.count(call)
		if got >= times {
			return
		}
		select {
		case <-more:
		case <-deadline:
			n.t.Fatalf("no %s (%d times); calls: %v", call, times, n.driver.made())
		}
	}
}

func describe(o client.Object) string {
	switch o := o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		return fmt.Sprintf("%+v\nlastError: %+v", o.Status, o.Status.LastError)
	case *volumesv1alpha1.NodeVolumeState:
		return fmt.Sprintf("%+v\n%+v", o.Spec, o.Status)
	}
	return "nothing"
}

func clientKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
