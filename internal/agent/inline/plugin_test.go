/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// noMounts is a node on which nothing is ever mounted.
type noMounts struct{ Mounts }

func (noMounts) Table() (*mount.Table, error) { return mount.NewTable(nil), nil }

func (noMounts) Unmount(context.Context, string) error { return nil }

func (noMounts) RemoveMountPoint(context.Context, string) error { return nil }

// intents of a node.
type intents struct {
	cached, live *volumesv1alpha1.VolumeAttachmentIntent
	pod          *corev1.Pod
	// unreadable is why the pod cannot be read.
	unreadable error
	// deviceless: no volume has a device of its own.
	deviceless bool
	// published for the intent; nil while nothing is.
	published *Publication
}

func (i intents) Cached(context.Context, types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	return i.cached, nil
}

func (i intents) Live(_ context.Context, key types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	if i.live == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return i.live, nil
}

func (i intents) Published(*volumesv1alpha1.VolumeAttachmentIntent) (*Publication, error) {
	return i.published, nil
}

func (intents) InNamespace(context.Context, string) ([]*volumesv1alpha1.VolumeAttachmentIntent, error) {
	return nil, nil
}

func (intents) ForcedAway(record.PodBind) bool { return false }

func (i intents) OwnDevice(record.PodBind) bool { return !i.deviceless }

func (i intents) Pod(_ context.Context, pod record.PodReference) (*corev1.Pod, error) {
	if i.pod != nil || i.unreadable != nil {
		return i.pod, i.unreadable
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, pod.Name)
}

// node is a plugin on a node of its own.
type node struct {
	*Plugin
	events *events.FakeRecorder
}

func newNode(t *testing.T, i intents) node {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	n := node{events: events.NewFakeRecorder(10)}
	n.Plugin = New(Options{
		NodeName: "node-a", Version: "v1", Paths: record.Paths{Root: dir, Kubelet: dir}, Mounts: noMounts{},
		Pods:    record.NewPodBinds(record.PodBindStore{Dir: filepath.Join(dir, "binds"), Replace: record.ReplaceFile}),
		Intents: i, Changes: NewChanges(clock.RealClock{}), Recorder: n.events, Clock: clock.RealClock{}, Log: logr.Discard(),
		Released: func(string) {}, Enqueue: func(Place) {}, Held: func(Place, *mount.HeldError) {}, Step: func(string) {},
	})
	return n
}

// ask sends the request of a pod of this node.
func (n node) ask(ctx context.Context, attributes map[string]string) error {
	r := asked(attributes)
	r.TargetPath = strings.Replace(r.TargetPath, "/var/lib/kubelet", n.Paths.Kubelet, 1)
	_, err := n.NodePublishVolume(ctx, r)
	return err
}

func intentWith(change func(*volumesv1alpha1.VolumeAttachmentIntent)) *volumesv1alpha1.VolumeAttachmentIntent {
	i := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec:       volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node-a"},
	}
	if change != nil {
		change(i)
	}
	return i
}

// ownedBy makes the intent one that the manager created for a pod's claim.
func ownedBy(uid types.UID, claim string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		controller := true
		i.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: uid,
			Controller: &controller}}
		i.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: string(uid)}
		i.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}
	}
}

func TestAnIntentThatAPodNeverGetsIsRefusedWithTheReason(t *testing.T) {
	byName, byClaim := map[string]string{"intent": "data"}, map[string]string{"claim": "data"}
	for name, c := range map[string]struct {
		attributes map[string]string
		intents    intents
		code       codes.Code
		want       string
	}{
		"one that does not exist": {byName, intents{}, codes.NotFound, "VolumeAttachmentIntent shop/data does not exist"},
		"one of another node": {byName, intents{live: intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.NodeName = "node-b"
		})}, codes.FailedPrecondition, "is for node node-b, and this pod is on node node-a"},
		"one that is being deleted": {byName, intents{cached: intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		})}, codes.FailedPrecondition, "is being deleted"},
		"one that the kubelet publishes": {byName, intents{cached: intentWith(
			func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.Publisher = volumesv1alpha1.PublisherKubelet },
		)}, codes.FailedPrecondition, "has publisher Kubelet"},
		"one that asks for less": {byName, intents{cached: intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Spec.DesiredState = volumesv1alpha1.DesiredStaged
		})}, codes.FailedPrecondition, "asks for desiredState Staged"},
		"a raw block device": {byName, intents{cached: intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) {
			i.Status.VolumeMode = corev1.PersistentVolumeBlock
		})}, codes.FailedPrecondition, "is a raw block device"},
		"one of a pod, by its name": {byName, intents{cached: intentWith(ownedBy("uid-1", "data"))},
			codes.FailedPrecondition, "belongs to the pod with UID uid-1"},
		"for a claim, one of another pod": {byClaim, intents{cached: intentWith(ownedBy("uid-2", "data"))},
			codes.FailedPrecondition, "was not created by Hawser for this pod"},
		"for a claim, one of another claim": {byClaim, intents{cached: intentWith(ownedBy("uid-1", "other"))},
			codes.FailedPrecondition, "was not created by Hawser for this pod"},
		"for a claim, one that a user made": {byClaim, intents{cached: intentWith(nil)},
			codes.FailedPrecondition, "was not created by Hawser for this pod"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newNode(t, c.intents).ask(t.Context(), c.attributes)
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s with %q", err, c.code, c.want)
			}
		})
	}
}

func TestACallThatWaitsReportsItOnceOnThePodAndEndsBeforeTheKubeletGivesUp(t *testing.T) {
	waiting := intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionFalse,
			Reason: volumesv1alpha1.ReasonVolumeInUse, Message: "held by node node-b"}}
	})
	for name, c := range map[string]struct {
		attributes map[string]string
		intents    intents
		want       string
		ends       time.Duration
	}{
		"an intent that is not Ready": {map[string]string{"intent": "data"}, intents{cached: waiting},
			"waiting for VolumeAttachmentIntent shop/data: VolumeInUseElsewhere: held by node node-b",
			time.Minute - answerBefore},
		"a claim whose intent is not there yet": {map[string]string{"claim": "data"}, intents{},
			"for claim data", longestUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in which time passes while all goroutines wait
				n := newNode(t, c.intents)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				answer := make(chan error, 1)
				go func() { answer <- n.ask(ctx, c.attributes) }()
				note := <-n.events.Events
				if late := time.Since(began); late != reportWaitAfter || !strings.Contains(note, c.want) ||
					!strings.Contains(note, "Warning "+ReasonWaitingForIntent) {
					t.Errorf("event %q after %s, want reason %s and %q after %s", note, late, ReasonWaitingForIntent, c.want,
						reportWaitAfter)
				}
				err := <-answer
				if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), c.want) {
					t.Errorf("answer %v, want DeadlineExceeded with %q", err, c.want)
				}
				if took := time.Since(began); took != c.ends {
					t.Errorf("answer after %s, want it after %s, before the kubelet's minute is over", took, c.ends)
				}
				if left := len(n.events.Events); left > 0 {
					t.Errorf("%d more events, want a single one for a call", left)
				}
			})
		})
	}
}

func TestACallThatWaitsEndsForAPodThatIsBeingDeleted(t *testing.T) {
	now := metav1.Now()
	pod := func(uid types.UID, deleted *metav1.Time) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid,
			DeletionTimestamp: deleted}}
	}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		code   codes.Code
		ends   time.Duration
		events int
	}{
		"the pod is being deleted":           {pod("uid-1", &now), codes.Aborted, reportWaitAfter, 0},
		"the pod stays":                      {pod("uid-1", nil), codes.DeadlineExceeded, time.Minute - answerBefore, 1},
		"another pod of the name is deleted": {pod("uid-2", &now), codes.DeadlineExceeded, time.Minute - answerBefore, 1},
		"the pod is not found":               {nil, codes.DeadlineExceeded, time.Minute - answerBefore, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in which time passes while all goroutines wait
				n := newNode(t, intents{cached: intentWith(nil), pod: c.pod})
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := n.ask(ctx, map[string]string{"intent": "data"})
				if took := time.Since(began); status.Code(err) != c.code || took != c.ends {
					t.Errorf("answer %v after %s, want %s after %s", err, took, c.code, c.ends)
				}
				if events := len(n.events.Events); events != c.events {
					t.Errorf("%d events on the pod, want %d", events, c.events)
				}
			})
		})
	}
}

func TestTheIntentOfAClaimThatWasDeletedIsNotWaitedForUntilItIsThereAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, intents{})
		key := types.NamespacedName{Namespace: "shop", Name: volumesv1alpha1.InlineIntentName("web", "uid-1", "data")}
		ask := func() (took time.Duration, answer error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			answer = n.ask(ctx, map[string]string{"claim": "data"})
			return time.Since(began), answer
		}
		n.Changes.Exists(key, true)
		n.Changes.Exists(key, false)
		if took, err := ask(); status.Code(err) != codes.FailedPrecondition || took != 0 ||
			!strings.Contains(err.Error(), "was deleted") {
			t.Errorf("answer %v after %s, want at once that the intent was deleted", err, took)
		}
		n.Changes.Exists(key, true)
		if took, err := ask(); status.Code(err) != codes.DeadlineExceeded || took != longestUnseen {
			t.Errorf("answer %v after %s, want a wait of %s for the intent that was created again", err, took, longestUnseen)
		}
		n.Changes.Exists(key, false)
		<-time.After(rememberEnd + time.Second) // of the time in this test
		n.Changes.Exists(types.NamespacedName{Name: "another"}, false)
		if n.Changes.hasEnded(key) {
			t.Errorf("the end of %s is remembered after %s, want it forgotten", key, rememberEnd)
		}
	})
}

func TestACallThatTheKubeletCancelsEndsAtOnce(t *testing.T) {
	n := newNode(t, intents{cached: intentWith(nil)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.ask(ctx, map[string]string{"intent": "data"}); status.Code(err) != codes.Canceled {
		t.Errorf("answer %v, want Canceled", err)
	}
}

// serve serves until the test ends, or until stop is called.
func (n node) serve(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v, want no error", err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func TestThePluginReplacesTheSocketsOfAKilledAgentAndTakesItsOwnAway(t *testing.T) {
	n := newNode(t, intents{})
	for _, socket := range []string{n.socket(), n.registrationSocket()} {
		if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(socket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop := n.serve(t)
	info, err := registration.NewRegistrationClient(dial(t, n.registrationSocket())).GetInfo(t.Context(),
		&registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetName() != volumesv1alpha1.InlineDriver || info.GetEndpoint() != n.socket() ||
		info.GetType() != registration.CSIPlugin {
		t.Errorf("registration %v, error %v; want the CSI plugin %s at %s", info, err, volumesv1alpha1.InlineDriver,
			n.socket())
	}
	stop()
	for _, socket := range []string{n.socket(), n.registrationSocket()} {
		if _, err := os.Lstat(socket); !os.IsNotExist(err) {
			t.Errorf("socket %s: error %v, want that it is gone with its agent", socket, err)
		}
	}
}

// withMount is a node with one mount.
type withMount struct {
	noMounts
	mount.Entry
}

func (m withMount) Table() (*mount.Table, error) { return mount.NewTable([]mount.Entry{m.Entry}), nil }

func TestARepeatedCallIsAnsweredByTheMountNotByTheRecord(t *testing.T) {
	for name, c := range map[string]struct {
		minor   int
		pod     types.UID
		refused bool
	}{"the volume": {1, "uid-1", false}, "another mount": {2, "uid-1", true}, "that of another pod": {1, "uid-0", true}} {
		n := newNode(t, intents{cached: intentWith(nil)})
		if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
			t.Fatal(err)
		}
		target := strings.Replace(podTarget, "/var/lib/kubelet", n.Paths.Kubelet, 1)
		bind := record.PodBind{Target: target, Pod: record.PodReference{UID: c.pod}, Source: "7:1/",
			Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "data"}}
		if err := n.Pods.Add(bind, false); err != nil {
			t.Fatal(err)
		}
		n.Mounts = withMount{Entry: mount.Entry{ID: 1, Path: target, Root: "/", Major: 7, Minor: c.minor}}
		err := n.ask(t.Context(), map[string]string{"intent": "data"})
		if (status.Code(err) == codes.FailedPrecondition) != c.refused || !c.refused && err != nil {
			t.Errorf("repeated call with %s at the target: error %v, want that it is refused: %t", name, err, c.refused)
		}
	}
}

func TestARepeatedCallNeedsNoIntent(t *testing.T) { // as with requiresRepublish in the CSIDriver
	n := newNode(t, intents{})
	if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
		t.Fatal(err)
	}
	target := strings.Replace(podTarget, "/var/lib/kubelet", n.Paths.Kubelet, 1)
	bind := record.PodBind{Target: target, Pod: record.PodReference{UID: "uid-1"}, Source: "7:1/",
		Intent: volumesv1alpha1.IntentReference{Namespace: "shop", Name: "data"}}
	if err := n.Pods.Add(bind, false); err != nil {
		t.Fatal(err)
	}
	n.Mounts = withMount{Entry: mount.Entry{ID: 1, Path: target, Root: "/", Major: 7, Minor: 1}}
	if err := n.ask(t.Context(), map[string]string{"intent": "data"}); err != nil {
		t.Errorf("call for a volume that the pod has, after its intent has gone: error %v, want none", err)
	}
}

// stuck is a node with one mount that cannot be unmounted.
type stuck struct{ withMount }

func (stuck) Unmount(context.Context, string) error { return errBusy }

func TestTheRecordOfAPodStaysWhileItsVolumeIsMounted(t *testing.T) {
	n := newNode(t, intents{})
	if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
		t.Fatal(err)
	}
	target := strings.Replace(podTarget, "/var/lib/kubelet", n.Paths.Kubelet, 1)
	bind := record.PodBind{Target: target, Pod: record.PodReference{UID: "uid-1"}, VolumeName: "vol", Source: "7:1/"}
	if err := n.Pods.Add(bind, false); err != nil {
		t.Fatal(err)
	}
	n.Released = func(volume string) { t.Errorf("volume %s is released while it is mounted", volume) }
	for minor, busy := range map[int]bool{1: true, 2: false} { // what is of another volume is not unmounted at all
		n.Mounts = stuck{withMount{Entry: mount.Entry{ID: 1, Path: target, Root: "/", Major: 7, Minor: minor}}}
		err := n.unpublish(t.Context(), target)
		if _, recorded := n.Pods.Get(target); err == nil || errors.Is(err, errBusy) != busy || !recorded {
			t.Errorf("unpublishing where 7:%d stays mounted: error %v, recorded %t; want one and the record, tried: %t", minor,
				err, recorded, busy)
		}
	}
}

func TestWhatAnEarlierPodHasIsNotTakenForThePods(t *testing.T) {
	n := newNode(t, intents{})
	if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
		t.Fatal(err)
	}
	target := strings.Replace(podTarget, "/var/lib/kubelet", n.Paths.Kubelet, 1)
	bind := record.PodBind{Target: target, Directory: target, VolumeName: "vol", Selector: "app=db",
		Pod: record.PodReference{Namespace: "shop", Name: "web", UID: "uid-0"}}
	if err := n.Pods.Add(bind, false); err != nil {
		t.Fatal(err)
	}
	directory := mount.Entry{ID: 1, Path: target, Root: "/", FSType: "tmpfs", Source: "volumes.hawser.io"}
	n.Mounts = withMount{Entry: directory}
	for uid, same := range map[types.UID]bool{"uid-0": true, "uid-1": false} {
		r := request{target: target, selector: labels.SelectorFromSet(labels.Set{"app": "db"}), pod: bind.Pod}
		r.pod.UID = uid
		if there, err := (directories{n.Plugin}).there(r); there != same || (err == nil) != same {
			t.Errorf("directory of pod uid-0 for pod %s: there %t, error %v; want it there: %t", uid, there, err, same)
		}
		if used := (&wait{Plugin: n.Plugin, request: r}).usedByAnother("vol"); used == same {
			t.Errorf("volume of pod uid-0 is used by another than pod %s: %t, want %t", uid, used, !same)
		}
	}
}

// going is a node with one mount that is gone once it is opened.
type going struct {
	withMount
	opened *bool
}

func (g going) OpenMount(context.Context, string) (*os.File, error) {
	*g.opened = true
	return os.Open(os.DevNull)
}

func (g going) Table() (*mount.Table, error) {
	if *g.opened {
		return mount.NewTable(nil), nil
	}
	return g.withMount.Table()
}

func TestAPublicationThatGoesAsItIsOpenedIsNotBound(t *testing.T) {
	n, opened := newNode(t, intents{}), false
	n.Mounts = going{withMount{Entry: mount.Entry{ID: 1, Path: "/published", Root: "/", Major: 7, Minor: 1}}, &opened}
	if file, err := n.open(t.Context(), "/published", "7:1/"); !errors.Is(err, errGone) {
		t.Errorf("publication that is gone once it is opened: file %v, error %v; want %v", file, err, errGone)
	}
}

// leaving is a node with one mount that goes between its open and its bind.
type leaving struct {
	withMount
	gone *bool
}

func (l leaving) OpenMount(context.Context, string) (*os.File, error) { return os.Open(os.DevNull) }

func (l leaving) EnsureDir(context.Context, string, os.FileMode) error { return nil }

func (l leaving) BindFile(context.Context, *os.File, string, bool, []string) error {
	*l.gone = true
	return syscall.EINVAL
}

func (l leaving) Table() (*mount.Table, error) {
	if *l.gone {
		return mount.NewTable(nil), nil
	}
	return l.withMount.Table()
}

func TestAPublicationThatGoesBeforeItsBindIsWaitedFor(t *testing.T) {
	n, gone := newNode(t, intents{}), false
	n.Mounts = leaving{withMount{Entry: mount.Entry{ID: 1, Path: "/published", Root: "/", Major: 7, Minor: 1}}, &gone}
	err := n.mount(t.Context(), record.PodBind{Target: "/target", Source: "7:1/"}, "/published")
	if !errors.Is(err, errGone) {
		t.Errorf("bind of a publication that is gone by then: error %v, want %v, after which the pod waits", err, errGone)
	}
}
