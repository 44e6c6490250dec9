/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

func TestADirectoryShowsWhatIsSelectedAndTakesAwayOnlyWhatIsKnownToGo(t *testing.T) {
	db := labels.SelectorFromSet(labels.Set{"app": "db"})
	labelled := func(value string) *volumesv1alpha1.VolumeAttachmentIntent {
		return intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Labels = map[string]string{"app": value} })
	}
	deleted := labelled("db")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	ofPod := labelled("db")
	ownedBy("uid-2", "data")(ofPod)
	ofPod.Labels["app"] = "db"
	published, bind := &Publication{AttachmentUID: "uid-1"}, &record.PodBind{AttachmentUID: "uid-1"}
	for name, c := range map[string]struct {
		facts placeFacts
		want  act
	}{
		"published and selected":       {placeFacts{selector: db, intent: labelled("db"), published: published}, show},
		"selected, not yet published":  {placeFacts{selector: db, intent: labelled("db")}, leave},
		"published under other labels": {placeFacts{selector: db, intent: labelled("web"), published: published}, leave},
		"published for a pod's claim":  {placeFacts{selector: db, intent: ofPod, published: published}, leave},
		"no intent":                    {placeFacts{selector: db}, leave},
		"shown, as it is to be": {placeFacts{selector: db, intent: labelled("db"), published: published, bind: bind,
			mounted: true}, leave},
		"shown, and not published for the moment": {placeFacts{selector: db, intent: labelled("db"), bind: bind,
			mounted: true}, leave},
		"shown, and its intent is not there": {placeFacts{selector: db, bind: bind, mounted: true}, leave},
		"shown by a directory whose record was lost": {placeFacts{intent: labelled("web"), bind: bind, mounted: true},
			leave},
		"shown and relabelled": {placeFacts{selector: db, intent: labelled("web"), published: published, bind: bind,
			mounted: true}, takeAway},
		"shown and deleted": {placeFacts{selector: db, intent: deleted, bind: bind, mounted: true}, takeAway},
		"shown, of an earlier attachment": {placeFacts{selector: db, intent: labelled("db"),
			published: &Publication{AttachmentUID: "uid-2"}, bind: bind, mounted: true}, takeAway},
		"shown and forced away": {placeFacts{selector: db, intent: labelled("db"), bind: bind, mounted: true,
			forcedAway: true}, takeAway},
		"recorded, selected, and nothing is mounted": {placeFacts{selector: db, intent: labelled("db"),
			published: published, bind: bind}, show},
		"recorded, not selected any more, and nothing is mounted": {placeFacts{selector: db, intent: labelled("web"),
			published: published, bind: bind}, takeAway},
		"recorded, of an earlier attachment, and nothing is mounted": {placeFacts{selector: db, intent: labelled("db"),
			published: &Publication{AttachmentUID: "uid-2"}, bind: bind}, takeAway},
		"recorded, forced away, and nothing is mounted": {placeFacts{selector: db, intent: labelled("db"),
			published: published, bind: bind, forcedAway: true}, takeAway},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(c.facts); got != c.want {
				t.Errorf("place of an intent that is %s: %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestADirectoryIsRefusedWhereItCannotBeUsed(t *testing.T) {
	receives := corev1.VolumeMount{Name: "disks", MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)}
	with := func(mount corev1.VolumeMount, change func(*corev1.PodSpec)) *corev1.Pod {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
			VolumeMounts: []corev1.VolumeMount{{Name: "other", SubPath: "part"}, mount}}}}}
		if change != nil {
			change(&pod.Spec)
		}
		return pod
	}
	group := func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](1)} }
	users := func(hosts bool) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.HostUsers = ptr.To(hosts) }
	}
	reader := receives
	reader.ReadOnly = true
	part, expr, deaf, none := receives, receives, receives, receives
	part.SubPath, expr.SubPathExpr = "db", "$(NAME)"
	deaf.MountPropagation, none.MountPropagation = nil, ptr.To(corev1.MountPropagationNone)
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		readOnly bool
		problem  string
		deaf     []string
	}{
		"that receives mounts":                {with(receives, nil), false, "", nil},
		"that receives none":                  {with(deaf, nil), false, "", []string{"main"}},
		"that mounts it read-only":            {with(reader, nil), false, "with readOnly", nil},
		"that mounts it read-only, and it is": {with(reader, nil), true, "", nil},
		"that asks for none":                  {with(none, nil), false, "", []string{"main"}},
		"with a sub path":                     {with(part, nil), false, "subPath", nil},
		"with a sub path from its name":       {with(expr, nil), false, "subPath", nil},
		"with users of its own":               {with(receives, users(false)), true, "hostUsers", nil},
		"with the users of its host":          {with(receives, users(true)), false, "", nil},
		"with a group for all files":          {with(receives, group), false, "fsGroup", nil},
		"with a group, and it reads only":     {with(receives, group), true, "", nil},
		"whose init container has no part": {with(receives, func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init"}}
		}), false, "", nil},
		"whose init container is deaf": {with(receives, func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init", VolumeMounts: []corev1.VolumeMount{deaf, deaf}}}
		}), false, "", []string{"init"}},
		"with a sub path for debugging": {with(receives, func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", VolumeMounts: []corev1.VolumeMount{part}}}}
		}), false, "container debug", nil},
	} {
		t.Run(name, func(t *testing.T) {
			problem, deaf := examine(c.pod, "disks", c.readOnly)
			if (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) || !slices.Equal(deaf, c.deaf) {
				t.Errorf("pod %s: problem %q, deaf containers %v; want %q, %v", name, problem, deaf, c.problem, c.deaf)
			}
		})
	}
}

func TestTheKernelsAnswerCountsForAPodWhoseMountsItReachesAll(t *testing.T) {
	mounts := func(propagation *corev1.MountPropagationMode) []corev1.VolumeMount {
		return []corev1.VolumeMount{{Name: "disks", MountPath: "/disks/", MountPropagation: propagation}}
	}
	receives := mounts(ptr.To(corev1.MountPropagationHostToContainer))
	adds := func(names ...corev1.Capability) *corev1.SecurityContext {
		return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names}}
	}
	privileged := &corev1.SecurityContext{Privileged: ptr.To(true)}
	mounting := func(all ...corev1.VolumeMount) corev1.Container { return corev1.Container{VolumeMounts: all} }
	secured := func(c *corev1.SecurityContext) corev1.Container { return corev1.Container{SecurityContext: c} }
	besides := func(path string) corev1.Container {
		return mounting(append(slices.Clone(receives), corev1.VolumeMount{Name: "other", MountPath: path})...)
	}
	ending := func(path string) corev1.Container {
		return corev1.Container{VolumeMounts: receives, TerminationMessagePath: path}
	}
	for name, c := range map[string]struct {
		container corev1.Container
		because   string
	}{
		"receives mounts":                 {mounting(receives...), ""},
		"sends mounts":                    {mounting(mounts(ptr.To(corev1.MountPropagationBidirectional))...), ""},
		"does not mount the volume":       {mounting(corev1.VolumeMount{Name: "other"}), ""},
		"asks for no propagation":         {mounting(mounts(ptr.To(corev1.MountPropagationNone))...), "without"},
		"says nothing of propagation":     {mounting(mounts(nil)...), "without"},
		"mounts it twice, once without":   {mounting(append(slices.Clone(receives), mounts(nil)...)...), "without"},
		"is privileged and has no volume": {secured(privileged), "may mount"},
		"is privileged": {corev1.Container{SecurityContext: privileged,
			VolumeMounts: receives}, "may mount"},
		"is not privileged":       {secured(&corev1.SecurityContext{Privileged: ptr.To(false)}), ""},
		"adds SYS_ADMIN":          {secured(adds("NET_ADMIN", "SYS_ADMIN")), "may mount"},
		"adds CAP_SYS_ADMIN":      {secured(adds("CAP_SYS_ADMIN")), "may mount"},
		"adds cap_sys_admin":      {secured(adds("cap_sys_admin")), "may mount"},
		"adds all":                {secured(adds("all")), "may mount"},
		"adds CAP_ALL":            {secured(adds("CAP_ALL")), "may mount"},
		"adds another capability": {secured(adds("SYS_PTRACE")), ""},
		"drops capabilities": {secured(&corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}), ""},
		"has another volume in it":     {besides("/disks/db/cache"), "/disks/db/cache"},
		"has another volume beside it": {besides("/disks2"), ""},
		"has it in another volume":     {besides("/"), ""},
		"has a device in it": {corev1.Container{VolumeMounts: receives,
			VolumeDevices: []corev1.VolumeDevice{{DevicePath: "/disks/db/raw"}}}, "/disks/db/raw"},
		"has its termination message in it":  {ending("/disks/db/../db/log"), "/log"},
		"has its termination message beside": {ending("/dev/termination-log"), ""},
	} {
		c.container.Name = "it"
		main := corev1.Container{Name: "main", VolumeMounts: receives}
		for kind, spec := range map[string]corev1.PodSpec{
			"an init container": {InitContainers: []corev1.Container{c.container}, Containers: []corev1.Container{main}},
			"a container":       {Containers: []corev1.Container{main, c.container}},
			"a debug container": {Containers: []corev1.Container{main}, EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c.container)}}},
		} {
			t.Run(kind+" that "+name, func(t *testing.T) {
				got := unreached(&corev1.Pod{Spec: spec}, "disks")
				if (got == "") != (c.because == "") || !strings.Contains(got, c.because) ||
					got != "" && !strings.Contains(got, "container it") {
					t.Errorf("pod with %s that %s: not reached because %q, want %q", kind, name, got, c.because)
				}
			})
		}
	}
}

func TestASandboxIsRecognizedByItsOverheadOrItsName(t *testing.T) {
	overhead := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("130Mi")}
	for name, c := range map[string]struct {
		spec      corev1.PodSpec
		sandboxed bool
	}{
		"no class":                       {corev1.PodSpec{}, false},
		"a class of plain containers":    {corev1.PodSpec{RuntimeClassName: ptr.To("nvidia")}, false},
		"a class with an overhead":       {corev1.PodSpec{RuntimeClassName: ptr.To("micro-vm"), Overhead: overhead}, true},
		"gVisor's class without any":     {corev1.PodSpec{RuntimeClassName: ptr.To("gvisor")}, true},
		"a class of gVisor's runsc":      {corev1.PodSpec{RuntimeClassName: ptr.To("runsc-kvm")}, true},
		"one of Kata Containers without": {corev1.PodSpec{RuntimeClassName: ptr.To("kata-qemu")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: c.spec}
			if got := sandboxed(pod); got != c.sandboxed {
				t.Errorf("pod with %s: sandboxed %t, want %t", name, got, c.sandboxed)
			}
			if because := unreached(pod, "disks"); (because != "") != c.sandboxed {
				t.Errorf("pod with %s: not reached because %q, want sandboxes only", name, because)
			}
		})
	}
}

// clearing notes which places are cleared, and is free of mounts otherwise.
type clearing struct {
	noMounts
	cleared *int
}

func (c clearing) ClearPlace(context.Context, mount.Place) error {
	*c.cleared++
	return nil
}

func TestAVolumeIsTakenAwayOnlyWhereTheKernelsAnswerCounts(t *testing.T) {
	receiver := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid-pod"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "disks", MountPath: "/disks",
					MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)}}}}}}
		if change != nil {
			change(pod)
		}
		return pod
	}
	deaf := receiver(func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPropagation = nil })
	boxed := receiver(func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("kata") })
	web, another := record.PodReference{Name: "web", UID: "uid-pod"}, record.PodReference{Name: "web", UID: "uid-other"}
	unnamed := record.PodReference{UID: "uid-pod"}
	for name, c := range map[string]struct {
		intents intents
		pod     record.PodReference
		// waits: until the end of the pod, because of this.
		waits, fails string
	}{
		"the pod receives mounts":           {intents{pod: receiver(nil)}, web, "", ""},
		"the pod is in a sandbox":           {intents{pod: boxed}, web, "runtime class kata runs the pod in a sandbox", ""},
		"the pod receives none":             {intents{pod: deaf}, web, "without mountPropagation", ""},
		"the volume has no device":          {intents{pod: receiver(nil), deviceless: true}, web, "no block device", ""},
		"the pod is gone from the API":      {intents{}, web, "gone from the API", ""},
		"another pod has the name":          {intents{pod: receiver(nil)}, another, "gone from the API", ""},
		"the pod is known by its UID alone": {intents{pod: receiver(nil)}, unnamed, "lost the record", ""},
		"the API server does not answer":    {intents{unreadable: errors.New("down")}, web, "", "down"},
	} {
		t.Run(name, func(t *testing.T) {
			n, cleared := newNode(t, c.intents), 0
			n.Mounts = clearing{cleared: &cleared}
			if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
				t.Fatal(err)
			}
			directory := record.PodBind{Target: "/pods/uid/disks/mount", Directory: "/pods/uid/disks/mount", Pod: c.pod}
			bind := record.PodBind{Target: "/pods/uid/disks/mount/db", Directory: directory.Target, Source: "7:1/",
				Pod: record.PodReference{UID: c.pod.UID}}
			if err := errors.Join(n.Pods.Add(directory, false), n.Pods.Add(bind, false)); err != nil {
				t.Fatal(err)
			}
			err := n.clear(t.Context(), bind)
			var wait *failure.Problem
			errors.As(err, &wait)
			_, recorded := n.Pods.Get(bind.Target)
			switch kept := c.waits != "" || c.fails != ""; {
			case recorded != kept || (cleared == 0) != kept:
				t.Errorf("place is recorded %t, cleared %d times; want that it is kept: %t", recorded, cleared, kept)
			case c.waits != "" && (wait == nil || !wait.AwaitsEvent || !strings.Contains(wait.Message, c.waits)):
				t.Errorf("clearing where %s: error %v, want a wait because of %q", name, err, c.waits)
			case c.waits == "" && (wait != nil || (err == nil) != (c.fails == "")):
				t.Errorf("clearing where %s: error %v, want %q and no wait", name, err, c.fails)
			}
		})
	}
}

// publishing is a node with a publication, which shows what is bound at places.
type publishing struct {
	noMounts
	bound *[]mount.Entry
}

// publishingAt is a node with one publication, mounted with that minor number.
func publishingAt(minor int) publishing {
	return publishing{bound: &[]mount.Entry{{ID: 1, Path: "/published", Root: "/", Major: 7, Minor: minor}}}
}

func (p publishing) Table() (*mount.Table, error) { return mount.NewTable(slices.Clone(*p.bound)), nil }

func (publishing) OpenMount(context.Context, string) (*os.File, error) { return os.Open(os.DevNull) }

func (publishing) MakePlace(context.Context, string, string) error { return nil }

func (p publishing) BindAlone(_ context.Context, _ *os.File, target string, _ bool) error {
	e := (*p.bound)[0]
	e.ID, e.Path = len(*p.bound)+1, target
	*p.bound = append(*p.bound, e)
	return nil
}

// directoryOf records the directory of a pod of the namespace shop. It is for the intents with the label app=db.
func (n node) directoryOf(t *testing.T, pod string, uid types.UID) record.PodBind {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
		t.Fatal(err)
	}
	target := "/pods/" + string(uid) + "/disks/mount"
	b := record.PodBind{Target: target, Directory: target, Selector: "app=db",
		Pod: record.PodReference{Namespace: "shop", Name: pod, UID: uid}}
	if err := n.Pods.Add(b, false); err != nil {
		t.Fatal(err)
	}
	return b
}

// selected is a node with an intent that the directories select, and that is published with source 7:1.
func selected(t *testing.T, pod *corev1.Pod, unreadable error) (node, publishing) {
	t.Helper()
	n := newNode(t, intents{pod: pod, unreadable: unreadable,
		cached: intentWith(func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Labels = map[string]string{"app": "db"} }),
		published: &Publication{VolumeName: "vol", AttachmentUID: "attachment", Path: "/published", Source: "7:1/",
			SinglePod: true}})
	mounts := publishingAt(1)
	n.Mounts = mounts
	return n, mounts
}

func podWith(uid types.UID) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }

func TestADirectoryShowsNothingNewToAPodThatIsGone(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		pod        *corev1.Pod
		unreadable error
		shown      bool
	}{
		"the pod exists":                 {pod: podWith("uid-1"), shown: true},
		"the pod is gone":                {},
		"another pod has its name":       {pod: podWith("uid-2")},
		"the API server does not answer": {unreadable: down},
	} {
		for before, recorded := range map[string]bool{"nothing was shown": false, "its mount was lost": true} {
			t.Run(name+" and "+before, func(t *testing.T) {
				n, mounts := selected(t, c.pod, c.unreadable)
				var logged []string
				n.Log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
				place := Place{Directory: n.directoryOf(t, "web", "uid-1").Target, Intent: "data"}
				if recorded {
					if err := n.Pods.Add(record.PodBind{Target: place.target(), Directory: place.Directory, VolumeName: "vol",
						AttachmentUID: "attachment", Source: "7:1/", Pod: record.PodReference{UID: "uid-1"}}, false); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 { // each change of the intent has it reconciled
					if _, err := n.ReconcilePlace(t.Context(), place); !errors.Is(err, c.unreadable) {
						t.Errorf("reconcile where %s: error %v, want %v", name, err, c.unreadable)
					}
				}
				if shown := len(*mounts.bound) > 1; shown != c.shown {
					t.Errorf("mounts where %s: %+v, want the volume in the directory: %t", name, *mounts.bound, c.shown)
				}
				if _, found := n.Pods.Get(place.target()); found != (c.shown || recorded) {
					t.Errorf("record of a bind where %s: %t, want one only if it is shown or was", name, found)
				}
				because := slices.DeleteFunc(logged, func(line string) bool { return !strings.Contains(line, "is gone") })
				if gone := !c.shown && c.unreadable == nil; (len(because) == 1) != gone || len(n.events.Events) > 0 {
					t.Errorf("where %s: logged %q and %d events, want one line if the pod is gone, and no event", name, logged,
						len(n.events.Events))
				}
			})
		}
	}
}

func TestAVolumeForASinglePodGoesToThePodThatExists(t *testing.T) {
	n, _ := selected(t, podWith("uid-2"), nil)
	gone, there := n.directoryOf(t, "web", "uid-1"), n.directoryOf(t, "web", "uid-2")
	for _, directory := range []record.PodBind{gone, there} {
		if _, err := n.ReconcilePlace(t.Context(), Place{Directory: directory.Target, Intent: "data"}); err != nil {
			t.Fatal(err)
		}
	}
	if found := n.Pods.OfVolume("vol"); len(found) != 1 || found[0].Directory != there.Target {
		t.Errorf("binds of the volume: %+v, want one, in the directory of the pod that exists", found)
	}
}

func TestAVolumeThatComesBackUnderAnotherNumberIsShownAgain(t *testing.T) {
	n, mounts := selected(t, podWith("uid-1"), nil)
	place := Place{Directory: n.directoryOf(t, "web", "uid-1").Target, Intent: "data"}
	lost := record.PodBind{Target: place.target(), Directory: place.Directory, VolumeName: "vol",
		AttachmentUID: "attachment", Source: "0:57/part", Whole: "0:57/", ReadOnly: true,
		Pod: record.PodReference{Namespace: "shop", Name: "web", UID: "uid-1"}}
	if err := n.Pods.Add(lost, false); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ReconcilePlace(t.Context(), place); err != nil {
		t.Fatal(err)
	}
	if e, mounted := mount.NewTable(*mounts.bound).At(place.target()); !mounted || record.SourceOf(e) != "7:1/" {
		t.Errorf("at the place of a volume that is 7:1 now and was 0:57: %+v, want the volume", e)
	}
	want := lost
	want.Source, want.Whole = "7:1/", ""
	if b, _ := n.Pods.Get(place.target()); b != want {
		t.Errorf("record of the bind %+v, want %+v", b, want)
	}
}

// late is a node on which something is mounted at the path from the second look on, and cannot be unmounted.
type late struct {
	noMounts
	path  string
	looks *int
}

func (l late) Table() (*mount.Table, error) {
	*l.looks++
	if *l.looks == 1 {
		return mount.NewTable(nil), nil
	}
	return mount.NewTable([]mount.Entry{{ID: 1, Path: l.path, Root: "/", Major: 7, Minor: 1}}), nil
}

var errBusy = errors.New("busy")

func (late) Unmount(context.Context, string) error { return errBusy }

func TestThePlaceOfAnEndingPodThatStaysMountedKeepsItsRecord(t *testing.T) {
	n, looks := newNode(t, intents{}), 0
	if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
		t.Fatal(err)
	}
	bind := record.PodBind{Target: "/pods/directory/db", Directory: "/pods/directory", VolumeName: "vol", Source: "7:1/"}
	if err := n.Pods.Add(bind, false); err != nil {
		t.Fatal(err)
	}
	n.Mounts = late{path: bind.Target, looks: &looks}
	n.Released = func(volume string) { t.Errorf("volume %s is released while it is mounted", volume) }
	err := directories{n.Plugin}.end(t.Context(), bind.Directory)
	if _, recorded := n.Pods.Get(bind.Target); !errors.Is(err, errBusy) || !recorded {
		t.Errorf("end of a pod with a place that stays mounted: error %v, recorded %t; want %v and the record", err,
			recorded, errBusy)
	}
}

// pending is a node on which a call at every path goes on, so that nothing is mounted there yet.
type pending struct{ noMounts }

func (pending) Unmount(context.Context, string) error { return &mount.PendingError{} }

func TestARecordStaysWhileAnEarlierCallMayMakeItsMount(t *testing.T) {
	pod := record.PodReference{UID: "uid-1"}
	for name, b := range map[string]record.PodBind{
		"a volume of a pod": {Target: "/pods/volume", VolumeName: "vol", Source: "7:1/", Pod: pod},
		"a directory":       {Target: "/pods/directory", Directory: "/pods/directory", Selector: "app=db", Pod: pod},
		"a volume in a directory": {Target: "/pods/directory/db", Directory: "/pods/directory", VolumeName: "vol",
			Source: "7:1/", Pod: pod},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, intents{})
			if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := n.Pods.Add(b, false); err != nil {
				t.Fatal(err)
			}
			n.Mounts, n.Released = pending{}, func(volume string) { t.Errorf("volume %s is released", volume) }
			target := b.Target
			end := n.unpublish
			if b.HasPlace() {
				target, end = b.Directory, directories{n.Plugin}.end
			}
			err := end(t.Context(), target)
			var goesOn *mount.PendingError
			if _, recorded := n.Pods.Get(b.Target); !errors.As(err, &goesOn) || !recorded {
				t.Errorf("end of %s beside a call that goes on: error %v, recorded %t; want its error and the record", name, err,
					recorded)
			}
		})
	}
}

func TestWithADirectoryItIsForgottenWhatWasNotShownInIt(t *testing.T) {
	n, dir := newNode(t, intents{}), filepath.Join(t.TempDir(), "directory")
	for _, place := range []string{dir, dir + "/db", dir + "-2/db"} {
		n.holds.news(place, "another pod has the volume")
	}
	if err := (directories{n.Plugin}).end(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, other := n.holds.at[dir+"-2/db"]; len(n.holds.at) != 1 || !other {
		t.Errorf("places that are remembered after the end of directory %s: %v, want that of another directory alone", dir,
			slices.Collect(maps.Keys(n.holds.at)))
	}
}

func TestTheMirrorOfAStaticPodIsThePod(t *testing.T) {
	wanted := record.PodReference{UID: "hash"}
	mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{
		corev1.MirrorPodAnnotationKey: "hash"}}}
	for pod, want := range map[*corev1.Pod]bool{mirror: true, {ObjectMeta: metav1.ObjectMeta{UID: "hash"}}: true,
		{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}: false} {
		if got := isPod(pod, wanted); got != want {
			t.Errorf("pod %+v is the one with UID hash: %t, want %t", pod.ObjectMeta, got, want)
		}
	}
}

// slowIntents answers no question about an intent before it is released.
type slowIntents struct {
	intents
	asked, released chan struct{}
}

func (i slowIntents) Cached(context.Context, types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error) {
	close(i.asked)
	<-i.released
	return nil, errors.New("not known")
}

func TestThePluginServesUntilThePlacesThatACallBeganAreReconciled(t *testing.T) {
	n, slow := newNode(t, intents{}), slowIntents{asked: make(chan struct{}), released: make(chan struct{})}
	var enqueued atomic.Bool
	n.Intents, n.Enqueue = slow, func(Place) { enqueued.Store(true) }
	if err := os.MkdirAll(filepath.Join(n.Paths.Root, "binds"), 0o700); err != nil {
		t.Fatal(err)
	}
	directory := record.PodBind{Target: "/pods/directory", Directory: "/pods/directory", Selector: "app=web"}
	if err := n.Pods.Add(directory, false); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	conn := dial(t, n.socket())
	if _, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	call, cancel := context.WithCancel(t.Context())
	cancel()
	directories{n.Plugin}.showFirst(call, []Place{{Directory: directory.Target, Intent: "data"}})
	<-slow.asked
	end()
	conn.WaitForStateChange(t.Context(), connectivity.Ready) // the server stops
	close(slow.released)
	if err := <-ended; err != nil || !enqueued.Load() {
		t.Errorf("Serve returned %v, the reconcile has ended: %t; want that Serve waits for it", err, enqueued.Load())
	}
}
