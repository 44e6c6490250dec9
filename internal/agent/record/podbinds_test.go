/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

var shopData = volumesv1alpha1.IntentReference{Namespace: "shop", Name: "data", UID: "1"}

func newBinds(t *testing.T) (*PodBinds, PodBindStore) {
	t.Helper()
	store := PodBindStore{Dir: filepath.Join(t.TempDir(), "pods"), Replace: ReplaceFile}
	binds := NewPodBinds(store)
	if broken, err := binds.Recover(mount.NewTable(nil)); err != nil || len(broken) > 0 {
		t.Fatalf("recovering from an empty directory: %v, error %v; want nothing", broken, err)
	}
	return binds, store
}

func bindOf(pod string) PodBind {
	return PodBind{Target: "/pods/" + pod, Pod: PodReference{Namespace: "shop", Name: pod, UID: types.UID("uid-" + pod)},
		Intent: shopData, VolumeName: "v", Source: "7:0/"}
}

func TestThatThereAreDirectoriesIsReported(t *testing.T) {
	binds, _ := newBinds(t)
	var reported []int
	binds.DirectoriesChanged = func() { reported = append(reported, binds.CountDirectories()) }
	directory := func(pod string) PodBind {
		return PodBind{Target: "/pods/" + pod, Directory: "/pods/" + pod}
	}
	place := PodBind{Target: "/pods/one/data", Directory: "/pods/one", VolumeName: "v"}
	for _, b := range []PodBind{bindOf("web"), directory("one"), directory("other"), directory("one"), place} {
		if err := binds.Add(b, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := binds.CountDirectories(); n != 2 {
		t.Errorf("%d directories, want 2: neither a pod's volume nor a place is one", n)
	}
	for _, target := range []string{"/pods/one", place.Target, "/pods/other", "/pods/other"} {
		if err := binds.Remove(target); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{1, 0}; !slices.Equal(reported, want) {
		t.Errorf("reported numbers of directories %v, want %v", reported, want)
	}
	binds.store.Replace = func(string, []byte) error { return errors.New("no space left on device") }
	if err := binds.Add(directory("unrecorded"), false); err == nil {
		t.Error("adding a directory that cannot be recorded: no error, want one")
	}
	if want := []int{1, 0, 1, 0}; !slices.Equal(reported, want) {
		t.Errorf("reported numbers of directories %v, want %v", reported, want)
	}
}

func TestAPodAndTheEndOfItsPublicationDoNotCross(t *testing.T) {
	binds, _ := newBinds(t)
	end, ok := binds.BeginUndo("v", shopData)
	if !ok {
		t.Fatal("a publication without pods is not undone, want that it is")
	}
	if err := binds.Add(bindOf("web"), false); !errors.Is(err, ErrUnpublishing) {
		t.Errorf("adding a pod while the publication is undone: error %v, want %v", err, ErrUnpublishing)
	}
	end()
	if err := binds.Add(bindOf("web"), false); err != nil {
		t.Errorf("adding a pod afterwards: error %v, want none", err)
	}
	recreated := shopData
	recreated.UID = "2"
	if _, ok := binds.BeginUndo("v", recreated); ok {
		t.Error("a publication with a pod is undone under another UID, want that it stays")
	}
	if _, ok := binds.BeginUndo("other", shopData); !ok {
		t.Error("the publication of another volume is not undone, want that it is")
	}
	if err := binds.Remove("/pods/web"); err != nil {
		t.Fatal(err)
	}
	if _, ok := binds.BeginUndo("v", shopData); !ok {
		t.Error("a publication whose pod has ended is not undone, want that it is")
	}
}

func TestAVolumeForASinglePodTakesNoSecond(t *testing.T) {
	binds, _ := newBinds(t)
	first, second := bindOf("first"), bindOf("second")
	first.Pod.UID, second.Pod.UID = "1", "2"
	twice := first
	twice.Target = "/pods/first-again"
	for _, c := range []struct {
		bind PodBind
		want error
	}{{first, nil}, {twice, nil}, {second, ErrOtherPod}} {
		if err := binds.Add(c.bind, true); !errors.Is(err, c.want) {
			t.Errorf("adding %s: error %v, want %v", c.bind.Target, err, c.want)
		}
	}
}

func TestTheDirectoriesOfOneNamespaceShowALimitedNumberOfVolumes(t *testing.T) {
	binds, _ := newBinds(t)
	place := func(namespace, pod string, k int) PodBind {
		b := bindOf(pod)
		b.Pod.Namespace, b.Intent.Namespace, b.Intent.Name = namespace, namespace, fmt.Sprint(k)
		b.Directory = "/pods/" + namespace + pod
		b.Target = fmt.Sprintf("%s/%d", b.Directory, k)
		return b
	}
	for k := range volumesv1alpha1.MaxNamespacePlaces {
		binds.binds[fmt.Sprint(k)] = place("crowd", "first", k)
	}
	refused := place("crowd", "second", 1)
	if err := binds.Add(refused, false); !errors.Is(err, ErrTooManyPlaces) {
		t.Errorf("one volume more than the limit: error %v, want %v", err, ErrTooManyPlaces)
	}
	whole := bindOf("third")
	whole.Pod.Namespace = "crowd"
	for what, b := range map[string]PodBind{
		"a volume in a directory of another namespace": place("victim", "web", 1),
		"the volume of a pod, which is no place":       whole,
	} {
		if err := binds.Add(b, false); err != nil {
			t.Errorf("%s: error %v, want none", what, err)
		}
	}
	delete(binds.binds, "0")
	if err := binds.Add(refused, false); err != nil {
		t.Errorf("the same one after another one has gone: error %v, want none", err)
	}
}

func TestRecordsOfPodsSurviveIfTheirTargetIsMounted(t *testing.T) {
	binds, store := newBinds(t)
	for _, pod := range []string{"mounted", "gone"} {
		if err := binds.Add(bindOf(pod), false); err != nil {
			t.Fatal(err)
		}
	}
	unreadable, unfinished := filepath.Join(store.Dir, "broken.json"), filepath.Join(store.Dir, tempPrefix+"1")
	for _, path := range []string{unreadable, unfinished} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	later := NewPodBinds(store)
	broken, err := later.Recover(mount.NewTable([]mount.Entry{{ID: 1, Path: "/pods/mounted", Root: "/", Major: 7}}))
	if err != nil || len(broken) != 1 || broken[0].Name != "broken.json" {
		t.Errorf("broken records %v, error %v; want broken.json alone", broken, err)
	}
	if found := later.OfVolume("v"); len(found) != 1 || found[0].Target != "/pods/mounted" {
		t.Errorf("pod binds %v, want that of /pods/mounted alone", found)
	}
	entries, err := os.ReadDir(store.Dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files %v, error %v; want one record", entries, err)
	}
}

func TestAPlaceInADirectoryIsNoVolumeOfAPodAndKeepsItsRecordWithTheDirectory(t *testing.T) {
	binds, store := newBinds(t)
	directory := PodBind{Target: "/pods/dir", Directory: "/pods/dir", Pod: PodReference{Namespace: "shop"}}
	place := bindOf("dir/db")
	place.Directory = directory.Target
	for _, b := range []PodBind{directory, place} {
		if err := binds.Add(b, false); err != nil {
			t.Fatal(err)
		}
	}
	end, ok := binds.BeginUndo("v", place.Intent)
	if !ok {
		t.Fatal("a publication that only a directory shows is not undone, want that the directory gives it up first")
	}
	if err := binds.Add(place, false); !errors.Is(err, ErrUnpublishing) {
		t.Errorf("adding a place while its publication is undone: error %v, want %v", err, ErrUnpublishing)
	}
	end()
	later := NewPodBinds(store)
	_, err := later.Recover(mount.NewTable([]mount.Entry{{ID: 1, Path: "/pods/dir", Root: "/"}}))
	if err != nil || len(later.InDirectory("/pods/dir")) != 1 || len(later.Directories("shop")) != 1 {
		t.Errorf("records with the directory mounted: %v, error %v; want the directory and its place", later.All(), err)
	}
	later = NewPodBinds(store)
	if _, err := later.Recover(mount.NewTable(nil)); err != nil || len(later.All()) > 0 {
		t.Errorf("records with nothing mounted: %v, error %v; want none", later.All(), err)
	}
}

func TestABindThatIsNotOnTheDiskIsNotAdded(t *testing.T) {
	full := errors.New("no space left on device")
	binds := NewPodBinds(PodBindStore{Dir: t.TempDir(), Replace: func(string, []byte) error { return full }})
	if err := binds.Add(bindOf("web"), false); !errors.Is(err, full) {
		t.Errorf("adding a pod on a full disk: error %v, want %v", err, full)
	}
	if found := binds.OfVolume("v"); len(found) > 0 {
		t.Errorf("pod binds %v, want none", found)
	}
}

func TestOnlyThePathOfAVolumeOfAPodIsATarget(t *testing.T) {
	paths := Paths{Kubelet: "/var/lib/kubelet"}
	for target, want := range map[string]bool{
		"/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/data/mount":       true,
		"/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/data/mount/":      false,
		"/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/../data/mount":    false,
		"/var/lib/kubelet/pods/uid/volumes/kubernetes.io~empty-dir/data/mount": false,
		"/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/data":             false,
		"/var/lib/other/pods/uid/volumes/kubernetes.io~csi/data/mount":         false,
		"/etc": false,
	} {
		if _, ok := paths.PodOfVolume(target); ok != want {
			t.Errorf("path %s is that of a pod's volume: %t, want %t", target, ok, want)
		}
	}
}
