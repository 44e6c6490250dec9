/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/plan/plantest"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
)

// bench has one volume and an agent that does nothing by itself: tests have it carry out one act after another, and let
// anything fail.
type bench struct {
	t      testing.TB
	agent  *Agent
	volume *operation.Volume
	of     testVolume

	kernel *fakeNode
	driver *fakeDriver
	clock  *clocktesting.FakeClock

	mu sync.Mutex
	// state is what the API server has.
	state *volumesv1alpha1.NodeVolumeState
	// intents, node and secrets are what it has beside that.
	intents []*volumesv1alpha1.VolumeAttachmentIntent
	node    *corev1.Node
	secrets map[string]*corev1.Secret
	// known are the intents as the agent's cache has them, where that is not the same.
	known []*volumesv1alpha1.VolumeAttachmentIntent
	// kubelet's use of the volume, as the agent saw it last.
	kubelet *kubelet.TrackedUse

	// asked are the operations so far, in order: calls to the driver, the kernel, the disk and the API server.
	asked []string
	// failing is the number of the operation that fails, and failures what each operation of a name does.
	failing  int
	failures map[string]error
	// after is called once an operation was carried out.
	after map[string]func()
	// onDisk is the record on the disk when each driver call was made, inUse what the API said then.
	onDisk map[string]*record.Record
	inUse  map[string]bool
	uptime time.Duration
	// perms of the directories that were asked for, owned who the files were given to.
	perms map[string]fs.FileMode
	owned []string
	// steps that were passed.
	steps []string
	// opened is what OpenBeneath returned last.
	opened *os.File
}

var errInjected = errors.New("the test has it fail")

func newBench(t testing.TB, v testVolume) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{
		t:        t,
		of:       v,
		kernel:   newFakeNode(),
		clock:    clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		secrets:  map[string]*corev1.Secret{},
		failures: map[string]error{},
		after:    map[string]func(){},
		onDisk:   map[string]*record.Record{},
		inUse:    map[string]bool{},
		uptime:   time.Hour,
		perms:    map[string]fs.FileMode{},
	}
	b.driver = newFakeDriver(b.kernel)
	b.driver.before = b.called
	b.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	b.state = &volumesv1alpha1.NodeVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "state", ResourceVersion: "1", Generation: 1},
	}
	b.state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{b.newEntry()}
	b.state.Spec.Protocol.ConfirmedSession, b.state.Status.Protocol.Session, b.state.Status.Protocol.Reports = 1, 1, 1
	b.must(os.WriteFile(filepath.Join(dir, "boot_id"), []byte("boot\n"), 0o600))
	a, err := New(Options{
		NodeName:      "node",
		Version:       "v1",
		RootDir:       filepath.Join(dir, "root"),
		KubeletDir:    filepath.Join(dir, "kubelet"),
		BootIDFile:    filepath.Join(dir, "boot_id"),
		DriverTimeout: time.Minute,
		Live:          benchReader{bench: b},
		Registry:      newFakeRegistry(b.driver),
		Mounts:        benchMounts{b.kernel, b},
		Recorder:      events.NewFakeRecorder(100),
		Log:           logr.Discard(),
		Clock:         b.clock,
		Uptime:        func() time.Duration { return b.uptime },
		Step:          func(name string) { b.steps = append(b.steps, name) },
	})
	b.must(err)
	b.agent = a
	a.liveFor(t.Context())
	store, err := record.OpenStore(a.paths.Records())
	b.must(err)
	a.useStore(store)
	a.store.Replace = func(path string, data []byte) error {
		return b.do("write "+filepath.Base(filepath.Dir(path)), func() error { return os.WriteFile(path, data, 0o600) })
	}
	a.state.Read, a.state.Write = b.readState, b.writeState
	a.state.Assume(b.state, record.LastReport{Schema: record.Schema, UID: "state", Reports: 1})
	done := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	go func() { defer close(done); a.state.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	b.volume = a.volume(v.name())
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) newEntry() volumesv1alpha1.NodeAttachment {
	capacity := resource.MustParse("1Gi")
	e := volumesv1alpha1.NodeAttachment{
		VolumeName: b.of.name(), AttachmentUID: "uid-1", State: volumesv1alpha1.AttachmentAttached, Driver: fakeDriverName,
		VolumeHandle: b.of.handle, PersistentVolumeName: "pv-" + b.of.handle, VolumeMode: corev1.PersistentVolumeFilesystem,
		FSType: "ext4", Capacity: &capacity, MountOptions: []string{"noatime"},
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
		VolumeAttributes: map[string]string{"attribute": "1"}, PublishContext: map[string]string{"context": "2"},
	}
	if b.of.mode != "" {
		e.VolumeMode = b.of.mode
	}
	if b.of.change != nil {
		b.of.change(&e)
	}
	return e
}

// entry changes what the manager says of the volume.
func (b *bench) entry(change func(*volumesv1alpha1.NodeAttachment)) {
	change(&b.state.Spec.Attachments[0])
	b.agent.state.Amend(func(s *volumesv1alpha1.NodeVolumeState) { change(&s.Spec.Attachments[0]) })
}

// want has an intent want the volume.
func (b *bench) want(uid types.UID,
	change ...func(*volumesv1alpha1.VolumeAttachmentIntent)) *volumesv1alpha1.VolumeAttachmentIntent {
	i := plantest.Intent(uid)
	i.Status.UniqueVolumeName, i.Status.VolumeName = b.of.name(), "pv-"+b.of.handle
	for _, f := range change {
		f(i)
	}
	b.intents = append(b.intents, i)
	return i
}

// facts are gathered as the agent does, without its cache.
func (b *bench) facts() plan.Facts {
	b.t.Helper()
	nvs := b.agent.state.Newest()
	f := plan.Facts{
		Name:    b.volume.Name,
		Paths:   b.agent.paths,
		Now:     b.agent.now(),
		Record:  b.volume.Record,
		Unsaved: b.volume.Unsaved,
		Entry:   handshake.AttachmentOf(nvs, b.volume.Name),
		Node:    handshake.NodeOf(nvs, b.volume.Name),
		Kubelet: b.kubelet,
		Intents: b.intents,
	}
	if b.known != nil {
		f.Intents = b.known
	}
	f.Complete()
	table, err := b.kernel.Table()
	b.must(err)
	f.Compare(table)
	if f.Record != nil && f.Record.Block() {
		if f.DeviceNodes, err = b.kernel.DeviceNodes(f.Paths.GlobalMap(f.Record.VolumeSource())); len(f.DeviceNodes) > 0 {
			f.Reference = record.Present
		}
		b.must(err)
	}
	return f
}

// act has the agent do one thing, and returns how it ended.
func (b *bench) act(verb plan.Kind) error {
	b.t.Helper()
	next := plan.Step{Kind: verb}
	if len(b.intents) > 0 {
		next.Intent = b.intents[0].UID
	}
	return b.agent.steps.Run(b.t.Context(), b.volume, b.facts(), next)
}

// done is act, which has to succeed.
func (b *bench) done(verbs ...plan.Kind) {
	b.t.Helper()
	for _, v := range verbs {
		if err := b.act(v); err != nil {
			b.t.Fatalf("%s of volume %s: error %v, want success", v, b.volume.Name, err)
		}
	}
}

// stage brings the volume as far as its stage.
func (b *bench) stage() {
	b.t.Helper()
	if b.of.mode == corev1.PersistentVolumeBlock {
		b.done(plan.MarkInUse, plan.Reference, plan.Stage)
	} else {
		b.done(plan.MarkInUse, plan.Stage, plan.Reference)
	}
}

// refused checks that the act fails for the reason, and is not about to be tried for another one.
func (b *bench) refused(err error, reason string) {
	b.t.Helper()
	var p *failure.Problem
	if !errors.As(err, &p) {
		b.t.Errorf("volume %s: error %v, want a problem with the reason %s", b.volume.Name, err, reason)
	} else if p.Reason != reason {
		b.t.Errorf("volume %s: reason %s of error %v, want %s", b.volume.Name, p.Reason, err, reason)
	}
}

// record as it is on the disk; nil for none.
func (b *bench) disk() *record.Record {
	b.t.Helper()
	data, err := os.ReadFile(b.agent.store.Path(b.volume.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	b.must(err)
	r := &record.Record{}
	b.must(json.Unmarshal(data, r))
	return r
}

// api is what the API server has of the volume's line; nil for none.
func (b *bench) api() *volumesv1alpha1.NodeVolume {
	b.mu.Lock()
	defer b.mu.Unlock()
	return handshake.VolumeOf(b.state, b.volume.Name).DeepCopy()
}

// do carries out an operation, unless it is to fail.
func (b *bench) do(name string, f func() error) error {
	b.mu.Lock()
	b.asked = append(b.asked, name)
	err := b.failures[name]
	if len(b.asked) == b.failing {
		err = errInjected
	}
	after := b.after[name]
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if f != nil {
		err = f()
	}
	if after != nil {
		after()
	}
	return err
}

// has counts the operations of a name.
func (b *bench) has(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, a := range b.asked {
		if a == name {
			n++
		}
	}
	return n
}

func (b *bench) operations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.asked...)
}

// called is what the driver is asked first.
func (b *bench) called(method, _ string) error {
	b.onDisk[method] = b.disk()
	line := b.api()
	b.inUse[method] = line != nil && line.InUse && line.AttachmentUID == "uid-1"
	return b.do(method, nil)
}

func (b *bench) readState(context.Context) (*volumesv1alpha1.NodeVolumeState, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.DeepCopy(), nil
}

func (b *bench) writeState(_ context.Context, nvs *volumesv1alpha1.NodeVolumeState) error {
	return b.do("report", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		version, err := strconv.Atoi(b.state.ResourceVersion)
		if err != nil {
			return err
		}
		nvs.ResourceVersion = strconv.Itoa(version + 1)
		b.state = nvs.DeepCopy()
		return nil
	})
}

// benchReader is the API server as the agent reads it, live.
type benchReader struct {
	client.Client
	bench *bench
}

func (r benchReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	b := r.bench
	missing := apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	switch o := o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		return b.do("get intent", func() error {
			for _, i := range b.intents {
				if client.ObjectKeyFromObject(i) == key {
					i.DeepCopyInto(o)
					return nil
				}
			}
			return missing
		})
	case *volumesv1alpha1.NodeVolumeState:
		return b.do("get state", func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.state.DeepCopyInto(o)
			return nil
		})
	case *corev1.Node:
		return b.do("get node", func() error {
			if b.node == nil || b.node.Name != key.Name {
				return missing
			}
			b.node.DeepCopyInto(o)
			return nil
		})
	case *corev1.Secret:
		return b.do("get secret", func() error {
			s := b.secrets[key.String()]
			if s == nil {
				return missing
			}
			s.DeepCopyInto(o)
			return nil
		})
	case *coordinationv1.Lease:
		return b.do("get lease", func() error { return missing })
	}
	b.t.Errorf("the agent reads a %T, want only what the API server of the test has", o)
	return missing
}

// benchMounts is the kernel. Each call to it may fail.
type benchMounts struct {
	*fakeNode
	bench *bench
}

func (m benchMounts) Table() (table *mount.Table, err error) {
	err = m.bench.do("Table", func() error { table, err = m.fakeNode.Table(); return err })
	return table, err
}

func (m benchMounts) TableWithin(time.Duration) (*mount.Table, error) { return m.Table() }

func (m benchMounts) At(path string) (*mount.Table, mount.Entry, bool, error) {
	return lookUp(m.Table, path)
}

func (m benchMounts) Busy(path string) (mount.Call, bool) {
	_, busy := m.bench.failures["Busy "+path]
	return mount.Call{}, busy
}

func (m benchMounts) Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	return m.bench.do("Bind", func() error { return m.fakeNode.Bind(ctx, source, target, readOnly, options) })
}

func (m benchMounts) BindFile(ctx context.Context, source *os.File, target string, readOnly bool,
	options []string) error {
	return m.bench.do("BindFile", func() error { return m.fakeNode.BindFile(ctx, source, target, readOnly, options) })
}

func (m benchMounts) OpenBeneath(ctx context.Context, root, subPath string) (f *os.File, err error) {
	err = m.bench.do("OpenBeneath", func() error { f, err = m.fakeNode.OpenBeneath(ctx, root, subPath); return err })
	m.bench.opened = f
	return f, err
}

func (m benchMounts) Unmount(ctx context.Context, path string) error {
	return m.bench.do("Unmount", func() error { return m.fakeNode.Unmount(ctx, path) })
}

func (m benchMounts) EnsureDir(ctx context.Context, path string, perm fs.FileMode) error {
	m.bench.perms[path] = perm
	return m.bench.do("EnsureDir", func() error { return m.fakeNode.EnsureDir(ctx, path, perm) })
}

func (m benchMounts) EnsureFile(ctx context.Context, path string, perm fs.FileMode) error {
	return m.bench.do("EnsureFile", func() error { return m.fakeNode.EnsureFile(ctx, path, perm) })
}

func (m benchMounts) RemoveMountPoint(ctx context.Context, path string) error {
	name := "RemoveMountPoint"
	if !strings.HasPrefix(path, m.bench.agent.paths.Root) {
		name = "RemoveMountPoint of the kubelet"
	}
	return m.bench.do(name, func() error { return m.fakeNode.RemoveMountPoint(ctx, path) })
}

func (m benchMounts) SetDeviceNodes(ctx context.Context, dir string, names []string) error {
	return m.bench.do("SetDeviceNodes", func() error { return m.fakeNode.SetDeviceNodes(ctx, dir, names) })
}

func (m benchMounts) DeviceOf(ctx context.Context, path string) (d mount.Device, err error) {
	err = m.bench.do("DeviceOf", func() error { d, err = m.fakeNode.DeviceOf(ctx, path); return err })
	return d, err
}

func (m benchMounts) DeviceNode(ctx context.Context, path string) (d mount.Device, err error) {
	err = m.bench.do("DeviceNode", func() error { d, err = m.fakeNode.DeviceNode(ctx, path); return err })
	return d, err
}

func (m benchMounts) DeviceUnder(e mount.Entry) (d mount.Device, err error) {
	err = m.bench.do("DeviceUnder", func() error {
		d = mount.Device{Major: uint32(e.Major), Minor: uint32(e.Minor), Path: e.Source}
		return nil
	})
	return d, err
}

func (m benchMounts) CheckFree(context.Context, mount.Device, bool) error {
	return m.bench.do("CheckFree", nil)
}

func (m benchMounts) CheckReadable(context.Context, mount.Device) error {
	return m.bench.do("CheckReadable", nil)
}

func (m benchMounts) ReadOnly(context.Context, mount.Device) (bool, error) {
	return false, m.bench.do("ReadOnly", nil)
}

func (m benchMounts) SetReadOnly(context.Context, mount.Device, bool) error {
	return m.bench.do("SetReadOnly", nil)
}

func (m benchMounts) ShutdownFilesystem(ctx context.Context, path string, still func() error, within ...string) error {
	return m.bench.do("ShutdownFilesystem", func() error {
		return m.fakeNode.ShutdownFilesystem(ctx, path, still, within...)
	})
}

func (m benchMounts) SetOwnership(ctx context.Context, root string, group int64, policy corev1.PodFSGroupChangePolicy,
	progress func(int)) error {
	m.bench.owned = append(m.bench.owned, fmt.Sprintf("%d %s", group, policy))
	return m.bench.do("SetOwnership", func() error { return m.fakeNode.SetOwnership(ctx, root, group, policy, progress) })
}
